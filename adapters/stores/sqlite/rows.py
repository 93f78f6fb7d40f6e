"""One connection to the store: runs the shared statements, and the transaction that writes."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Final

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.event_log.rebuild import shadow_name
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.adapters.stores.sql.reader import BorrowingReader, ReadStore
from holdlog.adapters.stores.sql.text import NONE, Parameters, for_sqlite
from holdlog.adapters.stores.sql.transaction import SqlTransaction, WriteStore
from holdlog.adapters.stores.sqlite.faults import require_major
from holdlog.adapters.stores.sqlite.recorder import MANY, SqliteEventRecorder
from holdlog.adapters.stores.sqlite.schema import DROP, PUT, version_of
from holdlog.domain.record import Record
from holdlog.domain.store_log import Part, SearchText
from holdlog.projections.current import CURRENT
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Put, Row, RowChange, Table

MAX_NAMES: Final = 500
"""Maximum in one statement."""


class SqliteStatements:
    """Runs the shared statements on a connection."""

    connection: sqlite3.Connection

    def rows(self, statement: str, parameters: Parameters) -> list[Row]:
        return self.connection.execute(for_sqlite(statement), parameters).fetchall()

    def stream(self, statement: str, parameters: Parameters) -> Iterator[Row]:
        return self.connection.execute(for_sqlite(statement), parameters)

    def rows_in(self, statement: str, names: Sequence[object], parameters: Parameters = NONE) -> list[Row]:
        found: list[Row] = []
        for start in range(0, len(names), MAX_NAMES):
            named = {f"name{number}": name for number, name in enumerate(names[start : start + MAX_NAMES])}
            found += self.connection.execute(for_sqlite(statement, len(named)), {**parameters, **named})
        return found


class SqliteReader(SqliteStatements, BorrowingReader):
    """Reads through one connection. `now`: the clock, read before anything else."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        recorder: SqliteEventRecorder,
        now: int,
        store: ReadStore | None = None,
    ) -> None:
        super().__init__(recorder, now)
        self.connection = connection
        self.closed = False
        self._store = store  # last: `__del__` uses the connection


class SqliteTransaction(SqliteStatements, SqlTransaction):
    """The single write connection; `begin` starts a new transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        recorder: SqliteEventRecorder,
        store: WriteStore,
        clock: Callable[[], int],
        steady: Callable[[], int],
    ) -> None:
        super().__init__(recorder, store)
        self.connection = connection
        self._clock = clock
        self._steady = steady
        connection.execute("PRAGMA busy_timeout = 0")  # the store waits instead, fairly and up to its own deadline
        self.last_time: int | None = None
        """Time of the newest event, if known."""

    def forget(self) -> None:
        """Forget cached facts, because another process may have written since."""
        self.last_time = None

    def begin(self) -> None:
        """Begin a transaction. Raises sqlite3.Error; StoreError if a newer holdlog changed the file's major version
        meanwhile."""
        self.connection.execute("BEGIN IMMEDIATE")
        if self.last_time is None:
            require_major(version_of(self.connection))
            self.last_time = self.recorder.last_time(self)
            self.sealed = line_of(self.meta(SEAL))
        self.started(self._clock(), self._steady(), self.last_time)

    def records_of(self, addresses: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
        names = list(chain.from_iterable(addresses))
        found: dict[tuple[str, str], Record] = {}
        for start in range(0, len(names), MAX_NAMES):
            some = names[start : start + MAX_NAMES]
            for record in self.states(CURRENT, self.connection.execute(_select_records(len(some) // 2), some)):
                found[record.namespace, record.key] = record
        return found

    def later(self, statement: str, parameters: Parameters) -> None:
        if self.connection.execute(for_sqlite(statement), parameters).rowcount > 0:
            self.wrote = True

    def changes(self, statement: str, parameters: Parameters) -> bool:
        changed = self.connection.execute(for_sqlite(statement), parameters).rowcount > 0
        self.wrote = self.wrote or changed
        return changed

    def put(self, table: Table, rows: list[Row]) -> None:
        if rows:
            self.connection.executemany(PUT[table.name], rows)
            self.wrote = True

    def redact(self, stream: str, versions: Sequence[int], part: Part) -> None:
        self.connection.execute("PRAGMA secure_delete = ON")  # from here on: it overwrites what it deletes
        super().redact(stream, versions, part)

    def forget_texts(self, texts: Sequence[SearchText]) -> None:
        super().forget_texts(texts)
        for view in VIEWS:
            self.connection.execute(f'DROP TABLE IF EXISTS "{shadow_name(view.name)}"')

    def insert(self, events: Sequence[EncodedEvent], rows: Sequence[RowChange]) -> Sequence[int]:
        self.last_time = None
        positions = self.recorder.insert_events(events, unit=self)
        if rows[MANY - 1 :]:
            self._change_many(rows)
            return positions
        for change in rows:
            if isinstance(change, Put):
                self.connection.execute(PUT[change.table.name], change.row)
            else:
                self.connection.execute(DROP[change.table.name], change.key)
        return positions

    def _change_many(self, rows: Sequence[RowChange]) -> None:
        """Change rows in their order, with one call for those in a row that have the same statement."""
        for statement, changes in groupby(rows, key=_statement):
            self.connection.executemany(statement, [it.row if isinstance(it, Put) else it.key for it in changes])


@cache
def _select_records(count: int) -> str:
    wanted = ", ".join(["(?, ?)"] * count)
    return f"SELECT {', '.join(CURRENT.columns)} FROM {CURRENT.name} WHERE (namespace, key) IN (VALUES {wanted})"


def _statement(change: RowChange) -> str:
    return PUT[change.table.name] if isinstance(change, Put) else DROP[change.table.name]
