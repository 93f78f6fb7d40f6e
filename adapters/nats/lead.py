"""Which of several relays publishes. It only saves work: two that publish at once cannot harm each other."""

import os
from pathlib import Path
from typing import Protocol

from holdlog.adapters.operating_system.private import open_private, require_private
from holdlog.adapters.operating_system.write_lock import lock_file


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
        """Raises StoreError for a symbolic link, a file of another user, and one open to others."""
        if self._descriptor >= 0:
            return True
        require_private(self._path)
        try:
            descriptor = open_private(self._path, os.O_RDWR)
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
