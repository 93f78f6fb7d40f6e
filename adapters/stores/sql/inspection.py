"""One snapshot of a store, for the doctor: what both databases share."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sql.text import NONE
from holdlog.projections.claims import CLAIMS
from holdlog.projections.projection import Row, Table

_SELECT_COUNTS: Final = """
SELECT (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_KEPT: Final = "SELECT (SELECT COUNT(*) FROM requests), (SELECT COUNT(*) FROM refusals)"
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""


class SqlInspection:
    """Reads one snapshot. `unit`: in a transaction with one snapshot. All methods raise the errors of the database."""

    def __init__(self, unit: SqlReader) -> None:
        self._unit = unit
        self._recorder = unit.recorder

    def total(self) -> int:
        return self._recorder.count(self._unit)

    def ends(self) -> tuple[int, int]:
        return self._recorder.ends(self._unit)

    def events(self) -> Iterator[Row]:
        return self._recorder.all_by_stream(self._unit)

    def all_rows(self, view: Table) -> Iterator[Row]:
        return self._unit.stream(select_from(view), NONE)

    def count(self, view: Table) -> int:
        return int(self._unit.rows(f'SELECT COUNT(*) FROM "{view.name}"', NONE)[0][0])

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
        return self._unit.meta(name)

    def counts(self) -> tuple[int, ...]:
        return (self.total(), *self._unit.rows(_SELECT_COUNTS, NONE)[0])

    def kept(self) -> tuple[int, ...]:
        return self._unit.rows(_SELECT_KEPT, NONE)[0]

    def leases(self) -> Iterator[Row]:
        return self._unit.stream(_SELECT_LEASES, NONE)

    def active_claims(self) -> Iterator[Row]:
        return self._unit.stream(f"{select_from(CLAIMS)} WHERE held <> 0 OR waiting <> 0", NONE)
