"""Copies from a PostgreSQL schema, and to one. A copy to a schema is one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql

from holdlog.adapters.stores.copying.source import Contents, CopySource
from holdlog.adapters.stores.copying.writing import OccupiedError
from holdlog.adapters.stores.event_log.sealing import schema_triggers
from holdlog.adapters.stores.postgres.connection import SELECT_NOW, Connection, connect
from holdlog.adapters.stores.postgres.faults import is_lost, refusal_of
from holdlog.adapters.stores.postgres.opening import create, lock_of, open_postgres, require_utf8, store_exists
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import PUT_META
from holdlog.adapters.stores.postgres.target import DatabaseTarget, database_target, name_of
from holdlog.adapters.stores.postgres.transaction import PostgresReader, PostgresTransaction
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.projections.projection import Row, Table

_FOR_LONG: Final = "SET LOCAL idle_in_transaction_session_timeout = 0"
"""No timeout, because a copy may have to wait for the other store for a long time."""
_COUNT_TABLES: Final = """SELECT COUNT(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')"""


class DatabaseCopyTarget:
    def __init__(self, url: str) -> None:
        self.name = name_of(url)
        self._url = url
        self._target: DatabaseTarget = database_target(url)
        self._unit: PostgresReader | None = None
        self._contents: Contents | None = None
        self._publishing = False

    @contextmanager
    def prepared(self) -> Iterator[None]:
        try:
            with closing(connect(self._target)) as connection:
                self._unit = PostgresReader(connection, PostgresEventRecorder(self._target), 0)
                require_utf8(connection)
                connection.execute("BEGIN")
                connection.execute(_FOR_LONG)
                self._require_free()
                with closing(Contents(self._unit, 0)) as self._contents:
                    yield
        except psycopg.Error as error:
            raise refusal_of(error, in_doubt=self._publishing and is_lost(error)) from error

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        columns = ", ".join(f'"{column}"' for column in table.columns)
        into = f"COPY {table.name} ({columns}) FROM STDIN"
        with _refused(table.name), self._open().cursor() as cursor, cursor.copy(into) as copying:
            for row in rows:
                copying.write_row(row)

    def put_events(self, rows: Sequence[Row]) -> None:
        assert self._unit is not None
        with _refused("the log"):
            self._unit.recorder.restore(rows, self._unit)

    def events_by_stream(self) -> Iterator[Row]:
        assert self._contents is not None
        return self._contents.events_by_stream()

    def steady(self) -> int:
        return _now(self._open())

    def publish(self, store_id: str, meta: Mapping[str, str]) -> None:
        connection = self._open()
        connection.execute("UPDATE meta SET value = %s WHERE name = 'store_id'", (store_id,))
        for row in meta.items():
            connection.execute(PUT_META, row)
        self._publishing = True
        connection.execute("COMMIT")
        self._publishing = False
        with suppress(psycopg.Error):  # otherwise query plans are poor until the database analyzes the tables itself
            connection.execute("ANALYZE")

    @contextmanager
    def as_source(self) -> Iterator[CopySource]:
        with open_source(self._url) as source:
            yield source

    def _require_free(self) -> None:
        connection = self._open()
        lock = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (lock_of(self._target.schema),))
        if not _first(lock):
            raise UnavailableError(
                f"another process is opening or creating a store at {self.name}; check that store first"
            )
        if _first(connection.execute(_COUNT_TABLES, (self._target.schema,))):
            raise OccupiedError(f"there are already tables at {self.name}; name another ?schema=")
        create(connection, self._target.schema, "")

    def _open(self) -> Connection:
        assert self._unit is not None
        return self._unit.connection


@contextmanager
def open_source(url: str) -> Iterator[CopySource]:
    """Open an existing store. Raises StoreError if there is none; never creates one, because the URL may be
    misspelled."""
    if not store_exists(url):
        raise StoreError(f"there is no store at {name_of(url)}")
    with closing(open_postgres(url)) as store:
        yield CopySource(name_of(url), store, _begin, _create_triggers)


def _begin(reader: PostgresReader) -> int:
    reader.connection.execute(_FOR_LONG)
    return _now(reader.connection)


def _create_triggers(transaction: PostgresTransaction, line: str) -> None:
    connection = transaction.connection
    body = "; ".join(schema_triggers(sql.Literal(line).as_string(connection)))
    # One DO block: after a separate DROP, psycopg would forget the prepared statements of this connection.
    connection.execute(sql.SQL("DO {}").format(sql.Literal(f"BEGIN {body}; END")))


@contextmanager
def _refused(table: str) -> Iterator[None]:
    try:
        yield
    except psycopg.DataError as error:
        kind = type(error).__name__  # its text may contain stored values
        raise StoreError(f"PostgreSQL cannot hold a row of {table} ({kind}); it allows no NUL in text") from None


def _now(connection: Connection) -> int:
    return _first(connection.execute(f"SELECT {SELECT_NOW}"))


def _first(cursor: "psycopg.Cursor[tuple[Any, ...]]") -> int:
    row = cursor.fetchone()
    assert row is not None
    found: int = row[0]
    return found
