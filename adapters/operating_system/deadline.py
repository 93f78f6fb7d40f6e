"""A deadline that does not count time in which this process was stopped."""

import time
from typing import Final, Protocol

STOPPED: Final = 0.5
"""Seconds. Checks are at most `SLICE` apart; a longer gap than this means that the process was stopped (SIGSTOP, a
suspended virtual machine), not merely slow."""
SLICE: Final = 0.1


class _TimedLock(Protocol):
    def acquire(self, *, timeout: float) -> bool: ...


class Deadline:
    """A deadline; callers must check it every `SLICE` seconds. `at`: seconds of `time.monotonic`, which keeps running
    while a process is stopped."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._checked = time.monotonic()

    def passed(self) -> bool:
        """Whether the deadline has passed, not counting time in which this process was stopped."""
        now = time.monotonic()
        gap, self._checked = now - self._checked, now
        if gap > STOPPED:
            self._at += gap
        return now >= self._at

    def acquire(self, lock: _TimedLock) -> bool:
        """Wait for the lock until the deadline; try at least once."""
        while not lock.acquire(timeout=max(0.0, min(SLICE, self._at - time.monotonic()))):
            if self.passed():
                return False
        return True
