"""One snapshot of a store in PostgreSQL, for the doctor."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from holdlog.adapters.stores.event_log.audit import Row
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.catalog import SELECT_SIZE, tables_there
from holdlog.adapters.stores.postgres.connection import Connection
from holdlog.adapters.stores.postgres.schema import key_of, select_rows
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE, SELECT_EVENTS, select_from
from holdlog.projections.claims import CLAIMS
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table

FETCHED: Final = 200
"""Rows fetched in one batch: a whole result might not fit in memory."""


class PostgresInspection:
    """Reads one snapshot for the doctor. `connection`: in a transaction with one snapshot. All methods raise
    psycopg.Error."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def views(self) -> set[str]:
        return tables_there(self._connection)

    def total(self) -> int:
        return int(self._row(f"SELECT COUNT(*) FROM {EVENTS_TABLE}")[0])

    def ends(self) -> tuple[int, int]:
        first, last = self._row(f"SELECT MIN(notification_id), MAX(notification_id) FROM {EVENTS_TABLE}")
        return first or 0, last or 0

    def events(self) -> Iterator[Row]:
        return self._rows(f"{SELECT_EVENTS} ORDER BY originator_id, originator_version")

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
        select = f"SELECT DISTINCT originator_id FROM {EVENTS_TABLE} WHERE originator_id = ANY(%s)"
        return {stream for (stream,) in self._connection.execute(select, (list(streams),))}

    def events_at(self, addresses: Sequence[tuple[str, Any]]) -> Iterator[Row]:
        yield from self._connection.execute(_SELECT_EVENTS_AT, arrays((str, int), addresses))

    def backwards(self) -> Iterator[Row]:
        return self._rows(_SELECT_TIMES_BACKWARDS)

    def meta(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = %s", (name,)).fetchone()
        return None if row is None else row[0]

    def counts(self) -> tuple[int, ...]:
        return self._row(_SELECT_COUNTS)

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
_SELECT_EVENTS_AT: Final = f"""{SELECT_EVENTS} WHERE (originator_id, originator_version) IN
    (SELECT * FROM unnest(%s::text[], %s::bigint[]))"""
_SELECT_TIMES_BACKWARDS: Final = f"""
SELECT notification_id, originator_version, originator_id FROM (
    SELECT notification_id, originator_version, originator_id, at,
        LAG(at) OVER (ORDER BY notification_id) AS before FROM {EVENTS_TABLE}
) AS log WHERE at < before"""
_SELECT_COUNTS: Final = f"""
SELECT (SELECT COUNT(*) FROM {EVENTS_TABLE}),
       (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""
