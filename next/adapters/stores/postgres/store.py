"""The store in a schema of PostgreSQL.

A transaction is two messages of plain SQL with prepared statements, because round trips determine its duration
(docs/decisions/postgres.md). The lock is a separate statement: a statement reads what was committed before it waited.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from holdlog.adapters.engine.port import Batch, Head, Reader, Request, Snapshot
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
from holdlog.adapters.stores.postgres.schema import PREPARE, create_store, require_schema
from holdlog.adapters.stores.sql import FORGET_EVERY, FORGET_REQUESTS, REMEMBER_FOR
from holdlog.domain.names import end_of_range
from holdlog.domain.refusals import LostError
from holdlog.domain.state import Reads, Record, State

READERS: Final = 4
RESOLVE_SECONDS: Final = 15.0
"""How long to find out whether a commit happened: the database may keep the lock of a lost connection for 10 s."""
_LOCK: Final = "BEGIN; LOCK TABLE meta IN EXCLUSIVE MODE"
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Advances while the machine is suspended; on macOS CLOCK_MONOTONIC does, unlike `time.monotonic`."""


class PostgresStore:
    """A connection for one writing thread at a time, and a pool of connections for reads."""

    is_local = False

    def __init__(self, url: str) -> None:
        """Open the store, or create it in its schema. Raises StoreError, UnavailableError."""
        self._target = parse_url(url)
        self._writer: Connection | None = None
        self._offset = 0
        """Microseconds: the database's clock minus this machine's `_CLOCK`."""
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
                create_store(connection, self._target.schema)
                self._read_clock(connection)
        except psycopg.Error as error:
            raise refuse(error) from error
        self._pool.open()

    # --- writes

    def begin(self, reads: Sequence[Reads], requests: Sequence[tuple[str, str]]) -> Batch:
        prefixes = [prefix for read in reads for prefix in read.prefixes]
        arrays = (
            {stream for read in reads for stream in read.streams},
            {stream for read in reads for stream in read.values},
            prefixes,
            map(end_of_range, prefixes),
            (principal for principal, _ in requests),
            (request_id for _, request_id in requests),
        )
        texts = ", ".join(quote_all(array, "text") for array in arrays)
        try:
            row = self._lock_and_load(f"{_LOCK}; EXECUTE load({texts})")
            clock, position, digest, at, schema, records, values, ranges, remembered = row
            require_schema(schema)
            self._set_clock(clock)
            head = Head(position, digest, at) if position is not None else Head(0, FIRST_DIGEST, 0)
            batch = Batch(head, clock, State(_records(reads, records or (), values or (), ranges or ())))
            for principal, request_id, *rest in remembered or ():
                batch.requests[principal, request_id] = Request(*rest)
            return batch
        except BaseException:
            self.abort()
            raise

    def commit(self, batch: Batch) -> None:
        text = ""
        if batch.rows:
            text = f"{_append(batch)}; NOTIFY {_name_channel(self._target.schema)}; "
        if batch.remembered:
            requests = [(*key, *batch.requests[key]) for key in batch.remembered]
            text += f"EXECUTE remember({_quote_columns(requests)}); "
            if batch.rows and batch.rows[-1][0] % FORGET_EVERY < len(batch.rows):
                text += f"{FORGET_REQUESTS.replace(':oldest', str(batch.at - REMEMBER_FOR))}; "
        assert self._writer is not None  # and no new one: it would commit outside of the transaction
        try:
            self._writer.execute(f"{text}COMMIT")
        except psycopg.Error as error:
            self.abort()
            if not is_lost(error):
                raise refuse(error) from error
            if not batch.rows or not self._is_committed(batch):
                raise LostError("the connection to the database was lost") from error

    def abort(self) -> None:
        if self._writer is not None:
            try:
                self._writer.execute("ROLLBACK")
            except psycopg.Error:
                self._drop_writer()

    def _lock_and_load(self, text: str) -> Any:
        for attempt in (1, 2):
            try:
                cursor = self._connection().execute(text)
                while cursor.nextset():
                    pass
                return cursor.fetchone()
            except psycopg.Error as error:
                self.abort()
                if attempt == 2 or not is_lost(error):
                    raise refuse(error) from error
        return None

    def _is_committed(self, batch: Batch) -> bool:
        """Whether a commit happened whose response was lost. Under the write lock this is certain, as its transaction
        has ended; salts make digests unique. Raises UnavailableError, in doubt."""
        position, digest = batch.rows[-1][0], batch.rows[-1][-1]
        deadline = time.monotonic() + RESOLVE_SECONDS
        query = (
            f"BEGIN; LOCK TABLE meta IN EXCLUSIVE MODE; SELECT digest FROM events WHERE position = {position}; COMMIT"
        )
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
            connection, cursor = self._execute(_translate(query), parameters)
            try:
                return cursor.fetchall()
            finally:
                self._pool.putconn(connection)
        except psycopg.Error as error:
            raise refuse(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        try:
            connection, _ = self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield Snapshot(lambda query, values: connection.execute(_translate(query), values), self.now())
            finally:
                try:
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
                finally:
                    self._pool.putconn(connection)
        except psycopg.Error as error:
            raise refuse(error) from error

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
        self._read_clock(connection)  # a process that only reads learns it from no commit

    def now(self) -> int:
        """The database's clock, as extrapolated since the last transaction or new connection."""
        return time.clock_gettime_ns(_CLOCK) // 1000 + self._offset

    def _read_clock(self, connection: Connection) -> None:
        for (now,) in connection.execute(_NOW):
            self._set_clock(now)

    def _set_clock(self, now: int) -> None:
        self._offset = now - time.clock_gettime_ns(_CLOCK) // 1000

    # --- notifications

    def listen(self, wake: Callable[[], None]) -> Listener:
        return Listener(self._target, _name_channel(self._target.schema), wake)

    def close(self) -> None:
        self._drop_writer()
        self._pool.close()


def _records(reads: Sequence[Reads], records: Any, values: Any, ranges: Any) -> dict[str, Record]:
    found = {stream: Record(stream) for read in reads for stream in (*read.streams, *read.values)}
    for row in (*ranges, *records, *values):  # a command may need the value of what another only reads
        found[row[0]] = decode_record(*row)
    return found


def _append(batch: Batch) -> str:
    """The statements that write the events and the changed records."""
    rows = [(*row[:7], row[7].hex(), row[8].hex()) for row in batch.rows]
    changed = [batch.state.records[stream] for stream in {row[1] for row in rows}]
    records = [(*record[:3], int(record.exists), record.expires_at or "") for record in changed]
    return f"EXECUTE append({_quote_columns(rows)}); EXECUTE put({_quote_columns(records)})"


def _quote_columns(rows: Sequence[Any]) -> str:
    return ", ".join(f"ARRAY[{','.join(quote(str(cell)) for cell in column)}]" for column in zip(*rows, strict=True))


_translations: dict[str, str] = {}


def _translate(query: str) -> str:
    """Write the parameters as psycopg does."""
    if (text := _translations.get(query)) is None:
        text = _translations[query] = re.sub(r":(\w+)", r"%(\1)s", query)
    return text


def _name_channel(schema: str) -> str:
    return '"holdlog ' + schema.replace('"', '""') + '"'
