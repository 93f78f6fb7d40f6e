"""One snapshot of a store in a file, for the doctor."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdlog.adapters.stores.event_log.audit import Row
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE, select_from
from holdlog.adapters.stores.sqlite.schema import SELECT_EVENTS, select_row
from holdlog.projections.claims import CLAIMS
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table


class SqliteInspection:
    """Reads one snapshot for the doctor. `connection`: in a read transaction, with `any_text` as `text_factory`. All
    methods raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def views(self) -> set[str]:
        return {row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    def total(self) -> int:
        return self._number(f"SELECT COUNT(*) FROM {EVENTS_TABLE} NOT INDEXED")

    def ends(self) -> tuple[int, int]:
        first, last = self._connection.execute(f"SELECT MIN(rowid), MAX(rowid) FROM {EVENTS_TABLE}").fetchone()
        return first or 0, last or 0

    def events(self) -> Iterator[Row]:
        return self._connection.execute(f"{SELECT_EVENTS} ORDER BY originator_id, originator_version")

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        select = _SELECT_ROW[view.name]
        found = ((key, self._connection.execute(select, key).fetchone()) for key in keys)
        return {key: row for key, row in found if row is not None}

    def all_rows(self, view: Table) -> Iterator[Row]:
        return self._connection.execute(select_from(view))

    def count(self, view: Table) -> int:
        return self._number(f'SELECT COUNT(*) FROM "{view.name}"')

    def known(self, streams: Sequence[str]) -> set[str]:
        return {it for it in streams if self._connection.execute(_SELECT_STREAM, (it,)).fetchone() is not None}

    def events_at(self, addresses: Sequence[tuple[str, Any]]) -> Iterator[Row]:
        for address in addresses:
            yield from self._connection.execute(_SELECT_EVENT, address)

    def backwards(self) -> Iterator[tuple[int, int, str]]:
        return self._connection.execute(_SELECT_TIMES_BACKWARDS)

    def meta(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def counts(self) -> tuple[int, ...]:
        counts: tuple[int, ...] = self._connection.execute(_SELECT_COUNTS).fetchone()
        return counts

    def kept(self) -> tuple[int, ...]:
        kept: tuple[int, ...] = self._connection.execute(_SELECT_KEPT).fetchone()
        return kept

    def leases(self) -> Iterator[Row]:
        return self._connection.execute(_SELECT_LEASES)

    def active_claims(self) -> Iterator[Row]:
        return self._connection.execute(f"{select_from(CLAIMS)} WHERE held <> 0 OR waiting <> 0")

    def _number(self, select: str) -> int:
        number: int = self._connection.execute(select).fetchone()[0]
        return number


def any_text(text: bytes) -> str:
    """A `text_factory` that also reads invalid UTF-8; the result then differs from any valid text."""
    return text.decode("utf-8", "surrogateescape")


_SELECT_ROW: Final[dict[str, Any]] = {view.name: select_row(view) for view in VIEWS}
_SELECT_EVENT: Final = f"{SELECT_EVENTS} WHERE originator_id = ? AND originator_version = ?"
_SELECT_STREAM: Final = f"SELECT 1 FROM {EVENTS_TABLE} WHERE originator_id = ? LIMIT 1"
_SELECT_TIMES_BACKWARDS: Final = f"""
SELECT rowid, originator_version, originator_id FROM (
    SELECT rowid, originator_version, originator_id, at, LAG(at) OVER (ORDER BY rowid) AS before FROM {EVENTS_TABLE}
) WHERE at < before"""
_SELECT_COUNTS: Final = """
SELECT (SELECT COUNT(*) FROM stored_events),
       (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_KEPT: Final = "SELECT (SELECT COUNT(*) FROM requests), (SELECT COUNT(*) FROM refusals)"
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""
