"""The store in a schema of PostgreSQL.

A transaction is two messages, of plain SQL with prepared statements: the network decides (docs/decisions/postgres.md).
The lock is a statement of its own: what a statement reads is from before it waits for a lock.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from holdlog.adapters.engine.port import Batch, Head, Reader, Request
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
"""The database may keep the lock of a lost connection for ten seconds."""
_LOCK: Final = "BEGIN; LOCK TABLE meta IN EXCLUSIVE MODE"
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgresStore:
    """One writing thread at a time; reads in a pool of connections."""

    is_local = False

    def __init__(self, url: str) -> None:
        """Open the store, or create it in its schema. Raises StoreError, UnavailableError."""
        self._target = parse_url(url)
        self._writer: Connection | None = None
        self._offset = 0
        """The database's clock minus this process's steady one."""
        self._pool = ConnectionPool(
            name_server(self._target),
            connection_class=Connection,
            kwargs=OPTIONS,
            configure=lambda connection: configure(connection, self._target),
            min_size=0,
            max_size=READERS,
            timeout=5.0,
            reconnect_timeout=5.0,
            open=False,
        )
        try:
            with connect(self._target) as connection:
                create_store(connection, self._target.schema)
                for (now,) in connection.execute(_NOW):
                    self._set_clock(now)
        except psycopg.Error as error:
            raise refuse(error) from error
        self._pool.open()

    # --- writes

    def begin(self, reads: Sequence[Reads], requests: Sequence[tuple[str, str]], timeout: float) -> Batch:
        prefixes = [it for read in reads for it in read.prefixes]
        arrays = (
            {it for read in reads for it in read.streams},
            {it for read in reads for it in read.values},
            prefixes,
            map(end_of_range, prefixes),
            (principal for principal, _ in requests),
            (request_id for _, request_id in requests),
        )
        look = ", ".join(quote_all(it, "text") for it in arrays)
        row = self._lock_and_look(f"{_LOCK}; EXECUTE look({look})")
        clock, position, digest, at, schema, records, values, ranges, remembered = row
        require_schema(schema)
        self._set_clock(clock)
        head = Head(position, digest, at) if position is not None else Head(0, FIRST_DIGEST, 0)
        batch = Batch(head, clock, State(_records(reads, records or (), values or (), ranges or ())))
        for principal, request_id, *rest in remembered or ():
            batch.requests[principal, request_id] = Request(*rest)
        return batch

    def commit(self, batch: Batch) -> None:
        text = ""
        if batch.rows:
            text = f"{_append(batch)}; NOTIFY {_channel(self._target.schema)}; "
        if batch.remembered:
            requests = [(*key, *batch.requests[key]) for key in batch.remembered]
            text += f"EXECUTE remember({_arrays(requests)}); "
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

    def _lock_and_look(self, text: str) -> Any:
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
        """Whether a commit whose answer was lost happened. Under the write lock this is certain: its transaction has
        ended. Salts make digests unique. Raises UnavailableError, in doubt."""
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
            self._writer = connect(self._target)
            self._writer.execute(PREPARE)
        return self._writer

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # --- reads

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        try:
            return self._read(query, parameters)
        except psycopg.Error as error:
            if not is_lost(error):
                raise refuse(error) from error
        try:
            return self._read(query, parameters)
        except psycopg.Error as error:
            raise refuse(error) from error

    def _read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        with self._pool.connection() as connection:
            return connection.execute(_translate(query), parameters).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        try:
            with self._pool.connection() as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    yield PostgresSnapshot(connection, self.now())
                finally:
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
        except psycopg.Error as error:
            raise refuse(error) from error

    def now(self) -> int:
        """The database's clock, as far as this process's steady clock agrees with it."""
        return time.monotonic_ns() // 1000 + self._offset

    def _set_clock(self, now: int) -> None:
        self._offset = now - time.monotonic_ns() // 1000

    # --- notifications

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[None]:
        with Listener(self._target, _channel(self._target.schema), wake).running():
            yield

    def close(self) -> None:
        self._drop_writer()
        self._pool.close()


class PostgresSnapshot:
    """One state of the store."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return self._connection.execute(_translate(query), parameters).fetchall()

    def now(self) -> int:
        return self._now

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        yield self


def _records(reads: Sequence[Reads], records: Any, values: Any, ranges: Any) -> dict[str, Record]:
    found = {stream: Record(stream) for read in reads for stream in (*read.streams, *read.values)}
    for row in (*ranges, *records, *values):  # a command may need the value of what another only reads
        found[row[0]] = decode_record(*row)
    return found


def _append(batch: Batch) -> str:
    rows = [(*it[:7], it[7].hex(), it[8].hex()) for it in batch.rows]
    changed = [batch.state.records[stream] for stream in {row[1] for row in rows}]
    records = [(it.stream, it.version, it.position, int(it.exists), it.expires_at or "") for it in changed]
    return f"EXECUTE append({_arrays(rows)}); EXECUTE put({_arrays(records)})"


def _arrays(rows: Sequence[Any]) -> str:
    return ", ".join(f"ARRAY[{','.join(quote(str(it)) for it in column)}]" for column in zip(*rows, strict=True))


_translations: dict[str, str] = {}


def _translate(query: str) -> str:
    """The statement with psycopg's parameters."""
    if (text := _translations.get(query)) is None:
        text = _translations[query] = re.sub(r":(\w+)", r"%(\1)s", query)
    return text


def _channel(schema: str) -> str:
    return '"holdlog ' + schema.replace('"', '""') + '"'
