"""The store in SQLite: a file that many processes share, or memory."""

import json
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdlog.adapters.engine.port import Batch, Head, Reader, Request
from holdlog.adapters.stores.codec import FIRST_DIGEST
from holdlog.adapters.stores.sql import FORGET_EVERY, FORGET_REQUESTS, HEAD, REMEMBER_FOR
from holdlog.adapters.stores.sqlite.lock import WriteLock
from holdlog.adapters.stores.sqlite.notifications import Listener, send_datagrams
from holdlog.adapters.stores.sqlite.schema import connect, create_tables, prepare_file, require_schema
from holdlog.domain.names import end_of_range
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError
from holdlog.domain.state import Reads, Record, State
from holdlog.domain.values import Json, encode

OPEN_TIMEOUT: Final = 10.0
"""Seconds that many processes may need to open a new file at once."""
CHECK_FILE_EVERY: Final = 0.1
"""Seconds after which a read or write notices that the file was replaced."""

_RECORD: Final = "SELECT version, position, exists_now, expires_at FROM current WHERE stream = ?"
_VALUE: Final = (
    "SELECT c.version, c.position, c.exists_now, c.expires_at, e.payload FROM current AS c"
    " JOIN events AS e ON e.position = c.position WHERE c.stream = ?"
)
_RANGE: Final = "SELECT stream, version, position, exists_now, expires_at FROM current WHERE stream >= ? AND stream < ?"
_REQUEST: Final = "SELECT position, at, fingerprint, result FROM requests WHERE principal = ? AND request_id = ?"
_APPEND: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)"
_PUT: Final = (
    "INSERT INTO current VALUES (?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET version = excluded.version,"
    " position = excluded.position, exists_now = excluded.exists_now, expires_at = excluded.expires_at"
)
_REMEMBER: Final = "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)"


class SqliteStore:
    """One writing thread at a time, any number of reading ones."""

    is_local = True

    def __init__(self, path: str | None) -> None:
        """Open or create the file; None: memory. Raises StoreError, UnavailableError."""
        self._path = path or ":memory:"
        self._lock: WriteLock | None = None
        self._head: Head | None = None
        self._idle: deque[sqlite3.Connection] = deque()
        self._memory = threading.RLock()
        """Memory has one connection, which readers must not use within a transaction of the writer."""
        self._locked = False
        self.identity: tuple[int, int] | None = None
        self._next_check = 0.0
        try:
            if path is None:
                self._writer = connect(":memory:")
                create_tables(self._writer)
            else:
                if _identify(self._path) in _inherited:
                    raise StoreError(f"{path} was open when this process was forked; spawn workers, or fork first")
                self._lock = WriteLock(f"{path}.lock")
                self._lock.acquire(OPEN_TIMEOUT)
                try:
                    prepare_file(path)
                    self._writer = connect(self._path)
                finally:
                    self._lock.release()
                self.identity = _identify(self._path)
        except sqlite3.Error as error:
            raise _refuse(error) from error
        except OSError as error:
            raise StoreError(f"{self._path} cannot be opened: {error.strerror}; use another path") from error
        self._cursor = self._writer.cursor()
        _open_stores.add(self)

    # --- writes

    def begin(self, reads: Sequence[Reads], requests: Sequence[tuple[str, str]], timeout: float) -> Batch:
        if self._lock is None:
            self._memory.acquire()
        elif not self._lock.acquire(timeout):
            self._head = None
        self._locked = True
        try:
            if time.monotonic() > self._next_check:
                self._require_same_file()
            self._cursor.execute("BEGIN IMMEDIATE")
            if self._head is None:
                self._head = self._read_head()
            records: dict[str, Record] = {}
            for read in reads:
                self._load(read, records)
            batch = Batch(self._head, time.time_ns() // 1000, State(records))
            for key in requests:
                for row in self._cursor.execute(_REQUEST, key):
                    batch.requests[key] = Request(*row)
            return batch
        except sqlite3.Error as error:
            self.abort()
            raise _refuse(error) from error
        except BaseException:
            self.abort()
            raise

    def commit(self, batch: Batch) -> None:
        execute, many = self._cursor.execute, self._cursor.executemany
        sure = True
        try:
            if len(batch.rows) == 1:
                row = batch.rows[0]
                execute(_APPEND, row)
                execute(_PUT, batch.state.records[row[1]][:5])
            elif batch.rows:
                many(_APPEND, batch.rows)
                many(_PUT, [batch.state.records[stream][:5] for stream in {row[1] for row in batch.rows}])
            if batch.remembered:
                many(_REMEMBER, [(*key, *batch.requests[key]) for key in batch.remembered])
                if batch.rows and batch.rows[-1][0] % FORGET_EVERY < len(batch.rows):
                    execute(FORGET_REQUESTS, {"oldest": batch.at - REMEMBER_FOR})
            sure = False
            execute("COMMIT")
        except sqlite3.Error as error:
            self.abort()
            raise _refuse(error, in_doubt=not (sure or _failed_before_sync(error))) from error
        if batch.rows:
            last = batch.rows[-1]
            self._head = Head(last[0], last[-1], last[4])
        self._locked = False
        if self._lock is None:
            self._memory.release()
        else:
            self._lock.release()
            if self._lock.has_waiters:
                send_datagrams(self._lock.ports())

    def abort(self) -> None:
        """Undo and release whatever this thread has begun, after an error or an interrupt."""
        self._head = None  # it may have committed
        if self._locked:
            with suppress(sqlite3.Error):
                if self._writer.in_transaction:
                    self._cursor.execute("ROLLBACK")
            self._locked = False
            (self._memory if self._lock is None else self._lock).release()

    def _load(self, read: Reads, records: dict[str, Record]) -> None:
        execute = self._cursor.execute
        for stream in read.streams:
            if stream not in records:
                row = execute(_RECORD, (stream,)).fetchone()
                records[stream] = Record(stream) if row is None else Record(stream, *row)
        for stream in read.values:
            row = execute(_VALUE, (stream,)).fetchone()
            if row is None:
                records[stream] = Record(stream)
            else:
                value = Json(encode(json.loads(row[4])["value"])) if row[2] else None
                version, position, exists, expires_at, _ = row
                records[stream] = Record(stream, version, position, exists, expires_at, value)
        for prefix in read.prefixes:
            for row in execute(_RANGE, (prefix, end_of_range(prefix))):
                records.setdefault(row[0], Record(*row))

    def _read_head(self) -> Head:
        if self._lock is not None:
            require_schema(self._writer, self._path)
        row = self._cursor.execute(HEAD).fetchone()
        return Head(0, FIRST_DIGEST, 0) if row is None else Head(*row)

    # --- reads

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        if self._lock is None:
            with self._memory:
                return self._writer.execute(query, parameters).fetchall()
        connection = self._take_reader()
        try:
            rows = connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:  # the connection may have cached a wrong read
            connection.close()
            raise _refuse(error) from error
        self._idle.append(connection)
        return rows

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        if self._lock is None:
            with self._memory:
                yield SqliteSnapshot(self._writer, self.now())
            return
        connection = self._take_reader()
        try:
            connection.execute("BEGIN")
            yield SqliteSnapshot(connection, self.now())
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            connection.close()
            raise _refuse(error) from error
        except BaseException:
            connection.execute("ROLLBACK")
            self._idle.append(connection)
            raise
        self._idle.append(connection)

    def now(self) -> int:
        return time.time_ns() // 1000

    def _take_reader(self) -> sqlite3.Connection:
        if time.monotonic() > self._next_check:
            self._require_same_file()
        try:
            return self._idle.pop()
        except IndexError:
            return connect(self._path)

    def _require_same_file(self) -> None:
        """Raise UnavailableError if the file was replaced, for example by a backup copied back."""
        if self._lock is None:
            return
        self._next_check = time.monotonic() + CHECK_FILE_EVERY
        self._lock.require_same_file()
        if _identify(self._path) != self.identity:
            raise UnavailableError(f"{self._path} was removed or replaced; restart this process to open the new file")

    # --- notifications

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[None]:
        if self._lock is None:
            yield
            return
        with Listener(self._lock, connect(self._path), wake).running():
            yield

    def close(self) -> None:
        """Close all connections under the write lock: closing the last one moves the write-ahead log into the file."""
        if self._lock is None:
            self._writer.close()
            return
        self._lock.acquire(1.0)
        try:
            self._writer.close()
            while self._idle:
                self._idle.pop().close()
        finally:
            self._lock.release()
            self._lock.close()


class SqliteSnapshot:
    """One state of the store."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return self._connection.execute(query, parameters).fetchall()

    def now(self) -> int:
        return self._now

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        yield self


_open_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()
_inherited: set[tuple[int, int]] = set()
"""Files that this process may not open, because its parent had them open when it forked."""


def _keep_inherited() -> None:
    """In a forked child: never close the parent's connections. SQLite believes that the child has their locks, and
    closing one, or opening the file again, could remove a write-ahead log that others use."""
    import ctypes

    for store in _open_stores:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # not even the interpreter's exit finalizes it
        if store.identity is not None:
            _inherited.add(store.identity)


os.register_at_fork(after_in_child=_keep_inherited)


def _identify(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _failed_before_sync(error: sqlite3.Error) -> bool:
    """Whether a failed COMMIT cannot reappear: if only the sync failed, it may survive a crash."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE) or code & 0xFF == sqlite3.SQLITE_BUSY


def _refuse(error: sqlite3.Error, in_doubt: bool = False) -> HoldlogError:
    name = getattr(error, "sqlite_errorname", "")
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"the file is damaged or not a SQLite file ({error}); run `holdlog doctor`")
    return UnavailableError(f"the store reported an error: {error}{f' ({name})' if name else ''}", in_doubt=in_doubt)
