"""The store in SQLite: a file that many processes share, or memory."""

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from holdlog.adapters.engine import port
from holdlog.adapters.engine.port import LOCK_SECONDS, MARK_AFTER, Batch, Head, Reader, Request, Snapshot, find_key
from holdlog.adapters.operating_system.files import CANNOT_WRITE, explain, is_full
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import board as boards
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import FIRST_DIGEST, decode_record
from holdlog.adapters.stores.sql import FORGET_EVERY, HEAD, REMEMBER_FOR
from holdlog.adapters.stores.sqlite import schema
from holdlog.adapters.stores.sqlite.lock import CHECK_FILE_EVERY, WriteLock
from holdlog.adapters.stores.sqlite.notifications import Listener, send_datagrams
from holdlog.domain.claims.board import Board
from holdlog.domain.moment import Caller
from holdlog.domain.names import WITHOUT_RECORD, end_of_range
from holdlog.domain.refusals import HoldlogError, LostError, StoreError, UnavailableError
from holdlog.domain.state import Reads, Record, State

OPEN_TIMEOUT: Final = 10.0
"""Seconds that many processes may need to open a new file at once."""
DAMAGE_REMEMBERED: Final = 5.0
"""Seconds for which damage is reported without another look at the whole file."""

_RECORD: Final = "SELECT version, position, exists_now, expires_at FROM current WHERE stream = ?"
_VALUE: Final = (
    "SELECT c.version, c.position, c.exists_now, c.expires_at, e.payload FROM current AS c"
    " JOIN events AS e ON e.position = c.position WHERE c.stream = ?"
)
_RANGE: Final = "SELECT stream, version, position, exists_now, expires_at FROM current WHERE stream >= ? AND stream < ?"
_RESULT: Final = (
    "SELECT 1 FROM events WHERE topic = 'ResultAppended' AND stream = ?1 AND json_extract(payload, '$.checksum') = ?2"
    f" AND version > {sql.LAST_CLEAR.format('?1')}"
)
_REQUEST: Final = "SELECT position, at, fingerprint, result FROM requests WHERE principal = ? AND request_id = ?"
_APPEND: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT: Final = (
    "INSERT INTO current VALUES (?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET version = excluded.version,"
    " position = excluded.position, exists_now = excluded.exists_now, expires_at = excluded.expires_at"
)
_REMEMBER: Final = "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)"
_REFUSE: Final = "INSERT INTO refusals (position, at, code, stream, meta) VALUES (?, ?, ?, ?, ?)"
_PUT_CLAIM: Final = (
    "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (resource, version)"
    " DO UPDATE SET agent = excluded.agent, session = excluded.session, deadline = excluded.deadline,"
    " waits_until = excluded.waits_until, is_offered = excluded.is_offered, note = excluded.note"
)
_END_CLAIM: Final = "DELETE FROM claims WHERE resource = ? AND version = ?"
_PUT_HOLDER: Final = "INSERT OR REPLACE INTO holders VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SqliteStore:
    """One writing thread at a time, any number of reading ones."""

    is_local = True

    def __init__(self, path: str | None) -> None:
        """Open or create the file; None: memory. `path`: one without links that `require_usable` accepts. Raises
        StoreError, UnavailableError."""
        self._path = path or ":memory:"
        self._lock: WriteLock | None = None
        self._head: Head | None = None
        self._marked_at = 0
        """When this process last recorded that it commits."""
        self._idle: deque[sqlite3.Connection] = deque()
        self._memory = threading.RLock()
        """Memory has one connection, which readers must not use within a transaction of the writer."""
        self._locked = False
        self._is_suspect = False
        """Whether the writing connection failed: it may have cached a wrong read."""
        self._damaged_until = 0.0
        self._next_check = 0.0
        self.identity: tuple[int, int] | None = None
        try:
            if path is None:
                self._writer = schema.connect(":memory:")
                schema.create_tables(self._writer)
            else:
                self._lock, self._writer = self._open(path)
                self.identity = _identify(path)
        except sqlite3.Error as error:
            raise self._refuse(error) from error
        except OSError as error:
            refusal = StoreError if error.errno in CANNOT_WRITE else UnavailableError
            raise refusal(explain(self._path, error.errno)) from error
        self._cursor = self._writer.cursor()
        _open_stores.add(self)

    @staticmethod
    def _open(path: str) -> tuple[WriteLock, sqlite3.Connection]:
        if _identify(path) in _inherited:
            raise StoreError(f"{path} was open when this process was forked; spawn workers, or fork first")
        is_first = not os.path.lexists(f"{path}.lock")
        lock = WriteLock(f"{path}.lock")
        try:
            lock.acquire(OPEN_TIMEOUT)
            try:
                return lock, schema.open_file(path)
            finally:
                lock.release()
        except BaseException as error:
            lock.close()
            if is_first and (isinstance(error, StoreError) or schema.is_damage(error)):
                os.unlink(f"{path}.lock")  # leave nothing next to a file that is not a store
            raise

    def close_lock_of_parent(self) -> None:
        """In a forked child."""
        if self._lock is not None:
            self._lock.close_descriptor()

    # --- writes

    def begin(self, reads: Sequence[tuple[Reads, Caller]]) -> Batch:
        self._locked = True  # an interrupt may come at any point: abort() releases what is not held, too
        try:
            if self._lock is None:
                self._memory.acquire()
            else:
                if not self._lock.acquire(LOCK_SECONDS):
                    self._head = None
                    if _identify(self._path) != self.identity:
                        raise self._explain_replacement()
                if self._is_suspect:
                    self._replace_writer()
            self._cursor.execute("BEGIN IMMEDIATE")
            steady = time.monotonic_ns() // 1000
            if self._head is None:
                self._head = self._read_head(steady)
            records: dict[str, Record] = {}
            board: Any = None
            for read, _ in reads:
                if read.streams or read.values or read.prefixes:
                    self._load(read, records)
                if board is None and (read.claims or read.resources):
                    board = self._load_board(reads, steady)
            batch = Batch(self._head, time.time_ns() // 1000, steady, State(records, board))
            for _, caller in reads:
                if caller.request_id is not None:
                    key = find_key(caller)
                    for row in self._cursor.execute(_REQUEST, key):
                        batch.requests[key] = Request(*row)
            return batch
        except sqlite3.Error as error:
            self.abort()
            raise self._refuse(error, is_writer=True) from error
        except BaseException:
            self.abort()
            raise

    def execute(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        try:
            return self._cursor.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._refuse(error, is_writer=True) from error

    def commit(self, batch: Batch) -> None:
        execute, many = self._cursor.execute, self._cursor.executemany
        sure, marked_at = True, self._marked_at
        try:
            if len(batch.rows) == 1:
                row = batch.rows[0]
                execute(_APPEND, row)
                if not row[1].startswith(WITHOUT_RECORD):
                    execute(_PUT, batch.state.records[row[1]][:5])
            elif batch.rows:
                self._append(batch)
            board = batch.state.board
            if board is not None:
                self._write_board(board)
            if (batch.rows or board is not None) and batch.steady - self._marked_at > MARK_AFTER:
                execute(sql.MARK, {"now": batch.steady})
                marked_at = batch.steady
            if batch.remembered:
                many(_REMEMBER, [(*key, *batch.requests[key]) for key in batch.remembered])
            if batch.refusals:
                many(_REFUSE, batch.refusals)
            if batch.rows and batch.rows[-1][0] % FORGET_EVERY < len(batch.rows):
                times = {"oldest": batch.at - REMEMBER_FOR, "silent_since": batch.steady - REMEMBER_FOR}
                for statement in sql.FORGET:
                    execute(statement, {**times, "now": batch.steady})
            sure = False
            execute("COMMIT")
        except sqlite3.IntegrityError as error:  # somebody wrote without the write lock: an old head
            self.abort()
            raise LostError("others write without the lock; try again") from error
        except sqlite3.Error as error:
            self.abort()
            in_doubt = not (sure or _failed_before_sync(error))
            raise self._refuse(error, in_doubt, is_writer=True) from error
        self._marked_at = marked_at
        if batch.rows:
            last = batch.rows[-1]
            self._head = Head(last[0], last[-1], last[4])
        (self._memory if self._lock is None else self._lock).release()
        self._locked = False
        if self._lock is not None and self._lock.has_waiters:
            send_datagrams(self._lock.ports())

    def append(self, batch: Batch) -> None:
        try:
            self._append(batch)
        except sqlite3.Error as error:
            self.abort()
            raise self._refuse(error, is_writer=True) from error

    def _append(self, batch: Batch) -> None:
        self._cursor.executemany(_APPEND, batch.rows)
        streams = {row[1] for row in batch.rows if not row[1].startswith(WITHOUT_RECORD)}
        self._cursor.executemany(_PUT, [batch.state.records[stream][:5] for stream in streams])

    def abort(self) -> None:
        """Undo and release whatever this thread has begun, after an error or an interrupt."""
        self._head = None  # it may have committed
        if self._locked:
            try:
                if self._writer.in_transaction:
                    self._cursor.execute("ROLLBACK")
            except sqlite3.Error:
                self._is_suspect = True
            finally:
                with suppress(RuntimeError):  # this thread does not have it
                    (self._memory if self._lock is None else self._lock).release()
                self._locked = False

    def _replace_writer(self) -> None:
        self._writer.close()
        self._writer = schema.connect(self._path)
        self._cursor = self._writer.cursor()
        self._is_suspect = False

    def _load(self, read: Reads, records: dict[str, Record]) -> None:
        execute = self._cursor.execute
        for stream in read.streams:
            if stream not in records:
                row = execute(_RECORD, (stream,)).fetchone()
                records[stream] = Record(stream) if row is None else decode_record(stream, *row)
        for stream in read.values:
            row = execute(_VALUE, (stream,)).fetchone()
            records[stream] = Record(stream) if row is None else decode_record(stream, *row)
        for prefix in read.prefixes:
            for row in execute(_RANGE, (prefix, end_of_range(prefix))):
                records.setdefault(row[0], decode_record(*row))
        for name in read.results:
            row = execute(_RESULT, name.rsplit(" ", 1)).fetchone()
            records.setdefault(name, Record(name, exists=row is not None))

    def _load_board(self, reads: Sequence[tuple[Reads, Caller]], now: int) -> Board:
        board, execute = Board(now, is_alive), self._cursor.execute
        is_whole = False
        for read, caller in reads if len(reads) == 1 else boards.merge(reads):
            queries, parameters = boards.select(read, caller, now)
            for query in queries:
                boards.add_rows(board, execute(query, parameters))
            is_whole |= read.claims == "all"
        board.is_quiet = board.is_quiet and not is_whole
        if not board.is_quiet:
            boards.read_silence(board, execute(sql.LAST_COMMIT))
            if not is_whole and boards.needs_whole(board, reads):
                boards.add_rows(board, execute(sql.BOARD))
        if (streams := boards.list_streams(board, reads)) is not None:
            boards.add_streams(board, execute(sql.STREAMS, {"streams": streams}))
        return board

    def _write_board(self, board: Board) -> None:
        if board.changed_claims:
            rows, ended = boards.list_changed_claims(board)
            for key in ended:
                self._cursor.execute(_END_CLAIM, key)
            for row in rows:
                self._cursor.execute(_PUT_CLAIM, row)
        if board.changed_holders:
            self._cursor.executemany(_PUT_HOLDER, boards.list_changed_holders(board))

    def _read_head(self, now: int) -> Head:
        if self._lock is not None:
            schema.require_store(self._writer, self._path)
            schema.note_boot(self._cursor, self._path, now)
        row = self._cursor.execute(HEAD).fetchone()
        head = Head(0, FIRST_DIGEST, 0) if row is None else Head(*row)
        if self._lock is not None:
            self._lock.note_position(head.position)
        return head

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
            raise self._refuse(error) from error
        self._idle.append(connection)
        return rows

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        if self._lock is None:
            with self._memory:
                yield Snapshot(self._writer.execute, self.now(), self.steady())
            return
        connection = self._take_reader()
        try:
            connection.execute("BEGIN")
            yield Snapshot(connection.execute, self.now(), self.steady())
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            connection.close()
            raise self._refuse(error) from error
        except BaseException:
            connection.execute("ROLLBACK")
            self._idle.append(connection)
            raise
        self._idle.append(connection)

    def backup(self, path: str) -> Head:
        self.read(sql.COPY, {"path": path})
        return schema.read_copy(path)

    def now(self) -> int:
        now = time.time_ns() // 1000
        head = self._head
        return now if head is None or head.at < now else head.at  # as writes count it, if the clock was set back

    def steady(self) -> int:
        return time.monotonic_ns() // 1000

    def _take_reader(self) -> sqlite3.Connection:
        if time.monotonic() > self._next_check or not self._idle:
            if _identify(self._path) != self.identity:
                raise self._explain_replacement()
            self._next_check = time.monotonic() + CHECK_FILE_EVERY
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            return schema.connect(self._path)
        except sqlite3.Error as error:
            raise self._refuse(error) from error

    def _explain_replacement(self) -> UnavailableError:
        """The file was replaced, for example by a backup copied back."""
        if self._lock is not None:
            self._lock.expect_others()
        return UnavailableError(f"{self._path} was deleted or replaced; restart this process to open the new file")

    def _refuse(self, error: sqlite3.Error, in_doubt: bool = False, is_writer: bool = False) -> HoldlogError:
        name, code = getattr(error, "sqlite_errorname", ""), getattr(error, "sqlite_errorcode", 0) & 0xFF
        self._is_suspect |= is_writer and code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)
        if in_doubt or not schema.is_damage(error):  # damage does not tell whether a commit happened
            text = f"the store reported an error: {error}{f' ({name})' if name else ''}"
            if code == sqlite3.SQLITE_IOERR and is_full(self._path):
                text = f"the disk of {self._path} is full; free some space, and try again"
            elif code == sqlite3.SQLITE_FULL:  # perhaps that of a backup
                text = "the disk is full; free some space, and try again"
            return UnavailableError(text, in_doubt=in_doubt)
        if time.monotonic() > self._damaged_until and not schema.is_damaged(self._path):
            return UnavailableError(f"the store could not be read ({error}); try again")
        self._damaged_until = time.monotonic() + DAMAGE_REMEMBERED
        return StoreError(
            f"{self._path} is damaged or not a SQLite file ({error}); keep the file and its -wal before you"
            " restore a backup, which lacks all newer events"
        )

    # --- care

    def erase(self) -> None:
        """Truncate the write-ahead log. Rows are overwritten when they are deleted (`secure_delete`)."""
        if self._lock is None:
            return
        try:
            if not self._lock.acquire(LOCK_SECONDS):
                self._head = None
            ((is_blocked, *_),) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise self._refuse(error, in_doubt=True, is_writer=True) from error
        finally:
            self._lock.release()
        if is_blocked:
            text = f"a reader keeps {self._path}-wal, which may have redacted texts; redact again"
            raise UnavailableError(text, in_doubt=True)

    def list_damage(self) -> list[str]:
        damage = [text for (text,) in self.read("PRAGMA integrity_check(10)", {}) if text != "ok"]
        if self._lock is not None and self._lock.read_position() > (last := (self.read(HEAD, {}) or [(0,)])[0][0]):
            damage.append(
                f"the log ends at position {last}, but had {self._lock.read_position()}: a backup was copied back, or"
                " its end was cut; restore the newer file, or remove the .lock file while no process uses the store"
            )
        return damage

    # --- notifications

    def listen(self, wake: Callable[[], None]) -> port.Listener:
        if self._lock is None:
            return ExitStack()  # no other process has this store: nothing to close
        try:
            return Listener(self._lock, self._connect(), wake)
        except OSError as error:
            raise UnavailableError(f"this process cannot wait for others ({error.strerror}); try again") from error

    def close(self) -> None:
        """Close all connections under the write lock: closing the last one moves the write-ahead log into the file."""
        _open_stores.discard(self)
        if self._lock is None:
            self._writer.close()
            return
        with suppress(UnavailableError):  # its holder has the file open, too: closing ours moves nothing
            self._lock.acquire(1.0)
            if self._head is not None:
                self._lock.note_position(self._head.position)
        try:
            self._writer.close()
            while self._idle:
                self._idle.pop().close()
        except sqlite3.Error as error:
            raise self._refuse(error) from error
        finally:
            self._lock.release()
            self._lock.close()


_open_stores: set["SqliteStore"] = set()
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
        store.close_lock_of_parent()


os.register_at_fork(after_in_child=_keep_inherited)


def _identify(path: str) -> tuple[int, int] | None:
    """Inode and device of a file; None if it is missing."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return None


def _failed_before_sync(error: sqlite3.Error) -> bool:
    """Whether a failed COMMIT cannot reappear: if only the sync failed, it may survive a crash."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE) or code & 0xFF == sqlite3.SQLITE_BUSY
