"""What runs in `make slow` alone."""

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, with which a test is left out of `make test`."""
    return [pytest.param(*(it if isinstance(it, tuple) else (it,)), marks=pytest.mark.slow) for it in values]
