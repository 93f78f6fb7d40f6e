"""Waiting for a condition that another thread or process brings about."""

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds after which a test gives up: never reached when all is well."""


def until(condition: Callable[[], object], within: float = PATIENCE) -> None:
    """Return when it holds; fail when it does not in this many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)
