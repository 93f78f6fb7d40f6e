"""The store in one SQLite file that many processes share: the library's recorder, our views in the same transaction."""

import os
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from holdlog.adapters.machine import host
from holdlog.adapters.machine.gate import Gate, describe_process
from holdlog.adapters.stores.mapper import Sealed, seal, unseal
from holdlog.adapters.stores.schema import (
    CREATE_EVENTS,
    EVENTS_TABLE,
    INSERT_EVENT,
    MAJOR,
    MINORS_PER_MAJOR,
    PUT,
    SELECT_EVENTS,
    select_from,
)
from holdlog.domain.claim import Claim
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.ports import Change, Refusal
from holdlog.domain.record import Record
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.claims import CLAIMS, claim_of
from holdlog.projections.current import CURRENT, record_of
from holdlog.projections.fold import State

REQUEST_SECONDS: Final = 24 * 60 * 60
REFUSALS_KEPT: Final = 10_000
IDLE_READERS: Final = 16
WAL_WRITE_LOCK: Final = 120
"""Byte of the -shm file that a writer locks: https://www.sqlite.org/walformat.html#wal_locks."""

RECOVERY: Final = 2.0
"""Seconds for another to set up or clear away the write-ahead log; nothing else holds up a reader."""

_BUSY_NAP: Final = 0.001


class EventRecorder(SQLiteApplicationRecorder):
    """The library's log with our columns beside its four, and the rows of the views written with the events."""

    def construct_create_table_statements(self) -> list[str]:
        return [CREATE_EVENTS]

    def _insert_events(
        self,
        c: SQLiteCursor,
        stored_events: Sequence[StoredEvent],
        *,
        sealed: Sequence[Sealed] = (),
        states: Sequence[State] = (),
        **_: Any,
    ) -> Sequence[int]:
        positions = []
        for stored, extra, _digest in sealed:
            c.execute(
                INSERT_EVENT, (stored.originator_id, stored.originator_version, stored.topic, stored.state, *extra)
            )
            positions.append(c.lastrowid)
        for state in states:
            table, row = fold.put(state)
            c.execute(PUT[table.name], row)
        return positions


class _Pool(SQLiteConnectionPool):
    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        configure(connection._sqlite_conn)
        return connection


class _Datastore(SQLiteDatastore):
    def __init__(self, path: Path) -> None:
        super().__init__(uri_of(path), originator_id_type="text")
        self.pool.close()
        self.pool = _Pool(db_name=uri_of(path))


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's name for an existing file; never creates one."""
    return f"file:{quote(str(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")


class SqliteStore:
    """An opened file of ours (see opening.py). Safe in threads, not over a fork. `clock`: microseconds UTC."""

    def __init__(self, path: Path, gate: Gate, clock: Callable[[], int] = host.now) -> None:
        self.path = path
        self._path = str(path)  # a Path costs a microsecond at every stat
        self.gate = gate
        self._clock = clock
        self._datastore = _Datastore(path)
        self.recorder = EventRecorder(self._datastore, EVENTS_TABLE)
        self._identity = _identity(path)
        self._idle: deque[sqlite3.Connection] = deque()
        self._writing: SqliteTransaction | None = None
        self._watcher: sqlite3.Connection | None = None
        self._data_version = 0
        self._owner = os.getpid()
        self._closed = False

    def reader(self) -> "_Read":
        self._usable()
        return _Read(self, snapshot=False)

    def snapshot(self) -> "_Read":
        self._usable()
        return _Read(self, snapshot=True)

    @contextmanager
    def transaction(self, deadline: float) -> Iterator["SqliteTransaction"]:
        self._usable()
        undisturbed = self.gate.acquire(deadline)
        try:
            transaction = self._begin(deadline, undisturbed)
            yield transaction
            if transaction.wrote:
                self._commit(transaction.connection)
        except sqlite3.Error as error:
            raise refusal_of(error) from error
        finally:
            try:
                self._leave_none_open()
            finally:
                self.gate.release()

    def connect(self) -> sqlite3.Connection:
        """A new connection, configured; the caller closes it through `gate`."""
        self._require_in_place()
        try:
            connection = sqlite3.connect(
                uri_of(self.path), uri=True, check_same_thread=False, isolation_level=None, timeout=RECOVERY
            )
            configure(connection)
        except sqlite3.Error as error:
            raise refusal_of(error) from error
        return connection

    def changed(self) -> bool:
        """Whether another connection committed since this was asked last; 3 µs. For one thread at a time."""
        if self._closed:
            return True
        try:
            if self._watcher is None:
                self._watcher = self.connect()
            seen, self._data_version = self._data_version, self._watcher.execute("PRAGMA data_version").fetchone()[0]
        except (sqlite3.Error, UnavailableError):
            return True  # whoever looks then learns the cause
        return seen != self._data_version

    def close(self) -> None:
        """Close all connections behind the gate: closing the last one moves the WAL into the file."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        try:
            self.gate.acquire(time.monotonic() + 1.0)
        except UnavailableError:
            return  # somebody is stuck in the gate; the kernel closes for us
        try:
            if self._writing is not None:
                self._writing.connection.close()
            if self._watcher is not None:
                self._watcher.close()
            while self._idle:
                self._idle.pop().close()
            self._datastore.close()
        finally:
            self.gate.release()
            self.gate.close()

    def abandon(self) -> None:
        """In a forked child: use nothing of the parent's. Connections are kept, since closing them could harm it."""
        _abandoned.append((self._writing, self._watcher, self._idle, self._datastore))
        self._closed = True
        self.gate.close()

    def borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self.connect()

    def give_back(self, connection: sqlite3.Connection) -> None:
        if not self._closed and len(self._idle) < IDLE_READERS:
            self._idle.append(connection)
        else:
            connection.close()

    def _begin(self, deadline: float, undisturbed: bool) -> "SqliteTransaction":
        self._require_in_place()
        if self._writing is None:
            self._writing = SqliteTransaction(self.connect(), self.recorder, self._clock)
        writing = self._writing
        while True:
            try:
                writing.begin(undisturbed)
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                if time.monotonic() >= deadline:
                    raise UnavailableError(f"the store is locked by {self._locker()}, which does not let go") from None
                time.sleep(_BUSY_NAP)
            else:
                return writing

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # What was not written whole cannot come back; what was written but not synced may, after a crash.
            sure = _is_busy(error) or _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
            raise refusal_of(error, in_doubt=not sure) from error

    def _leave_none_open(self) -> None:
        """A transaction left open would lock everybody out, as long as this process lives."""
        if self._writing is not None and self._writing.connection.in_transaction:
            try:
                self._writing.connection.execute("ROLLBACK")
            except sqlite3.Error:
                connection, self._writing = self._writing.connection, None
                connection.close()

    def _require_in_place(self) -> None:
        if _identity(self._path) != self._identity:
            raise UnavailableError(f"{self.path} was deleted or replaced; start again to open what stands there now")

    def _locker(self) -> str:
        pid = host.lock_owner(self.path.with_name(self.path.name + "-shm"), WAL_WRITE_LOCK)
        return describe_process(pid) if pid else "another process"

    def _usable(self) -> None:
        if self._closed:
            raise StoreError.forked() if self._owner != os.getpid() else StoreError.closed()


_abandoned: list[Any] = []


class SqliteReader:
    """Reads through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def position(self) -> int:
        row = self.connection.execute(f"SELECT MAX(rowid) FROM {EVENTS_TABLE}").fetchone()
        return row[0] or 0

    def record(self, namespace: str, key: str) -> Record:
        row = self.connection.execute(_SELECT_RECORD, (namespace, key)).fetchone()
        return Record(namespace, key) if row is None else record_of(row)

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        parameters = (namespace, prefix, _beyond(prefix), after or "", int(not deleted), limit)
        return [record_of(row) for row in self.connection.execute(_SELECT_RECORDS, parameters)]

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        return self.connection.execute(_SELECT_NAMESPACES, (after or "", limit)).fetchall()

    def claim(self, resource: str) -> Claim:
        row = self.connection.execute(_SELECT_CLAIM, (resource,)).fetchone()
        return Claim(resource) if row is None else claim_of(row)

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        return [claim_of(row) for row in self.connection.execute(_SELECT_CLAIMS, (after or "", limit))]

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        below = sys.maxsize if before is None else before
        return [unseal(row) for row in self.connection.execute(_SELECT_HISTORY, (stream, below, limit))]

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        return [unseal(row) for row in self.rows(after, limit)]

    def rows(self, after: int, limit: int) -> sqlite3.Cursor:
        """Rows of the log as `mapper.unseal` takes them."""
        return self.connection.execute(_SELECT_LOG, (after, limit))


class SqliteTransaction(SqliteReader):
    """The one write connection; `begin` makes it a new transaction."""

    def __init__(self, connection: sqlite3.Connection, recorder: EventRecorder, clock: Callable[[], int]) -> None:
        super().__init__(connection)
        self._recorder = recorder
        self._clock = clock
        self._cursor = SQLiteCursor(connection.cursor())
        connection.execute("PRAGMA busy_timeout = 0")  # it waits in the store, fairly and up to its own deadline
        self.at = 0
        self._knows_last = False
        self.wrote = False

    def begin(self, undisturbed: bool) -> None:
        """Raises sqlite3.Error; StoreError when a newer holdlog changed the file's major version meanwhile.

        `undisturbed`: nobody else wrote since the last time, so the last event's time is known.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        self._knows_last = self._knows_last and undisturbed
        if not self._knows_last:
            self.at = self._last_time()
            self._knows_last = True
        self.at = max(self._clock(), self.at)
        self.wrote = False

    def _last_time(self) -> int:
        require_major(self.connection.execute("PRAGMA user_version").fetchone()[0])
        row = self.connection.execute(_SELECT_LAST).fetchone()
        return row[0] if row else 0

    def append(self, changes: Sequence[Change], caller: Caller) -> int:
        states: dict[str, State] = {}
        sealed: list[Sealed] = []
        for change in changes:
            stream = change.before.stream
            before = states.get(stream, change.before)
            event = seal(change, before, self.at, caller)
            states[stream] = fold.evolve(before, change.event, self.at, event.digest)
            sealed.append(event)
        stored = [event.stored for event in sealed]
        positions = self._recorder._insert_events(self._cursor, stored, sealed=sealed, states=list(states.values()))
        self.wrote = True
        return positions[-1]

    def repeated(self, caller: Caller) -> tuple[bytes, str] | None:
        oldest = self.at - REQUEST_SECONDS * 1_000_000
        parameters = (caller.principal or "", caller.request_id, oldest)
        found: tuple[bytes, str] | None = self.connection.execute(_SELECT_REQUEST, parameters).fetchone()
        return found

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str) -> None:
        self.connection.execute("DELETE FROM requests WHERE at < ?", (self.at - REQUEST_SECONDS * 1_000_000,))
        parameters = (caller.principal or "", caller.request_id, self.at, fingerprint, outcome)
        self.connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", parameters)
        self.wrote = True

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        insert = "INSERT INTO refusals (at, code, what, by, session) VALUES (?, ?, ?, ?, ?)"
        self.connection.executemany(insert, refusals)
        self.connection.execute("DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - ?", (REFUSALS_KEPT,))
        self.wrote = True


class _Read:
    """A borrowed connection for the length of a block; `snapshot`: in one read transaction."""

    __slots__ = ("_connection", "_snapshot", "_store")

    def __init__(self, store: SqliteStore, snapshot: bool) -> None:
        self._store = store
        self._snapshot = snapshot

    def __enter__(self) -> SqliteReader:
        self._connection = self._store.borrow()
        if self._snapshot:
            self._connection.execute("BEGIN")  # looks at nothing yet, so it cannot fail
        return SqliteReader(self._connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()
        else:
            self._store.give_back(self._connection)
        if isinstance(error, sqlite3.Error):
            raise refusal_of(error) from error


def refusal_of(error: sqlite3.Error, in_doubt: bool = False) -> HoldlogError:
    """The cause in SQLite's own words: a full disk is told as a full disk."""
    name = getattr(error, "sqlite_errorname", None)
    if _code(error) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"the store is damaged ({error}); restore it from a backup")
    return UnavailableError(f"the store could not do it: {error}{f' ({name})' if name else ''}", in_doubt=in_doubt)


def require_major(user_version: int) -> None:
    """Raises StoreError for a file whose schema has another major version."""
    major = user_version // MINORS_PER_MAJOR
    if major > MAJOR:
        raise StoreError(f"the store has schema {major}, this holdlog knows {MAJOR}; upgrade holdlog")


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _beyond(prefix: str) -> str | bytes:
    """The first text behind all that start with the prefix; SQLite sorts any BLOB behind all texts."""
    rest = prefix.rstrip(chr(sys.maxunicode))
    if not rest:
        return b""
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """SQLite's extended code; 0 where the error is Python's own."""
    return getattr(error, "sqlite_errorcode", 0)


_SELECT_RECORD: Final = f"{select_from(CURRENT)} WHERE namespace = ? AND key = ?"
_SELECT_RECORDS: Final = (
    f"{select_from(CURRENT)} WHERE namespace = ? AND key >= ? AND key < ? AND key > ? AND live = ? ORDER BY key LIMIT ?"
)
_SELECT_NAMESPACES: Final = (
    "SELECT namespace, COUNT(*) FROM current WHERE namespace > ? AND live = 1 GROUP BY namespace ORDER BY 1 LIMIT ?"
)
_SELECT_CLAIM: Final = f"{select_from(CLAIMS)} WHERE resource = ?"
_SELECT_CLAIMS: Final = f"{select_from(CLAIMS)} WHERE resource > ? AND holder IS NOT NULL ORDER BY resource LIMIT ?"
_SELECT_HISTORY: Final = (
    f"{SELECT_EVENTS} WHERE originator_id = ? AND originator_version < ? ORDER BY originator_version DESC LIMIT ?"
)
_SELECT_LOG: Final = f"{SELECT_EVENTS} WHERE rowid > ? ORDER BY rowid LIMIT ?"
_SELECT_LAST: Final = f"SELECT at FROM {EVENTS_TABLE} ORDER BY rowid DESC LIMIT 1"
_SELECT_REQUEST: Final = "SELECT fingerprint, outcome FROM requests WHERE principal = ? AND request_id = ? AND at >= ?"
