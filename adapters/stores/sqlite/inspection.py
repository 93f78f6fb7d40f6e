"""One snapshot of a store in a file, for the doctor."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdlog.adapters.stores.event_log.audit import Row
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.adapters.stores.sqlite.schema import select_row
from holdlog.projections.claims import CLAIMS
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table


class SqliteInspection:
    """Reads one snapshot for the doctor. `connection`: in a read transaction, with `any_text` as `text_factory`. All
    methods raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._recorder = SqliteEventRecorder()
        self._unit = SqliteReader(connection, self._recorder, 0)

    def views(self) -> set[str]:
        return {row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    def total(self) -> int:
        return self._recorder.count(self._unit)

    def ends(self) -> tuple[int, int]:
        return self._recorder.ends(self._unit)

    def events(self) -> Iterator[Row]:
        return self._recorder.all_by_stream(self._unit)

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        select = _SELECT_ROW[view.name]
        found = ((key, self._connection.execute(select, key).fetchone()) for key in keys)
        return {key: row for key, row in found if row is not None}

    def all_rows(self, view: Table) -> Iterator[Row]:
        return self._connection.execute(select_from(view))

    def count(self, view: Table) -> int:
        return self._number(f'SELECT COUNT(*) FROM "{view.name}"')

    def known(self, streams: Sequence[str]) -> set[str]:
        return self._recorder.known(streams, self._unit)

    def events_at(self, addresses: Sequence[tuple[str, Any]]) -> Iterator[Row]:
        for stream, version in addresses:
            yield from self._recorder.select_versions(stream, [version], self._unit).values()

    def backwards(self) -> Iterator[tuple[int, int, str]]:
        return self._recorder.backwards(self._unit)

    def meta(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def counts(self) -> tuple[int, ...]:
        counts: tuple[int, ...] = self._connection.execute(_SELECT_COUNTS).fetchone()
        return (self.total(), *counts)

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
_SELECT_COUNTS: Final = """
SELECT (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_KEPT: Final = "SELECT (SELECT COUNT(*) FROM requests), (SELECT COUNT(*) FROM refusals)"
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""
