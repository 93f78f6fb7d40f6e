"""The signals that a command handles itself."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

BY_SIGNAL: Final = 128
"""Exit codes of shells (POSIX, 2.8.2): 128 + n for a command that signal n ended."""


@contextmanager
def handled(names: Sequence[str], handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals while the block runs, except those that the parent of this process ignores. `names`: such as
    `SIGTERM`; those that the system does not have are left out."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {it: found for it in numbers if (found := signal.getsignal(it)) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
