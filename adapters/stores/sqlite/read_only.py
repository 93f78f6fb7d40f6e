"""A store file that this process can read but not write, for example in a sandbox. Others may write it meanwhile.

SQLite reads its write-ahead log through the shared memory of the processes that have it open. Without a log the file is
complete, and is opened as one that does not change (`immutable`), because SQLite could not create a log.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from holdlog.adapters.engine.port import Head, Reader, Snapshot
from holdlog.adapters.operating_system.file_systems import explain_exposed
from holdlog.adapters.operating_system.files import explain
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.sqlite.notifications import Poller
from holdlog.adapters.stores.sqlite.schema import connect, read_copy, require_store
from holdlog.domain.refusals import StoreError, UnavailableError

TIMEOUT: Final = 2.0
"""Seconds to wait while another process creates or removes the log."""
TICK: Final = 20_000_000
"""Nanoseconds after which a change of a file certainly has another time stamp."""


class ReadOnlyStore:
    """Each read opens a connection, as the log may be created or removed between two reads."""

    is_local = False  # a read may sleep until another process has moved the log

    def __init__(self, path: str, why: str) -> None:
        """Open the file. `why` is the message of the refusal of each write. Raises StoreError, UnavailableError."""
        self._path = path
        self._why = why
        if not os.access(path, os.R_OK, effective_ids=True):
            raise StoreError(explain(path, 13, "read"))
        if (exposed := explain_exposed(path)) is not None:
            raise StoreError(exposed)
        with self._connection() as connection:
            require_store(connection, path)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnavailableError(self._why, retry_after=60.0)

    begin = execute = append = commit = erase = _refuse

    def abort(self) -> None:
        pass

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        with self._connection() as connection:
            return connection.execute(query, parameters).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield Snapshot(connection.execute, self.now(), self.steady())

    def backup(self, path: str) -> Head:
        self.read(sql.COPY, {"path": path})
        return read_copy(path)

    def now(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> int:
        return time.monotonic_ns() // 1000

    def list_damage(self) -> list[str]:
        return [text for (text,) in self.read("PRAGMA integrity_check(10)", {}) if text != "ok"]

    def listen(self, wake: Callable[[], None]) -> Poller:
        return Poller(wake)

    def close(self) -> None:
        pass

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Raises UnavailableError if what was read in the block may be inconsistent."""
        try:
            connection, before = self._connect()
            try:
                yield connection
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            raise UnavailableError(f"{self._path} cannot be read now: {error}; try again") from error
        if before is not None and self._stamp() != before:
            raise UnavailableError("the store changed while it was read; try again", retry_after=0.0)

    def _connect(self) -> tuple[sqlite3.Connection, tuple[int, ...] | None]:
        """A connection, and the time stamp of a file that must not change."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return self._open("ro"), None
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or time.monotonic() > deadline:
                    raise
            before = self._stamp()
            is_settled = abs(time.time_ns() - before[1]) > TICK
            if is_settled and not any(os.path.exists(self._path + ending) for ending in ("-wal", "-shm")):
                return self._open("ro&immutable=1"), before
            time.sleep(0.01)

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = connect(self._path, mode)
        try:
            connection.execute("PRAGMA user_version").fetchone()  # opens the log
        except BaseException:
            connection.close()
            raise
        return connection

    def _stamp(self) -> tuple[int, ...]:
        status = os.stat(self._path)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns
