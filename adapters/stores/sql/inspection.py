"""One snapshot of a store, for the doctor: what both databases share."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import UNREADABLE, decode
from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sql.text import NONE
from holdlog.domain.message import Event
from holdlog.domain.refusals import StoreError
from holdlog.domain.store_log import STORE_STREAM
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

    def views(self) -> set[str]:
        """Names of the views whose tables exist."""
        raise NotImplementedError

    def rows_of(self, view: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """The rows of these keys, by key."""
        raise NotImplementedError

    def total(self) -> int:
        """Number of events."""
        return self._recorder.count(self._unit)

    def ends(self) -> tuple[int, int]:
        """First and last position of the log; zeros if it is empty."""
        return self._recorder.ends(self._unit)

    def last_time(self) -> int:
        """Time of the newest event in microseconds UTC; 0 if there is none."""
        return self._recorder.last_time(self._unit)

    def gap(self) -> int | None:
        """The first position without an event before the last one; None if there is none."""
        return self._recorder.gap(self._unit)

    def events(self) -> Iterator[Row]:
        """All events in the form that `codec.decode` takes, in order of streams and versions."""
        return self._recorder.all_by_stream(self._unit)

    def facts(self) -> list[Event]:
        """The events about the log itself, except for those that cannot be read."""
        found = []
        for row in self._recorder.select_events(STORE_STREAM, unit=self._unit):
            with suppress(StoreError, *UNREADABLE):
                found.append(decode(row).event)
        return found

    def all_rows(self, view: Table) -> Iterator[Row]:
        return self._unit.stream(select_from(view), NONE)

    def count(self, view: Table) -> int:
        return int(self._unit.rows(f'SELECT COUNT(*) FROM "{view.name}"', NONE)[0][0])

    def known(self, streams: Sequence[str]) -> set[str]:
        """Those of these streams that are in the log."""
        return self._recorder.known(streams, self._unit)

    def events_at(self, addresses: Sequence[tuple[str, Any]]) -> Iterator[Row]:
        """The events at these streams and versions."""
        by_stream: dict[str, list[int]] = {}
        for stream, version in addresses:
            by_stream.setdefault(stream, []).append(version)
        for stream, versions in by_stream.items():
            yield from self._recorder.select_versions(stream, versions, self._unit).values()

    def backwards(self) -> Iterator[Row]:
        """Position, version and stream of events that are earlier than the event before."""
        return self._recorder.backwards(self._unit)

    def meta(self, name: str) -> str | None:
        return self._unit.meta(name)

    def counts(self) -> tuple[int, ...]:
        """Numbers of events, of live records and of deleted records."""
        return (self.total(), *self._unit.rows(_SELECT_COUNTS, NONE)[0])

    def kept(self) -> tuple[int, ...]:
        """The number of responses kept for repeated requests, and of recorded refusals."""
        return self._unit.rows(_SELECT_KEPT, NONE)[0]

    def leases(self) -> Iterator[Row]:
        """Resource, version, `grant` or `ticket`, agent, principal."""
        return self._unit.stream(_SELECT_LEASES, NONE)

    def reader(self) -> SqlReader:
        return self._unit

    def active_claims(self) -> Iterator[Row]:
        """Rows of the view `claims` that are held or queued for."""
        return self._unit.stream(f"{select_from(CLAIMS)} WHERE held <> 0 OR waiting <> 0", NONE)
