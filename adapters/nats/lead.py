"""Elects the one relay, among several, that publishes. This only saves work: two concurrent publishers do no harm."""

import os
from pathlib import Path
from typing import Protocol

from holdlog.adapters.operating_system.private import open_private, require_private
from holdlog.adapters.operating_system.write_lock import lock_file


class Lead(Protocol):
    """The lead, which at most one relay has."""

    def take(self) -> bool:
        """Try to acquire the lead; returns whether this relay has it now."""

    def release(self) -> None:
        """Give up the lead."""


class SoleLead:
    """The lead if there is only one process."""

    def take(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing: no other relay wants it."""


class FileLead:
    """A lock on a file, which the kernel frees when its process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def take(self) -> bool:
        """Try to lock the file. Raises StoreError for a symbolic link, a file of another user, and one open to
        others."""
        if self._descriptor >= 0:
            return True
        require_private(self._path)
        try:
            descriptor = open_private(self._path, os.O_RDWR)
        except OSError:
            return True  # the lead only saves work
        if lock_file(descriptor):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
