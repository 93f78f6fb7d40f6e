"""A store file that this process can read but not write, such as in a sandbox. Others may write it meanwhile.

SQLite reads the write-ahead log of such a file through the shared memory (`-shm`) of those that have it open, or, after
a crash, by its own index (https://www.sqlite.org/wal.html#readonly). If nobody has it open, there is no log, and SQLite
could not create one: then the file is complete in itself and read as one that does not change (`immutable`), under a
lock that keeps others from removing a log that they begin meanwhile.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import Final, TypeVar

from holdlog.adapters.operating_system.write_lock import ThreadLock
from holdlog.adapters.stores.sqlite.database import RECOVERY, DatabaseFile, identity_of
from holdlog.adapters.stores.sqlite.faults import code_of
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.domain.ports import Scrubbed
from holdlog.domain.refusals import ReadOnlyError, UnavailableError

_NAP: Final = 0.01
_CLOCK_STEP: Final = 1_000_000_000
"""Nanoseconds after which a change of a file certainly has another time stamp."""
_SHARED_FIRST: Final = 0x40000002
_SHARED_SIZE: Final = 510
"""The bytes that readers of a SQLite file lock (https://www.sqlite.org/src/file/src/os.h)."""


class ReadOnlyFile(DatabaseFile):
    """The file at `path`. `why`: why this process cannot write it, in one line."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, ThreadLock())
        self.why_read_only = self._why = why

    def connect(self) -> sqlite3.Connection:
        self.require_same()
        try:
            return connect_to_read(self.path)
        except sqlite3.Error as error:
            raise UnavailableError(f"{self.path} cannot be read now: {error}; try again") from error

    def connect_writer(self) -> sqlite3.Connection:
        raise ReadOnlyError(self._why)

    def may_reuse(self, connection: sqlite3.Connection) -> bool:
        if not isinstance(connection, _StillConnection):
            return True
        connection.close()
        connection.require_unchanged()
        return False

    def scrub(self) -> Scrubbed:
        raise ReadOnlyError(self._why)


class _StillConnection(sqlite3.Connection):
    """Reads a file that nobody had open when it was opened. It caches what it read: it serves one reader."""

    path: Path
    before: tuple[int, int] = (0, 0)
    """Size and time stamp of the file."""

    def require_unchanged(self) -> None:
        """Raise UnavailableError if others have moved pages into the file since: reads may then be inconsistent."""
        if not _has_log(self.path):
            return
        if _stamp(self.path) != self.before or time.time_ns() - self.before[1] < _CLOCK_STEP:
            raise UnavailableError("the store changed while it was read; try again", retry_after=0.0)


def connect_to_read(path: Path, seconds: float = RECOVERY) -> sqlite3.Connection:
    """Open an existing file that this process may be unable to write, without a change to it. Raises sqlite3.Error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _connected(path, uri_of(path, "ro"), sqlite3.Connection, seconds)
        except sqlite3.OperationalError as error:
            may_be_still = code_of(error) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if not may_be_still or not os.access(path, os.R_OK) or time.monotonic() > deadline:
                raise
        if _hold(path) and not _has_log(path):
            before = _stamp(path)
            connection = _connected(path, f"{uri_of(path, 'ro')}&immutable=1", _StillConnection, seconds)
            connection.path, connection.before = path, before
            return connection
        time.sleep(_NAP)  # another process creates or removes the log


Kind = TypeVar("Kind", bound=sqlite3.Connection)


def _connected(path: Path, uri: str, kind: type[Kind], seconds: float) -> Kind:
    """A connection that has read the file, so that the file's log stays."""
    connection = sqlite3.connect(
        uri, uri=True, factory=kind, check_same_thread=False, isolation_level=None, timeout=seconds
    )
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    """Whether a process has the file open, or ended without closing it."""
    log = path.with_name(f"{path.name}-wal")
    try:
        return os.stat(log).st_size > 0 or os.path.lexists(path.with_name(f"{path.name}-shm"))
    except FileNotFoundError:
        return False


def _stamp(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _hold(path: Path) -> bool:
    """Lock the file as readers do, for as long as this process lives: others can then begin a log, but not remove it.
    Returns False if one is being removed right now. The descriptor is never closed, because that would drop the locks
    of this process's connections (https://www.sqlite.org/howtocorrupt.html, 2.2)."""
    try:
        import fcntl
    except ImportError:
        return True
    identity = identity_of(path)
    descriptor = _held.get(identity)
    if descriptor is None:
        descriptor = _held[identity] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a system without locks
    return True


_held: dict[tuple[int, int] | None, int] = {}
"""A descriptor of each file that was read as one that does not change."""
