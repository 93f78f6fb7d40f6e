"""The shadow tables of a rebuild in a file: renamed at the end to replace those of the views."""

import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from holdlog.adapters.stores.event_log.rebuild import TURN_TIMEOUT, RowsByView, fold_all, shadow_name, taken_over
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder
from holdlog.adapters.stores.sqlite.rows import SqliteReader, SqliteTransaction
from holdlog.adapters.stores.sqlite.schema import (
    CREATE_INDEXES,
    MAJOR,
    MINOR,
    MINORS_PER_MAJOR,
    create_view,
    drop_statement,
    put_statement,
    select_row,
    tables_there,
    version_of,
)
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.refusals import StoreError
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Row, Table


class SqliteTables:
    """The log and the shadow tables, within one transaction. `unit`: in a transaction."""

    def __init__(self, unit: SqliteReader | SqliteTransaction) -> None:
        self._unit = unit
        self.connection = unit.connection

    def by_stream(self, upto: int, after: tuple[str, int], limit: int) -> Iterator[Row]:
        return self._unit.recorder.by_stream(self._unit, after, upto, limit)

    def by_position(self, after: int, limit: int) -> Iterator[Row]:
        return self._unit.recorder.by_position(self._unit, after, limit)

    def load(self, view: Table, keys: Sequence[Row]) -> Iterable[Row]:
        select = _SELECT_SHADOW[view.name]
        found = (self.connection.execute(select, key).fetchone() for key in keys)
        return (row for row in found if row is not None)

    def put(self, rows: RowsByView) -> None:
        for view, of_view in rows.items():
            self.connection.executemany(_DROP_SHADOW[view], [key for key, row in of_view.items() if row is None])
            self.connection.executemany(_PUT_SHADOW[view], [row for row in of_view.values() if row is not None])

    def create(self) -> None:
        self.drop()
        for view in VIEWS:
            self.connection.execute(create_view(view, shadow_name(view.name)))

    def swap(self) -> None:
        for view in VIEWS:
            self.connection.execute(f'DROP TABLE IF EXISTS "{view.name}"')
            self.connection.execute(f'ALTER TABLE "{shadow_name(view.name)}" RENAME TO "{view.name}"')
        for statement in CREATE_INDEXES:
            self.connection.execute(statement)
        self.connection.execute("DELETE FROM meta WHERE name = ?", (_META,))

    def drop(self) -> None:
        for view in VIEWS:
            self.connection.execute(f'DROP TABLE IF EXISTS "{shadow_name(view.name)}"')
        self.connection.execute("DELETE FROM meta WHERE name = ?", (_META,))


class SqliteShadowTables:
    """Shadow tables in a file. A snapshot keeps reading what was committed at its first read, even across a swap:
    SQLite keeps its pages."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._ours = secrets.token_hex(8)

    def begin(self) -> int:
        with self._store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
            transaction.wrote = True
            _require_known_schema(transaction.connection)
            SqliteTables(transaction).create()
            transaction.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_META, self._ours))
            return transaction.position()

    @contextmanager
    def read(self) -> Iterator[SqliteTables]:
        with self._store.snapshot() as reader:
            self._require_ours(reader.connection)
            yield SqliteTables(reader)

    @contextmanager
    def turn(self) -> Iterator[SqliteTables]:
        with self._store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
            _require_known_schema(transaction.connection)
            self._require_ours(transaction.connection)
            transaction.wrote = True
            yield SqliteTables(transaction)

    def filled(self) -> None:
        """Do nothing: whole tables are swapped."""

    @contextmanager
    def swap(self) -> Iterator[SqliteTables]:
        with self.turn() as tables:
            yield tables
            tables.swap()

    def drop(self) -> None:
        with self.turn() as tables:
            tables.drop()

    def rows(self) -> dict[str, int]:
        with self._store.snapshot() as reader:
            count = reader.connection.execute
            return {view.name: count(f'SELECT COUNT(*) FROM "{view.name}"').fetchone()[0] for view in VIEWS}

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        # A row, not a lock: it is read together with the tables that it describes, and a killed rebuild blocks nothing.
        found = connection.execute("SELECT value FROM meta WHERE name = ?", (_META,)).fetchone()
        if found is None or found[0] != self._ours:
            raise taken_over()


def rebuild_within(connection: sqlite3.Connection) -> None:
    """Rebuild like `rebuild`, but in the connection's current transaction: no other process can write, and one commit
    makes everything durable.

    Raises StoreError for a log that cannot be folded.
    """
    tables = SqliteTables(SqliteReader(connection, SqliteEventRecorder(), 0))
    tables.create()
    fold_all(tables)
    tables.swap()


def left_over(connection: sqlite3.Connection) -> bool:
    """Whether a rebuild is running, or was killed."""
    return not tables_there(connection).isdisjoint(shadow_name(view.name) for view in VIEWS)


def _require_known_schema(connection: sqlite3.Connection) -> None:
    """Reject a newer minor version, because a rebuild by this version would lose its views and columns."""
    version = version_of(connection)
    if version > MAJOR * MINORS_PER_MAJOR + MINOR:
        raise StoreError(
            f"the store has schema {version // MINORS_PER_MAJOR}.{version % MINORS_PER_MAJOR}, but this holdlog"
            f" supports {MAJOR}.{MINOR}; rebuild with the newest holdlog that uses this store"
        )


_META: Final = "rebuild"
_PUT_SHADOW: Final = {view.name: put_statement(view, shadow_name(view.name)) for view in VIEWS}
_DROP_SHADOW: Final = {view.name: drop_statement(view, shadow_name(view.name)) for view in VIEWS}
_SELECT_SHADOW: Final = {view.name: select_row(view, shadow_name(view.name)) for view in VIEWS}
