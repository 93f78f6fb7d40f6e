"""The write lock: one writer at a time over all processes of a machine (docs/decisions/0003-gate.md)."""

import os
import random
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from holdlog.adapters.operating_system.deadline import Deadline
from holdlog.adapters.operating_system.platform import process_name
from holdlog.adapters.operating_system.private import open_private
from holdlog.domain.refusals import UnavailableError

_SHORTEST_NAP = 0.0001
_LONGEST_NAP = 0.0005
_MARK_BYTES = 28


class OneWriter(Protocol):
    """Admits one writer at a time."""

    def acquire(self, deadline: float) -> bool:
        """Wait until `deadline` (`time.monotonic`). Returns whether nothing else wrote since this lock was last held.
        Raises UnavailableError."""

    def is_mine(self) -> bool:
        """Whether this thread holds it, including if it was interrupted right after acquiring it."""

    def release(self) -> None: ...

    def close(self) -> None: ...


class ThreadLock:
    """Admits one thread of this process at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, deadline: float) -> bool:
        if not Deadline(deadline).acquire(self._lock):
            raise UnavailableError("another thread is writing to the store; try again")
        return True

    def is_mine(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # as threading.Condition checks it

    def release(self) -> None:
        self._lock.release()

    def close(self) -> None:
        """Do nothing: threads that wait get the lock, and learn from the store that it is closed."""


class WriteLock:
    """A lock on a side file; the kernel releases it when its holder dies. The file contains the holder's pid."""

    def __init__(self, path: Path) -> None:
        """Open the side file. Raises OSError if it cannot be created."""
        self._path = path
        self._thread_lock = threading.RLock()  # threads of this process share the descriptor, and so the kernel's lock
        self._descriptor = -1
        self._open()
        self._mark = f"{os.getpid()} {secrets.token_hex(8)}".encode().ljust(_MARK_BYTES)

    def acquire(self, deadline: float) -> bool:
        """Wait for the write lock until `deadline` (`time.monotonic`). Raises UnavailableError that names the holder.

        Time in which this process was stopped does not count.

        Returns True if no other process acquired the lock since this one did, so what it knows about the store is still
        valid.
        """
        if not (self._thread_lock.acquire(blocking=False) or Deadline(deadline).acquire(self._thread_lock)):
            raise UnavailableError("this process is busy writing; try again")
        try:
            self._lock(deadline)
            undisturbed = os.pread(self._descriptor, _MARK_BYTES, 0) == self._mark
            if not undisturbed:
                os.pwrite(self._descriptor, self._mark, 0)
        except OSError as error:
            self.release()
            raise UnavailableError(f"{self._path} cannot be locked: {error.strerror}") from error
        except BaseException:  # an interrupt must not leave the lock held either
            self.release()
            raise
        return undisturbed

    def is_mine(self) -> bool:
        """Whether this thread holds the write lock, including if it was interrupted right after acquiring it."""
        return self._thread_lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # as threading.Condition checks it

    def release(self) -> None:
        try:
            if self._descriptor >= 0:
                unlock_file(self._descriptor)
        except OSError:
            self.close()  # this releases it as well; the next acquire opens it again
        finally:
            self._thread_lock.release()

    def close(self) -> None:
        """Close the descriptor; in a forked child this leaves the parent's lock alone."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        self.close()
        self._descriptor = open_private(self._path, os.O_RDWR)

    def _lock(self, deadline: float) -> None:
        wait: Deadline | None = None
        mark: bytes | None = None
        while True:
            if self._descriptor < 0:
                self._open()
            if lock_file(self._descriptor):
                if os.fstat(self._descriptor).st_nlink:
                    return
                self._open()  # the file was deleted: later processes lock a new one, and so must this one
                continue
            wait = wait or Deadline(deadline)
            if wait.passed():
                raise self._refusal(mark)
            mark = mark or self._mark_now()
            time.sleep(random.uniform(_SHORTEST_NAP, _LONGEST_NAP))

    def _refusal(self, before: bytes | None) -> UnavailableError:
        """Explain the timeout. Names no holder if the lock changed hands since `before` was read."""
        if before is not None and before != self._mark_now():
            return UnavailableError("timed out waiting for other processes that write to the store; try again")
        return UnavailableError(f"the store is locked by {self._holder()}, which does not release it; try again")

    def _mark_now(self) -> bytes:
        return os.pread(self._descriptor, _MARK_BYTES, 0)

    def _holder(self) -> str:
        """The process that wrote its mark last."""
        pid = self._mark_now().partition(b" ")[0]
        return describe_process(int(pid)) if pid.isdigit() else "another process"


def describe_process(pid: int) -> str:
    """Describe a process, as `process 123 (python)`."""
    name = process_name(pid)
    return f"process {pid} ({name})" if name else f"process {pid}"


if sys.platform == "win32":
    import msvcrt

    def lock_file(descriptor: int, shared: bool = False) -> bool:
        os.lseek(descriptor, 32, os.SEEK_SET)  # a byte beyond the pid: Windows locks are mandatory
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock_file(descriptor: int) -> None:
        os.lseek(descriptor, 32, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def lock_file(descriptor: int, shared: bool = False) -> bool:
        """Try to lock without waiting; return whether it succeeded. `shared`: allow other shared locks (not on
        Windows)."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock_file(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
