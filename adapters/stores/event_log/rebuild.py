"""Rebuild the views from the log into shadow tables, then swap them (docs/decisions/0011-rebuild.md)."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, NamedTuple, Protocol

from holdlog.adapters.stores.event_log.codec import event_of
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import HoldlogError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.fold import STATES, VIEWS, Folded
from holdlog.projections.projection import Put, Row, Table
from holdlog.projections.rebuild import FoldStep, fold_page, initial

PAGE_EVENTS: Final = 4_000
"""Events folded at once: while their rows are written, other writers to a file wait, some 20 ms."""
PAGE_CHARACTERS: Final = 16 * 1024 * 1024
"""Characters of events read at once; a page ends after the event that exceeds it."""
TURN_TIMEOUT: Final = 10.0
"""Seconds that a rebuild waits for the write lock."""

RowsByView = Mapping[str, Mapping[Row, Row | None]]
"""For each view, rows by their keys; None: the row is removed."""


class Tables(Protocol):
    """The log and the shadow tables, within one transaction. Events are in the form that `codec.decode` takes."""

    def by_stream(self, upto: int, after: tuple[str, int], limit: int) -> Iterator[Row]:
        """Events up to a position, in order of streams and versions, after one of them."""

    def by_position(self, after: int, limit: int) -> Iterator[Row]: ...

    def load(self, view: Table, keys: Sequence[Row]) -> Iterable[Row]:
        """The existing rows of these keys."""

    def put(self, rows: RowsByView) -> None:
        """Write rows, replacing those with the same keys, and remove rows."""


class ShadowTables(Protocol):
    """The shadow tables of one rebuild. Each transaction raises UnavailableError once another rebuild has begun, and
    StoreError if the store has a newer schema."""

    def begin(self) -> int:
        """Create the tables, empty, and take over from any earlier rebuild. Returns the last position of the log."""

    def read(self) -> AbstractContextManager[Tables]:
        """A transaction that reads."""

    def turn(self) -> AbstractContextManager[Tables]:
        """A transaction in which rows may be put."""

    def filled(self) -> None:
        """Mark all streams as folded up to `begin`; rows put from now on are newer."""

    def swap(self) -> AbstractContextManager[Tables]:
        """A transaction that excludes other writers; its commit replaces the views with the shadow tables."""

    def drop(self) -> None:
        """Remove everything that the rebuild created."""

    def rows(self) -> dict[str, int]:
        """Number of rows in each view, by its name."""


class RebuildReport(NamedTuple):
    """The result of a rebuild. `position`: of the last event in the new views; `rows` of each view by its name."""

    position: int
    events: int
    rows: dict[str, int]


class _Page(NamedTuple):
    """Some events, and where they ended: in order of streams, or of positions."""

    steps: list[FoldStep]
    position: int
    full: bool

    @property
    def end(self) -> tuple[str, int]:
        return self.steps[-1].stream, self.steps[-1].version


def rebuild(shadow: ShadowTables, progress: Progress = ignore_progress) -> RebuildReport:
    """Rebuild all views from the log, while other processes read and write.

    Pages of the log are folded while others write, and stored in short transactions: first stream by stream, so that
    each row is written once and in the order of its keys; then, by position, what was appended meanwhile. The last
    transaction catches up and swaps; until it commits, the old views stay in use and complete, even after a crash. A
    second rebuild takes over from the first. Raises StoreError for a log that cannot be folded, UnavailableError if the
    store is locked or full, or another rebuild took over.
    """
    total = shadow.begin()
    try:
        events = _fold_streams(shadow, total, progress)
        shadow.filled()
        more, reached = _fold_news(shadow, total)
        with shadow.swap() as tables:
            rest, reached = _catch_up(tables, reached)
    except BaseException:
        with suppress(HoldlogError):
            shadow.drop()
        raise
    return RebuildReport(reached, events + more + rest, shadow.rows())


def fold_all(tables: Tables) -> None:
    """Fold the whole log in one transaction that excludes other writers. Raises StoreError if it cannot be folded."""
    end = ("", 0)
    while True:
        page = _page(tables.by_stream(sys.maxsize, end, PAGE_EVENTS), 0)
        tables.put(_folded(tables, page))
        if not page.full:
            return
        end = page.end


def taken_over() -> UnavailableError:
    return UnavailableError(
        "another rebuild started and continues, or a text was redacted; this one stopped, and the views in use are"
        " complete"
    )


def shadow_name(view: str) -> str:
    return f"{view}_rebuilt"


def _fold_streams(shadow: ShadowTables, total: int, progress: Progress) -> int:
    events, end = 0, ("", 0)
    while True:
        with shadow.read() as tables:
            page = _page(tables.by_stream(total, end, PAGE_EVENTS), total)
            rows = _folded(tables, page)
        with shadow.turn() as tables:
            tables.put(rows)
        events += len(page.steps)
        progress(events, max(events, total))
        if not page.full:
            return events
        end = page.end


def _fold_news(shadow: ShadowTables, reached: int) -> tuple[int, int]:
    """Fold new events until less than a page is left."""
    events = 0
    while True:
        with shadow.read() as tables:
            page = _page(tables.by_position(reached, PAGE_EVENTS), reached)
            if not page.full:
                return events, reached
            rows = _folded(tables, page)
        with shadow.turn() as tables:
            tables.put(rows)
        events, reached = events + len(page.steps), page.position


def _catch_up(tables: Tables, reached: int) -> tuple[int, int]:
    """Fold the rest while other writers are excluded: less than a page at the last read, so this is short."""
    events = 0
    while True:
        page = _page(tables.by_position(reached, PAGE_EVENTS), reached)
        tables.put(_folded(tables, page))
        events, reached = events + len(page.steps), page.position
        if not page.full:
            return events, reached


def _page(rows: Iterator[Row], after: int) -> _Page:
    steps: list[FoldStep] = []
    position, characters = after, 0
    for row in rows:
        position, stream, version, topic, state, at, principal = row[:7]
        digest, payload = row[11], row[13]
        steps.append(FoldStep(stream, version, at, digest, event_of(stream, version, topic, state, payload), principal))
        characters += len(state) + len(payload or "")
        if characters > PAGE_CHARACTERS:
            return _Page(steps, position, full=True)
    return _Page(steps, position, full=len(steps) == PAGE_EVENTS)


def _folded(tables: Tables, page: _Page) -> RowsByView:
    """The rows after a page."""

    def load(streams: Sequence[str]) -> dict[str, Folded]:
        named: dict[str, dict[Row, str]] = {view.name: {} for view in STATES}
        for stream in streams:
            view, row = fold.put(initial(stream), NO_DIGEST)
            named[view.name][row[: view.key]] = stream
        return {
            of[row[: view.key]]: fold.folded_of(view, row)
            for view in STATES
            if (of := named[view.name])
            for row in tables.load(view, list(of))
        }

    states, details = fold_page(page.steps, load)
    rows: dict[str, dict[Row, Row | None]] = {view.name: {} for view in VIEWS}
    for change in (*(fold.put(*folded) for folded in states.values()), *details):
        rows[change.table.name][change.key] = change.row if isinstance(change, Put) else None
    return rows
