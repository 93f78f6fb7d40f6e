"""The shadow tables of a rebuild in PostgreSQL: temporary tables; at the end, only differing rows change in the
views."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from holdlog.adapters.stores.event_log.rebuild import TURN_TIMEOUT, RowsByView, fold_all, shadow_name, taken_over
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.catalog import OF_VIEWS, indexes_there, views_to_replace
from holdlog.adapters.stores.postgres.connection import CONNECT_SECONDS, Connection
from holdlog.adapters.stores.postgres.faults import refusal_of
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import (
    MAJOR,
    MINOR,
    PUT_META,
    create_view,
    drop_rows,
    insert_into,
    key_of,
    put_into,
    select_rows,
)
from holdlog.adapters.stores.postgres.store import PostgresStore
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.domain.refusals import StoreError
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Row, Table

REBUILD: Final = "rebuild"
"""Row of `meta`: the rebuild that is running, or was killed."""
FETCHED: Final = 200
"""Events fetched in one batch, because a page ends when its values are too large."""


class PostgresTables:
    """The log and the shadow tables, within one transaction. `connection`: in a transaction of the session that owns
    the tables."""

    def __init__(self, connection: Connection, recorder: PostgresEventRecorder, filled: bool) -> None:
        self._connection = connection
        self._recorder = recorder
        self._unit = PostgresReader(connection, recorder, 0)
        self._filled = filled

    def by_stream(self, upto: int, after: tuple[str, int], limit: int) -> Iterator[Row]:
        return self._recorder.by_stream(self._unit, after, upto, limit)

    def by_position(self, after: int, limit: int) -> Iterator[Row]:
        return self._recorder.by_position(self._unit, after, limit)

    def load(self, view: Table, keys: Sequence[Row]) -> Iterable[Row]:
        kinds = list(key_of(view).values())
        return self._connection.execute(_SELECT_SHADOW[view.name], arrays(kinds, keys))

    def put(self, rows: RowsByView) -> None:
        for view in VIEWS:
            of_view = rows[view.name]
            if dropped := [key for key, row in of_view.items() if row is None]:
                kinds = list(key_of(view).values())
                self._connection.execute(_DROP_SHADOW[view.name], arrays(kinds, dropped))
            if kept := [row for row in of_view.values() if row is not None]:
                self._connection.execute(*_PUT_SHADOW[view.name].of(kept))
            if of_view and self._filled:
                self._connection.execute(*_ADD_KEYS[view.name].of(list(of_view)))


class PostgresShadowTables:
    """Shadow tables as temporary tables of one session, which last as long as that session.

    The views keep their tables. An older snapshot would find nothing in a table that was emptied (TRUNCATE) or replaced
    (DROP, RENAME), and both wait for every reader, blocking all others behind them. If rows are deleted and inserted
    instead, each snapshot sees the rows that it began with, and nobody waits.

    Only keys whose rows may differ are written: those that differed once all streams were folded, and those of all
    events since. So writers wait only while these rows are written.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._ours = secrets.token_hex(8)
        self._connection: Connection
        self._replaced: frozenset[str] = frozenset()
        self._filled = False

    def begin(self) -> int:
        self._connection = self._store.connect(time.monotonic() + CONNECT_SECONDS)
        self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the server's default is
        execute = self._connection.execute
        try:
            with self._transaction():
                _require_known_schema(self._connection)
                _create_shadow(self._connection)
                execute(PUT_META, (REBUILD, self._ours))
                self._replaced = views_to_replace(self._connection)
                recorder = self._store.recorder
                return recorder.max_notification_id(PostgresReader(self._connection, recorder, 0)) or 0
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def read(self) -> Iterator[PostgresTables]:
        with self._transaction():
            _require_known_schema(self._connection)
            row = self._connection.execute("SELECT value FROM meta WHERE name = %s", (REBUILD,)).fetchone()
            if row is None or row[0] != self._ours:
                raise taken_over()
            yield PostgresTables(self._connection, self._store.recorder, self._filled)

    @contextmanager
    def turn(self) -> Iterator[PostgresTables]:
        """A transaction that may put rows. Needs no lock: no other session sees the tables."""
        with self._transaction():
            yield PostgresTables(self._connection, self._store.recorder, self._filled)

    def filled(self) -> None:
        with self._transaction():
            self._connection.execute(_READ_WHOLE_TABLES)
            for view in VIEWS:
                self._connection.execute(f'ANALYZE "{shadow_name(view.name)}"')
                if view.name not in self._replaced:
                    self._connection.execute(_ADD_DIFFERENT[view.name])
                    self._connection.execute(f'ANALYZE "{_keys(view)}"')
        self._filled = True

    @contextmanager
    def swap(self) -> Iterator[PostgresTables]:
        with self._transaction():
            execute = self._connection.execute
            execute("SELECT set_config('lock_timeout', %s, true)", (f"{TURN_TIMEOUT}s",))
            execute(self._store.recorder.lock)
            _require_known_schema(self._connection)
            # Deleted first: from here on a rebuild that takes over waits for the commit.
            if execute("DELETE FROM meta WHERE name = %s AND value = %s", (REBUILD, self._ours)).rowcount != 1:
                raise taken_over()
            yield PostgresTables(self._connection, self._store.recorder, self._filled)
            execute(_READ_WHOLE_TABLES)
            execute(_WAIT_BRIEFLY)
            for view in VIEWS:
                for statement in _REPLACE[view.name] if view.name in self._replaced else _REPAIR[view.name]:
                    execute(statement)
            for name in OF_VIEWS.keys() - indexes_there(self._connection):
                execute(OF_VIEWS[name])
        self._connection.close()

    def drop(self) -> None:
        with suppress(psycopg.Error):
            self._connection.execute("DELETE FROM meta WHERE name = %s AND value = %s", (REBUILD, self._ours))
        self._connection.close()

    def rows(self) -> dict[str, int]:
        with self._store.snapshot() as reader:
            return {view.name: reader.rows(f'SELECT COUNT(*) FROM "{view.name}"', {})[0][0] for view in VIEWS}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._connection.transaction():
                yield
        except psycopg.Error as error:
            raise refusal_of(error) from error


def fold_within(connection: Connection, recorder: PostgresEventRecorder) -> None:
    """Fold the whole log into temporary tables, in the connection's current transaction.

    The caller must exclude other writers. Raises StoreError for a log that cannot be folded.
    """
    _create_shadow(connection)
    fold_all(PostgresTables(connection, recorder, filled=False))


def take_over_within(connection: Connection, view: Table) -> None:
    """Replace the rows of a view by those that `fold_within` folded, where they differ."""
    connection.execute(_READ_WHOLE_TABLES)
    for statement in (_ADD_DIFFERENT[view.name], *_REPAIR[view.name]):
        connection.execute(statement)


def _create_shadow(connection: Connection) -> None:
    for view in VIEWS:
        connection.execute(create_view(view, shadow_name(view.name), "TEMP TABLE"))
        connection.execute(create_view(Table(_keys(view), key_of(view), view.key), kind="TEMP TABLE"))


def _require_known_schema(connection: Connection) -> None:
    """Reject a newer minor version, because a rebuild by this version would lose its views."""
    found: dict[str, str] = dict(
        connection.execute("SELECT name, value FROM meta WHERE name IN ('major', 'minor')").fetchall()
    )
    major, minor = found.get("major", "unknown"), found.get("minor", "0")
    if major != str(MAJOR) or int(minor) > MINOR:
        raise StoreError(
            f"the store has schema {major}.{minor}, but this holdlog supports {MAJOR}.{MINOR}; rebuild with the newest"
            " holdlog that uses this store"
        )


def _keys(view: Table) -> str:
    return f"{view.name}_keys"


def _named(table: Table) -> list[str]:
    return [f'"{column}"' for column in table.columns]


def _add_different(view: Table) -> str:
    """Add keys whose rows differ between the view and its shadow table, or exist in only one of them."""
    names = _named(view)
    key, rest = names[: view.key], names[view.key :]
    kept, rebuilt = (f"({', '.join(f'{table}.{name}' for name in rest)})" for table in ("kept", "rebuilt"))
    return (
        f'INSERT INTO "{_keys(view)}" SELECT {", ".join(key)} FROM "{view.name}" AS kept'
        f' FULL JOIN "{shadow_name(view.name)}" AS rebuilt USING ({", ".join(key)})'
        f" WHERE kept.{key[0]} IS NULL OR rebuilt.{key[0]} IS NULL OR {kept} IS DISTINCT FROM {rebuilt}"
    )


def _repair(view: Table) -> tuple[str, ...]:
    names = _named(view)
    from_shadow = f'FROM "{shadow_name(view.name)}" JOIN "{_keys(view)}" USING ({", ".join(names[: view.key])})'
    same = " AND ".join(f"kept.{name} = touched.{name}" for name in names[: view.key])
    return (
        f'DELETE FROM "{view.name}" AS kept USING "{_keys(view)}" AS touched WHERE {same}',
        f'INSERT INTO "{view.name}" ({", ".join(names)}) SELECT {", ".join(names)} {from_shadow}',
    )


def _replace(view: Table) -> tuple[str, ...]:
    """Replace a view whose table is missing or has wrong columns: no process can use it anyway."""
    names = ", ".join(_named(view))
    return (
        f'DROP TABLE IF EXISTS "{view.name}"',
        create_view(view),
        f'INSERT INTO "{view.name}" ({names}) SELECT {names} FROM "{shadow_name(view.name)}"',
    )


_WAIT_BRIEFLY: Final = "SET LOCAL lock_timeout = '1s'"
"""For a table that is replaced: new readers queue behind this statement."""
_READ_WHOLE_TABLES: Final = "SET LOCAL enable_seqscan = on"
"""Let the planner read whole tables; single rows are read by their keys, however small the table was at first."""
_PUT_SHADOW: Final = {view.name: put_into(shadow_name(view.name), view.columns, view.key) for view in VIEWS}
_DROP_SHADOW: Final = {view.name: drop_rows(view, shadow_name(view.name)) for view in VIEWS}
_SELECT_SHADOW: Final = {view.name: select_rows(view, shadow_name(view.name)) for view in VIEWS}
_ADD_KEYS: Final = {view.name: insert_into(_keys(view), key_of(view), " ON CONFLICT DO NOTHING") for view in VIEWS}
_ADD_DIFFERENT: Final = {view.name: _add_different(view) for view in VIEWS}
_REPAIR: Final = {view.name: _repair(view) for view in VIEWS}
_REPLACE: Final = {view.name: _replace(view) for view in VIEWS}
