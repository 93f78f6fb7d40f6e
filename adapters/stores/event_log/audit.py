"""Audit of a log: is it consistent, and do the views agree with it? One pass by stream, in little memory. Repairs
nothing."""

from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import UNREADABLE, event_of, is_intact
from holdlog.adapters.stores.sql.inspection import SqlInspection
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.ports import State
from holdlog.domain.progress import Progress
from holdlog.domain.refusals import StoreError
from holdlog.domain.store_log import Part, Redactions
from holdlog.projections import fold
from holdlog.projections.claims import TICKETS
from holdlog.projections.fold import ADDED, VIEWS, Folded
from holdlog.projections.projection import Put, Table
from holdlog.projections.rebuild import DetailRows, FoldStep, following, initial

MAX_EXAMPLES: Final = 3
PROGRESS_EVERY: Final = 4_000
MAX_COMPARED: Final = 500
"""Maximum number of rows of views in a batch."""
MAX_WEIGHT: Final = 4 * 1024 * 1024
"""Maximum number of characters in a batch, which ends after the row that exceeds it."""

Row = tuple[Any, ...]


class Faults:
    """Counts faults and names a few of them. `first`: the lowest position of an event that has one; None if no position
    is known."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []
        self.first: int | None = None

    def add(self, example: str, position: int | None = None) -> None:
        self.count += 1
        if position is not None and (self.first is None or position < self.first):
            self.first = position
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return "; ".join(self.examples) + (f"; and {more:,} more" if more else "")


class Audit:
    """Checks a log in one pass, and collects the faults that it finds."""

    def __init__(self, inspection: SqlInspection, progress: Progress) -> None:
        self.events = 0
        self.streams = 0
        self.positions = Faults()
        self.versions = Faults()
        self.times = Faults()
        self.digests = Faults()
        self.redactions = Faults()
        self.unreadable = Faults()
        self.views = Faults()
        self._inspection = inspection
        self._progress = progress
        self._redactions = Redactions(inspection.facts())
        self._found = dict.fromkeys((view.name for view in VIEWS), 0)
        self._missing = {view.name for view in VIEWS} - inspection.views()
        self._total = inspection.total()
        self._pending: list[tuple[str, Put]] = []
        self._tickets: set[Row] = set()
        self._weight = 0

    def run(self) -> None:
        """Run the audit. Raises the database's own errors if it cannot be read."""
        for missing in sorted(self._missing):
            self.views.add(f"the table {missing} is missing")
        for stream, of_stream in groupby(self._inspection.events(), key=itemgetter(1)):
            self.streams += 1
            folded = self._follow(stream, of_stream)
            if folded is not None:
                self._collect(stream, fold.put(*folded))
        self._compare()
        self._progress(self.events, self._total)
        for view in VIEWS:
            if view.name not in self._missing:
                self._find_strays(view)
        self._check_order()

    def _follow(self, stream: str, rows: Iterator[Row]) -> Folded | None:
        """The state after the stream's last event, None if it cannot be determined."""
        folded = self._initial(stream)
        last: object = 0
        previous: Any = NO_DIGEST
        added = DetailRows()
        has_redactions = self._redactions.concern(stream)
        for row in rows:
            self._count()
            version = row[2]
            if not isinstance(last, int) or version != last + 1:
                self.versions.add(f"{stream}@{version} follows version {last}", row[0])
            if not _verifies(row, previous):
                self.digests.add(f"{stream}@{version}", row[0])
            if row[14] is not None or row[22] is not None or has_redactions:
                self._compare_redactions(stream, row)
            last, previous = version, row[11]
            if folded is not None:
                folded = self._evolved(folded.state, row, stream, added)
        if folded is not None:
            for put in added.at_the_end():
                self._collect(stream, put)
        return folded

    def _compare_redactions(self, stream: str, row: Row) -> None:
        """Check that only the hash is left of what was redacted, and of nothing else."""
        parts: dict[Part, tuple[Any, Any]] = {"payload": (row[13], row[14]), "reason": (row[9], row[22])}
        for part, (text, hashed) in parts.items():
            was_redacted = self._redactions.cover(stream, row[2], part)
            if text is None and hashed is not None and not was_redacted:
                self.redactions.add(f"{stream}@{row[2]} lacks a text that nobody redacted", row[0])
            elif text is not None and was_redacted:
                self.redactions.add(f"{stream}@{row[2]} has a text that was redacted", row[0])

    def _initial(self, stream: str) -> Folded | None:
        try:
            state = initial(stream)
            if state.stream == stream:
                return Folded(state)
            self.unreadable.add(f"the stream name {stream!r} is not one that holdlog writes")
        except StoreError as error:
            self.unreadable.add(str(error))
        except UNREADABLE:
            self.unreadable.add(f"stream {stream!r} is not text")
        return None

    def _evolved(self, state: State, row: Row, stream: str, added: DetailRows) -> Folded | None:
        version, topic, body, at, principal = row[2:7]
        digest, payload = row[11], row[13]
        try:
            # A version gap is already reported; compare views as if there were none.
            before: State = state if state.version == version - 1 else state._replace(version=version - 1)
            event = event_of(stream, version, topic, body, payload)
            after = following(before, FoldStep(stream, version, at, digest, event, principal))
            for put in added.by(after.state, event, at):
                self._collect(stream, put)
            return after
        except StoreError as error:
            self.unreadable.add(str(error), row[0])
        except UNREADABLE:
            self.unreadable.add(f"event {stream}@{version} cannot be read", row[0])
        return None

    def _collect(self, stream: str, put: Put) -> None:
        """Queue an expected row. Rows are compared in batches, because each database read may be a network round
        trip."""
        if put.table.name in self._missing:
            return
        if put.table is TICKETS:
            self._tickets.add(put.key)
        self._pending.append((stream, put))
        self._weight += sum(len(cell) for cell in put.row if isinstance(cell, str))
        if len(self._pending) == MAX_COMPARED or self._weight > MAX_WEIGHT:
            self._compare()

    def _compare(self) -> None:
        found = {view.name: self._inspection.rows_of(view, self._keys(view)) for view in VIEWS}
        for stream, (table, row) in self._pending:
            kept = found[table.name].get(row[: table.key])
            if kept is None:
                self.views.add(f"{table.name} has no row for {stream}")
                continue
            self._found[table.name] += 1
            if kept != row:
                differing = (name for name, one, other in zip(table.columns, kept, row, strict=True) if one != other)
                self.views.add(f"{table.name} and the log differ in {', '.join(differing)} for {stream}")
        self._pending, self._weight = [], 0

    def _keys(self, view: Table) -> list[Row]:
        return [put.key for _, put in self._pending if put.table.name == view.name]

    def _find_strays(self, view: Table) -> None:
        if self._inspection.count(view) == self._found[view.name]:
            return
        version = list(view.columns).index("version")
        rows = ((_stream_of(view, row), row[version], row[: view.key]) for row in self._inspection.all_rows(view))
        while page := list(islice(rows, MAX_COMPARED)):
            known = self._inspection.known([stream for stream, *_ in page if stream is not None])
            # Deduplicated: a single event may have written all keys of a page.
            addresses = list({(stream, version) for stream, version, _ in page if stream in known})
            expected = None
            if view is TICKETS:  # later events remove them
                expected = self._tickets
            elif view in ADDED:
                expected = {key for row in self._inspection.events_at(addresses) for key in _added(view, row)}
            for stream, _, key in page:
                if stream not in known or (expected is not None and key not in expected):
                    self.views.add(f"{view.name} has a row {'/'.join(map(str, key))} that is not in the log")

    def _check_order(self) -> None:
        if self.events != self._total:
            self.positions.add(f"the index of streams has {self.events:,} of {self._total:,} events")
        first, last = self._inspection.ends()
        if last != self._total:
            # A single writer leaves no gaps; only removing rows does.
            text = f"the last position is {last:,}, but there are {self._total:,} events"
            self.positions.add(text, self._inspection.gap())
        elif self._total and first != 1:
            self.positions.add(f"the first position is {first:,}", 1)
        for position, version, stream in self._inspection.backwards():
            self.times.add(f"{stream}@{version} (position {position})", position)

    def _count(self) -> None:
        self.events += 1
        if self.events % PROGRESS_EVERY == 0:
            self._progress(self.events, self._total)


def _verifies(row: Row, previous: bytes) -> bool:
    try:
        return is_intact(row, previous)
    except StoreError:
        return False


def _stream_of(view: Table, row: Row) -> str | None:
    try:
        return fold.stream_of(view, row)
    except UNREADABLE:
        return None


def _added(view: Table, row: Row) -> list[Row]:
    """The keys of the rows that an event adds to a view; none if the event cannot be read, which is already
    reported."""
    try:
        stream, version, topic, body, at = row[1:6]
        state: State = initial(stream)._replace(version=version)
        changes = fold.detail_rows(state, event_of(stream, version, topic, body, row[13]), at)
        return [change.key for change in changes if change.table is view]
    except (StoreError, *UNREADABLE):
        return []
