"""A database in the memory of one process (docs/decisions/0035-memory-is-sqlite.md)."""

import sqlite3
import time
import uuid
from collections.abc import Callable
from typing import Final

from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.write_lock import ThreadLock
from holdlog.adapters.stores.sqlite.database import Database
from holdlog.adapters.stores.sqlite.faults import is_busy, refusal_of
from holdlog.adapters.stores.sqlite.schema import create_tables, make_ours
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.ports import Scrubbed
from holdlog.domain.refusals import UnavailableError

COMMIT_SECONDS: Final = 5.0
"""How long a commit waits for the reads that run."""
READ_SECONDS: Final = 10.0
"""How long a read waits for commits, each of which takes microseconds."""
_ATTEMPT: Final = 0.02
"""Seconds for which a commit lets no new read begin. Between two attempts as long, reads begin again: a thread that
reads may begin a second read, for which the first must not wait."""


def open_memory(clock: Callable[[], int] = platform.now, steady: Callable[[], int] = platform.steady) -> SqliteStore:
    """A new, empty store in memory. Its contents last until it is closed."""
    return SqliteStore(MemoryDatabase(), clock, steady)


class MemoryDatabase(Database):
    """A new database in SQLite's VFS `memdb`, which all connections of the process share by name.

    Each connection has a separate page cache, so what the writer changes is invisible until its commit. The writer
    ignores the locks of the VFS (`nolock`), because these would stop all reads from BEGIN IMMEDIATE on; a second
    connection, `barrier`, takes them for the moment of the commit.
    """

    damage_check = None

    def __init__(self) -> None:
        self.uri = f"file:/holdlog-{uuid.uuid4()}?vfs=memdb"
        self.write_lock = ThreadLock()
        self._barrier = self._connect(self.uri, _ATTEMPT)
        self._barrier.execute("BEGIN IMMEDIATE")
        create_tables(self._barrier)
        make_ours(self._barrier, str(uuid.uuid4()))
        self._barrier.execute("COMMIT")

    def connect(self) -> sqlite3.Connection:
        return self._connect(self.uri, READ_SECONDS)

    def connect_writer(self) -> sqlite3.Connection:
        writer = self._connect(f"{self.uri}&nolock=1", 0.0)
        writer.execute("PRAGMA cache_spill = OFF")  # else a large transaction changes pages before its commit
        return writer

    def commit(self, writer: sqlite3.Connection) -> None:
        self._stop_reads()
        try:
            writer.execute("COMMIT")
        finally:
            self._barrier.execute("ROLLBACK")

    def _stop_reads(self) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                self._barrier.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if time.monotonic() > deadline:
                    raise UnavailableError(f"a read took longer than {COMMIT_SECONDS:g} s; try again") from None
                time.sleep(_ATTEMPT)
            else:
                return

    def size(self) -> int:
        pages, bytes_each = (self._barrier.execute(f"PRAGMA {it}").fetchone()[0] for it in ("page_count", "page_size"))
        return int(pages * bytes_each)

    def scrub(self) -> Scrubbed:
        return Scrubbed()  # it ends with the process, and nothing marks it

    def close(self) -> None:
        self._barrier.close()

    def _connect(self, uri: str, timeout: float) -> sqlite3.Connection:
        try:
            return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=timeout)
        except sqlite3.Error as error:
            raise refusal_of(error) from error
