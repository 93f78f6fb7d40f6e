"""Which of several relays publishes. It only saves work: two that publish at once cannot harm each other."""

import os
from pathlib import Path
from typing import Protocol

from holdlog.adapters.machine.gate import lock_file

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


class Lead(Protocol):
    """At most one relay has it."""

    def take(self) -> bool:
        """Whether this one has it now."""

    def leave(self) -> None:
        """Let another one have it."""


class SoleLead:
    """Where there is but one process."""

    def take(self) -> bool:
        return True

    def leave(self) -> None:
        """Nobody else wants it."""


class FileLead:
    """A lock on a file, which the kernel frees when its process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def take(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | _NOFOLLOW, 0o600)
        except OSError:
            return True  # it would only save work
        if lock_file(descriptor):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def leave(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
