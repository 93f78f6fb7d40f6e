"""A deadline that a stopped process does not miss: time in which this process did not run does not count."""

import time
from typing import Final, Protocol

STOPPED: Final = 0.5
"""Seconds between two checks that are at most `SLICE` apart, from which on this process was stopped (SIGSTOP, a
suspended virtual machine) and not just slow."""
SLICE: Final = 0.1


class _Lock(Protocol):
    def acquire(self, *, timeout: float) -> bool: ...


class Deadline:
    """Must be checked every `SLICE` seconds. `at`: seconds of `time.monotonic`, which goes on in a stopped process."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._checked = time.monotonic()

    def passed(self) -> bool:
        """Whether this process ran until the deadline."""
        now = time.monotonic()
        gap, self._checked = now - self._checked, now
        if gap > STOPPED:
            self._at += gap
        return now >= self._at

    def acquire(self, lock: _Lock) -> bool:
        """Wait for the lock until the deadline, and try at least once."""
        while not lock.acquire(timeout=max(0.0, min(SLICE, self._at - time.monotonic()))):
            if self.passed():
                return False
        return True
