"""One snapshot of a store in PostgreSQL, for the doctor."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from holdlog.adapters.stores.event_log.audit import Row
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.catalog import SELECT_SIZE, tables_there
from holdlog.adapters.stores.postgres.connection import Connection
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import key_of, select_rows
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.projections.claims import CLAIMS
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table

FETCHED: Final = 200
"""Rows fetched in one batch: a whole result might not fit in memory."""


class PostgresInspection:
    """Reads one snapshot for the doctor. `connection`: in a transaction with one snapshot. All methods raise
    psycopg.Error."""

    def __init__(self, connection: Connection, recorder: PostgresEventRecorder) -> None:
        self._connection = connection
        self._recorder = recorder
        self._unit = PostgresReader(connection, recorder, 0)

    def views(self) -> set[str]:
        return tables_there(self._connection)

    def total(self) -> int:
        return self._recorder.count(self._unit)

    def ends(self) -> tuple[int, int]:
        return self._recorder.ends(self._unit)

    def events(self) -> Iterator[Row]:
        return self._recorder.all_by_stream(self._unit)

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        if not keys:
            return {}
        kinds = list(key_of(view).values())
        return {row[: view.key]: row for row in self._connection.execute(_SELECT_ROWS[view.name], arrays(kinds, keys))}

    def all_rows(self, view: Table) -> Iterator[Row]:
        return self._rows(select_from(view))

    def count(self, view: Table) -> int:
        return int(self._row(f'SELECT COUNT(*) FROM "{view.name}"')[0])

    def known(self, streams: Sequence[str]) -> set[str]:
        return self._recorder.known(streams, self._unit)

    def events_at(self, addresses: Sequence[tuple[str, Any]]) -> Iterator[Row]:
        by_stream: dict[str, list[int]] = {}
        for stream, version in addresses:
            by_stream.setdefault(stream, []).append(version)
        for stream, versions in by_stream.items():
            yield from self._recorder.select_versions(stream, versions, self._unit).values()

    def backwards(self) -> Iterator[Row]:
        return self._recorder.backwards(self._unit)

    def meta(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = %s", (name,)).fetchone()
        return None if row is None else row[0]

    def counts(self) -> tuple[int, ...]:
        return (self.total(), *self._row(_SELECT_COUNTS))

    def kept(self) -> tuple[int, ...]:
        return self._row("SELECT (SELECT COUNT(*) FROM requests), (SELECT COUNT(*) FROM refusals)")

    def leases(self) -> Iterator[Row]:
        return self._rows(_SELECT_LEASES)

    def active_claims(self) -> Iterator[Row]:
        return self._rows(f"{select_from(CLAIMS)} WHERE held <> 0 OR waiting <> 0")

    def size(self) -> int:
        """Bytes of all tables with their indexes."""
        return int(self._row(SELECT_SIZE)[0])

    def _row(self, select: str) -> tuple[Any, ...]:
        row = self._connection.execute(select).fetchone()
        assert row is not None
        return row

    def _rows(self, select: str) -> Iterator[Row]:
        with self._connection.cursor(f"look_{next(_numbers)}") as cursor:
            cursor.itersize = FETCHED
            yield from cursor.execute(select)


_numbers = count()
_SELECT_ROWS: Final = {view.name: select_rows(view) for view in VIEWS}
_SELECT_COUNTS: Final = """
SELECT (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""
