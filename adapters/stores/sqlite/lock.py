"""The write lock of a store file: one writer at a time over all processes of a machine.

Its side file also records the last writer, and the ports at which processes wait for notifications. Blocking in the
kernel would make a convoy, and SQLite's own handler starves writers (docs/decisions/write-lock.md).
"""

import fcntl
import os
import struct
import time
from contextlib import suppress
from itertools import count
from typing import Final

from holdlog.adapters.operating_system.files import open_private
from holdlog.domain.refusals import UnavailableError

CHECK_FILE_EVERY: Final = 0.1
"""Seconds after which a read or write notices that a file was replaced, if no other process has written to it."""
SLOTS: Final = 64
"""Processes that can wait for notifications; others poll."""
_YIELDS: Final = 5
_SHORTEST_NAP: Final = 0.0001
_LONGEST_NAP: Final = 0.0008
_MARK: Final = struct.Struct("<I12s")
"""Process and random bytes of the last writer."""
_SLOT: Final = struct.Struct("<IH")
"""Process and UDP port of a process that waits."""
_FREE: Final = bytes(SLOTS * _SLOT.size)
_BYTES: Final = _MARK.size + len(_FREE)
_POSITION_BYTES: Final = 8
"""The last position of the log that was noted, behind the slots."""


class WriteLock:
    """The kernel releases it when its holder dies. The caller admits one thread of this process at a time."""

    def __init__(self, path: str) -> None:
        """Open or create the side file. Raises OSError."""
        self._path = path
        self._descriptor = open_private(path)
        self._mark = _MARK.pack(os.getpid(), os.urandom(12))
        self._slots = b""
        self._known_until = 0.0
        self.has_waiters = False
        self._slot = -1
        self._port = 0

    def acquire(self, timeout: float) -> bool:
        """Acquire the lock. Returns True if this process released it a moment ago and no other acquired it since: else
        the caller must check the store file. Raises UnavailableError, which names the holder or the system's error."""
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(timeout)
            content = os.pread(self._descriptor, _BYTES, 0)
            self._slots = content[_MARK.size :]
            self.has_waiters = not _FREE.startswith(self._slots)
            if content.startswith(self._mark) and time.monotonic() < self._known_until:
                return True
            if not os.fstat(self._descriptor).st_nlink:
                self._reopen()  # the file was removed: later processes lock a new one, and so must this one
                return self.acquire(timeout)
            self._known_until = time.monotonic() + CHECK_FILE_EVERY
            os.pwrite(self._descriptor, self._mark, 0)
        except OSError as error:
            raise UnavailableError(f"{self._path} cannot be locked ({error.strerror}); try again") from error
        return False

    def read_position(self) -> int:
        """The last position of the log that any process has noted: the log has at least this many events."""
        return int.from_bytes(os.pread(self._descriptor, _POSITION_BYTES, _BYTES), "little")

    def note_position(self, position: int) -> None:
        """Note a position, if the disk lets us; the caller has the lock. It never decreases: that shows a backup that
        was copied back."""
        with suppress(OSError):
            if position > self.read_position():
                os.pwrite(self._descriptor, position.to_bytes(_POSITION_BYTES, "little"), _BYTES)

    def expect_others(self) -> None:
        """Make the next `acquire` return False."""
        self._known_until = 0.0

    def close_descriptor(self) -> None:
        """In a forked child: close the descriptor, which leaves the lock to the parent. A child that kept it would keep
        the lock of a killed parent."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def release(self) -> None:
        """Release the lock, if this process has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:
            if self._descriptor >= 0:
                with suppress(OSError):
                    self._reopen()  # closing it releases it

    def close(self) -> None:
        """Close the side file."""
        with suppress(OSError):
            self.leave()
        self.close_descriptor()

    def ports(self) -> list[int]:
        """The ports of other processes that waited when the lock was last acquired."""
        return [port for _, port in _SLOT.iter_unpack(self._slots) if port and port != self._port]

    def enter(self, port: int) -> None:
        """Let writers notify this process at a port of the loopback interface. Without a free slot, it must poll."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, _BYTES)
        try:
            slots = os.pread(self._descriptor, _BYTES, 0)[_MARK.size :].ljust(_BYTES - _MARK.size, b"\0")
            for number, (process, _) in enumerate(_SLOT.iter_unpack(slots)):
                if not process or not _is_alive(process):
                    self._slot, self._port = number, port
                    return self._write_slot(_SLOT.pack(os.getpid(), port))
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _BYTES)

    def leave(self) -> None:
        if self._slot >= 0:
            self._write_slot(bytes(_SLOT.size))
            self._slot = -1

    def _write_slot(self, content: bytes) -> None:
        os.pwrite(self._descriptor, content, _MARK.size + self._slot * _SLOT.size)

    def _reopen(self) -> None:
        descriptor = open_private(self._path)
        os.dup2(descriptor, self._descriptor, inheritable=False)
        os.close(descriptor)

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        holder = os.pread(self._descriptor, _MARK.size, 0)
        for attempt in count():
            is_late = time.monotonic() > deadline
            with suppress(BlockingIOError):  # once more, as this process may have been stopped
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if is_late:
                raise self._refuse(holder)
            if attempt < _YIELDS:
                os.sched_yield()
            else:
                nap = min(_LONGEST_NAP, _SHORTEST_NAP * 2 ** min(attempt - _YIELDS, 10))
                time.sleep(nap * (0.5 + int.from_bytes(os.urandom(1)) / 255))  # random: two must not collide each time

    def _refuse(self, before: bytes) -> UnavailableError:
        """Explain the timeout. Names no holder if the lock changed hands meanwhile."""
        now = os.pread(self._descriptor, _MARK.size, 0)
        if now != before or len(now) < _MARK.size:
            return UnavailableError("timed out waiting for other processes that write to the store; try again")
        process = _MARK.unpack(now)[0]
        return UnavailableError(f"the store is locked by process {process}, which does not release it; try again")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
