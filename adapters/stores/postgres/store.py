"""The store in a schema of PostgreSQL.

A transaction is two messages of plain SQL with prepared statements, because round trips determine its duration
(docs/decisions/postgres.md). The lock is a separate statement: a statement reads what was committed before it waited.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from holdlog.adapters.engine.port import MARK_AFTER, Batch, Head, Reader, Request, Snapshot, find_key
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import board as boards
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import FIRST_DIGEST, decode_record
from holdlog.adapters.stores.postgres.connection import (
    OPTIONS,
    Connection,
    configure,
    connect,
    is_lost,
    name_server,
    parse_url,
    quote,
    quote_all,
    refuse,
)
from holdlog.adapters.stores.postgres.listener import Listener
from holdlog.adapters.stores.postgres.schema import PREPARE, require_schema, require_store, translate
from holdlog.adapters.stores.sql import FORGET_EVERY, REMEMBER_FOR
from holdlog.domain.claims.board import Board
from holdlog.domain.moment import Caller
from holdlog.domain.names import WITHOUT_RECORD, end_of_range
from holdlog.domain.refusals import LostError, StoreError
from holdlog.domain.state import Reads, Record, State

READERS: Final = 4
RESOLVE_SECONDS: Final = 15.0
"""How long to find out whether a commit happened: the database may keep the lock of a lost connection for 10 s."""
_LOCK: Final = "BEGIN; LOCK TABLE meta IN EXCLUSIVE MODE"
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_CLOCKS: Final = f"SELECT {_NOW}, (SELECT at FROM events ORDER BY position DESC LIMIT 1)"
"""The database's clock, and when the last event was."""
CLOCK_EVERY: Final = 1_000_000
"""Microseconds after which a read reads the clock, too: it may have been set, or another server has taken over."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Advances while the machine is suspended; on macOS CLOCK_MONOTONIC does, unlike `time.monotonic`."""


class PostgresStore:
    """A connection for one writing thread at a time, and a pool of connections for reads."""

    is_local = False

    def __init__(self, url: str, creates: bool = True) -> None:
        """Open the store, or create it in its schema. Raises StoreError, UnavailableError."""
        self._target = parse_url(url)
        self._writer: Connection | None = None
        self._marked_at = 0
        """When this process last recorded that it commits."""
        self._offset = 0
        """Microseconds: the database's clock minus this machine's `_CLOCK`, measured at `_read_at` by the latter."""
        self._read_at = self._last_at = 0
        self._pool = ConnectionPool(
            name_server(self._target),
            connection_class=Connection,
            kwargs=OPTIONS,
            configure=self._configure,
            min_size=0,
            max_size=READERS,
            timeout=5.0,
            reconnect_timeout=5.0,
            open=False,
        )
        try:
            with connect(self._target) as connection:
                require_store(connection, self._target.schema, creates)
                self._read_clock(connection)
        except psycopg.Error as error:
            raise refuse(error) from error
        self._pool.open()

    # --- writes

    def begin(self, reads: Sequence[tuple[Reads, Caller]]) -> Batch:
        for attempt in (1, 2):
            try:
                return self._begin(reads)
            except psycopg.Error as error:
                self.abort()
                if attempt == 2 or not is_lost(error):
                    raise refuse(error) from error
            except BaseException:
                self.abort()
                raise
        raise AssertionError

    def _begin(self, reads: Sequence[tuple[Reads, Caller]]) -> Batch:
        prefixes = [prefix for read, _ in reads for prefix in read.prefixes]
        requests = [find_key(caller) for _, caller in reads if caller.request_id is not None]
        arrays = (
            {stream for read, _ in reads for stream in read.streams},
            {stream for read, _ in reads for stream in read.values},
            prefixes,
            map(end_of_range, prefixes),
            (principal for principal, _ in requests),
            (request_id for _, request_id in requests),
        )
        texts = ", ".join(quote_all(array, "text") for array in arrays)
        sessions = boards.merge(reads)
        names = {name for read, _ in reads for name in read.results}
        columns = zip(*(name.rsplit(" ", 1) for name in names), strict=True)
        results = f"; EXECUTE results({', '.join(quote_all(column, 'text') for column in columns)})" if names else ""
        text = f"{_LOCK}; EXECUTE load({texts}){results}{_load_claims(sessions)}"
        (row,), *board_rows = _fetch_all(self._connection().execute(text))
        clock, position, digest, at, schema, records, values, ranges, remembered = row
        require_schema(schema)
        self._set_clock(clock, at)
        head = Head(position, digest, at) if position is not None else Head(0, FIRST_DIGEST, 0)
        loaded = _records(reads, records or (), values or (), ranges or ())
        if names:
            present = {name for (name,) in board_rows.pop(0)}
            loaded |= {name: Record(name, exists=name in present) for name in names}
        board: Any = self._make_board(clock, sessions, board_rows) if sessions else None
        batch = Batch(head, clock, clock, State(loaded, board))
        for principal, request_id, *rest in remembered or ():
            batch.requests[principal, request_id] = Request(*rest)
        return batch

    def _make_board(self, now: int, reads: Sequence[tuple[Reads, Caller]], results: Sequence[Any]) -> Board:
        """The board of the rows that the first message has read. Others read the rest, if a command needs it, and the
        streams that waiters want besides."""
        board = Board(now, is_alive)
        *rows, silence, streams = results
        for result in rows:
            boards.add_rows(board, result)
        boards.read_silence(board, silence)
        boards.add_streams(board, streams)
        is_whole = any(read.claims == "all" for read, _ in reads)
        board.is_quiet = board.is_quiet and not is_whole
        assert self._writer is not None  # and no new one, which has no lock
        if not (is_whole or board.is_quiet) and boards.needs_whole(board, reads):
            boards.add_rows(board, self._writer.execute("EXECUTE board"))
        if missing := boards.list_unread(board):
            boards.add_streams(board, self._writer.execute(f"EXECUTE streams({quote(json.dumps(missing))})"))
        return board

    def execute(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        assert self._writer is not None
        try:
            cursor = self._writer.execute(translate(statement), parameters)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise refuse(error) from error

    def commit(self, batch: Batch) -> None:
        text = ""
        if batch.rows:
            text = f"{_append(batch)}NOTIFY {_name_channel(self._target.schema)}; "
        if batch.state.board is not None:
            text += _write_board(batch.state.board)
        if (text or batch.state.board is not None) and abs(batch.steady - self._marked_at) > MARK_AFTER:
            text += f"EXECUTE mark({batch.steady}); "
        if batch.remembered:
            requests = [(*key, *batch.requests[key]) for key in batch.remembered]
            text += f"EXECUTE remember({_quote_columns(requests)}); "
        if batch.refusals:
            text += f"EXECUTE refuse({_quote_columns(batch.refusals)}); "
        if batch.rows and batch.rows[-1][0] % FORGET_EVERY < len(batch.rows):
            forget = "".join(f"{statement}; " for statement in sql.FORGET)
            forget = forget.replace(":oldest", str(batch.at - REMEMBER_FOR)).replace(":now", str(batch.steady))
            text += forget.replace(":silent_since", str(batch.steady - REMEMBER_FOR))
        assert self._writer is not None  # and no new one: it would commit outside of the transaction
        try:
            self._writer.execute(f"{text}COMMIT")
        except psycopg.Error as error:
            self.abort()
            if not is_lost(error):
                raise refuse(error) from error
            if not batch.rows or not self._is_committed(batch):
                raise LostError("the connection to the database was lost") from error
        if "EXECUTE mark" in text:
            self._marked_at = batch.steady

    def append(self, batch: Batch) -> None:
        assert self._writer is not None
        try:
            self._writer.execute(_append(batch))
        except psycopg.Error as error:
            self.abort()
            raise refuse(error) from error

    def abort(self) -> None:
        if self._writer is not None:
            try:
                self._writer.execute("ROLLBACK")
            except psycopg.Error:
                self._drop_writer()

    def _is_committed(self, batch: Batch) -> bool:
        """Whether a commit happened whose response was lost. Under the write lock this is certain, as its transaction
        has ended; salts make digests unique. Raises UnavailableError, in doubt."""
        position, digest = batch.rows[-1][0], batch.rows[-1][-1]
        deadline = time.monotonic() + RESOLVE_SECONDS
        written = "pg_logical_emit_message(true, 'holdlog', '')"  # so that COMMIT waits for synchronous standbys
        query = f"{_LOCK}; SELECT digest, {written} FROM events WHERE position = {position}; COMMIT"
        while True:
            try:
                cursor = self._connection().execute(query)
                cursor.nextset()
                cursor.nextset()
                row = cursor.fetchone()
                return row is not None and row[0] == digest
            except psycopg.Error as error:
                self.abort()
                if time.monotonic() > deadline:
                    raise refuse(error, in_doubt=True) from error
                time.sleep(0.1)

    def _connection(self) -> Connection:
        if self._writer is None or self._writer.closed:
            self._writer = connect(self._target, PREPARE)
        return self._writer

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # --- reads

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        try:
            connection, cursor = self._execute(translate(query), parameters)
            try:
                rows = cursor.fetchall()
                if _count() - self._read_at > CLOCK_EVERY:  # a process that only reads learns it from no commit
                    self._read_clock(connection)
                return rows
            finally:
                self._pool.putconn(connection)
        except psycopg.Error as error:
            raise refuse(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        try:
            connection, cursor = self._execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_CLOCKS}")
            try:
                cursor.nextset()
                for clock, at in cursor:
                    self._set_clock(clock, at)
                    now = max(clock, at or 0)
                    yield Snapshot(lambda query, values: connection.execute(translate(query), values), now, clock)
            finally:
                try:
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
                finally:
                    self._pool.putconn(connection)
        except psycopg.Error as error:
            raise refuse(error) from error

    def backup(self, path: str) -> Head:
        raise StoreError("holdlog does not copy a PostgreSQL database; use pg_dump, or `holdlog export`")

    def _execute(self, query: str, parameters: dict[str, Any] | None = None) -> tuple[Connection, psycopg.Cursor[Any]]:
        """Execute a query on a connection of the pool, which the caller must return. If one is lost, so may be all:
        replaces them and tries again. Raises psycopg.Error."""
        for attempt in (1, 2):
            connection = self._pool.getconn()
            try:
                return connection, connection.execute(query, parameters)
            except BaseException as error:
                self._pool.putconn(connection)
                if attempt == 2 or not isinstance(error, psycopg.Error) or not is_lost(error):
                    raise
                self._pool.drain()
        raise AssertionError

    def _configure(self, connection: Connection) -> None:
        configure(connection, self._target)
        self._read_clock(connection)

    def now(self) -> int:
        """Never before the last event that this process has seen, as writes count it."""
        return max(self.steady(), self._last_at)

    def steady(self) -> int:
        """The database's clock, as extrapolated since this process has last read it."""
        return _count() + self._offset

    def _read_clock(self, connection: Connection) -> None:
        for clock, at in connection.execute(_CLOCKS):
            self._set_clock(clock, at)

    def _set_clock(self, now: int, last_at: int | None) -> None:
        self._read_at = _count()
        self._offset, self._last_at = now - self._read_at, max(self._last_at, last_at or 0)

    def erase(self) -> None:
        """Dead rows are the database's (docs/limits.md)."""

    def list_damage(self) -> list[str]:
        return []

    # --- notifications

    def listen(self, wake: Callable[..., None]) -> Listener:
        return Listener(self._target, _name_channel(self._target.schema), wake)

    def close(self) -> None:
        self._drop_writer()
        self._pool.close()


def _count() -> int:
    """Microseconds of this machine's `_CLOCK`."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def _fetch_all(cursor: psycopg.Cursor[Any]) -> list[list[Any]]:
    """The rows of each query of a message."""
    results = []
    while True:
        if cursor.description is not None:
            results.append(cursor.fetchall())
        if not cursor.nextset():
            return results


def _records(reads: Sequence[tuple[Reads, Caller]], records: Any, values: Any, ranges: Any) -> dict[str, Record]:
    loaded = {stream: Record(stream) for read, _ in reads for stream in (*read.streams, *read.values)}
    for row in (*ranges, *records, *values):  # a command may need the value of what another only reads
        loaded[row[0]] = decode_record(*row)
    return loaded


def _load_claims(reads: Sequence[tuple[Reads, Caller]]) -> str:
    """The statements that read what commands need of the board, if any does."""
    texts = []
    for read, caller in reads:
        queries, parameters = boards.select(read, caller, 0)
        session = f"{quote(parameters['session'])}, {quote(parameters['principal'])}, {_NOW}"
        agent = ", ".join(quote(parameters[name]) for name in ("names", "agent", "host"))
        executions = {
            sql.BOARD: "; EXECUTE board",
            sql.CLAIMS: f"; EXECUTE claims({session}, {agent})",
            sql.SUBTREES: f"; EXECUTE subtrees({quote(parameters['subtrees'])})",
            sql.SESSION: f"; EXECUTE session({session})",
            sql.BEATS: f"; EXECUTE beats({session})",
        }
        texts += [executions[query] for query in queries]
    if texts:
        resources = tuple(resource for read, _ in reads for resource in read.resources)
        streams = boards.name_overlapping(resources)[2]
        texts.append(f"; EXECUTE silence; EXECUTE streams({quote(streams)})")
    return "".join(texts)


def _append(batch: Batch) -> str:
    """The statements that write the events and the changed records."""
    rows = [(*row[:7], *(cell if cell is None else cell.hex() for cell in row[7:])) for row in batch.rows]
    streams = {row[1] for row in rows if not row[1].startswith(WITHOUT_RECORD)}
    changed = [batch.state.records[stream] for stream in streams]
    records = [(*record[:3], int(record.exists), record.expires_at or "") for record in changed]
    put = f"EXECUTE put({_quote_columns(records)}); " if records else ""
    return f"EXECUTE append({_quote_columns(rows)}); {put}"


def _write_board(board: Board) -> str:
    """The statements that write what changed on the board."""
    rows, ended = boards.list_changed_claims(board)
    holders = boards.list_changed_holders(board)
    parts = (("end_claims", ended), ("put_claims", rows), ("put_holders", holders))
    text = "".join(f"EXECUTE {name}({_quote_columns(changed)}); " for name, changed in parts if changed)
    return text or ("SELECT; " if board.silence_end > board.now else "")


def _quote_columns(rows: Sequence[Any]) -> str:
    """The columns of rows as arrays of texts."""
    columns = zip(*rows, strict=True)
    return ", ".join(f"ARRAY[{','.join(map(_quote_cell, column))}]::text[]" for column in columns)


def _quote_cell(cell: Any) -> str:
    return "NULL" if cell is None else quote(str(cell))


def _name_channel(schema: str) -> str:
    return '"holdlog ' + schema.replace('"', '""') + '"'
