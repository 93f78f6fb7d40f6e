"""Build the views anew from the log, beside those in use, and swap (docs/decisions/0011-rebuild.md)."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, NamedTuple, Protocol

from holdlog.adapters.stores.event_log.codec import event_of
from holdlog.domain.refusals import HoldlogError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.fold import STATES, VIEWS, State
from holdlog.projections.projection import Table
from holdlog.projections.rebuild import FoldStep, fold_page, initial

PAGE_EVENTS: Final = 4_000
"""Events folded at once: their rows are written while other writers to a file wait, some 20 ms."""
PAGE_CHARACTERS: Final = 16 * 1024 * 1024
"""Of events read at once; a page ends after the event that crosses it."""
PATIENCE: Final = 10.0
"""Seconds that a rebuild waits for its turn to write."""
STEP_COLUMNS: Final = "originator_id, originator_version, at, digest, topic, state, payload, principal"
"""Of the log, behind the position: what a row of a page holds."""

Progress = Callable[[int, int], None]
"""Called with the position reached and the last position known."""
Row = tuple[Any, ...]


class Tables(Protocol):
    """The log and the tables beside the views in use, within one transaction."""

    def by_stream(self, upto: int, after: tuple[str, int], limit: int) -> Iterator[Row]:
        """Events up to a position, in order of streams and versions, behind one of them."""

    def by_position(self, after: int, limit: int) -> Iterator[Row]: ...

    def load(self, view: Table, keys: Sequence[Row]) -> Iterable[Row]:
        """The rows that stand under these keys."""

    def put(self, rows: Mapping[str, list[Row]]) -> None:
        """Rows by view, in place of those with the same keys."""


class ShadowTables(Protocol):
    """What one rebuild makes beside the views in use. Each transaction raises UnavailableError once another rebuild
    has begun, and StoreError when the store has a newer schema."""

    def begin(self) -> int:
        """Make the tables, empty, and take over from whatever rebuild there was. The last position of the log."""

    def look(self) -> AbstractContextManager[Tables]:
        """A transaction that reads."""

    def turn(self) -> AbstractContextManager[Tables]:
        """A transaction that may put rows."""

    def filled(self) -> None:
        """All streams are in as they were at `begin`; what is put from now on came later."""

    def swap(self) -> AbstractContextManager[Tables]:
        """A turn in which nobody else writes; with its commit the tables take the places of the views."""

    def drop(self) -> None:
        """Leave nothing behind."""

    def rows(self) -> dict[str, int]:
        """In each view, by its name."""


class RebuildReport(NamedTuple):
    """`position`: of the last event in the new views; `rows` of each view by its name."""

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


def rebuild(aside: ShadowTables, progress: Progress = lambda done, total: None) -> RebuildReport:
    """Replace all views by what the log says, while other processes read and write.

    Pages of the log are folded while others write, and put in short transactions: first stream by stream, so that
    each row is written once and in the order of its keys; then, by position, what was appended meanwhile. The last
    transaction catches up and swaps: until then the old views are in use and whole, whatever happens. A second rebuild
    takes over from the first. Raises StoreError for a log that cannot be folded, UnavailableError when the store is
    locked, full or taken over.
    """
    total = aside.begin()
    try:
        events = _fold_streams(aside, total, progress)
        aside.filled()
        more, reached = _fold_news(aside, total)
        with aside.swap() as tables:
            rest, reached = _catch_up(tables, reached)
    except BaseException:
        with suppress(HoldlogError):
            aside.drop()
        raise
    return RebuildReport(reached, events + more + rest, aside.rows())


def fold_all(tables: Tables) -> None:
    """The whole log, in one transaction in which nobody else writes. Raises StoreError where it cannot be folded."""
    end = ("", 0)
    while True:
        page = _page(tables.by_stream(sys.maxsize, end, PAGE_EVENTS), 0)
        tables.put(_folded(tables, page))
        if not page.full:
            return
        end = page.end


def taken_over() -> UnavailableError:
    return UnavailableError("another rebuild started meanwhile and goes on; this one stopped, the views are whole")


def shadow_name(view: str) -> str:
    return f"{view}_rebuilt"


def _fold_streams(aside: ShadowTables, total: int, progress: Progress) -> int:
    events, end = 0, ("", 0)
    while True:
        with aside.look() as tables:
            page = _page(tables.by_stream(total, end, PAGE_EVENTS), total)
            rows = _folded(tables, page)
        with aside.turn() as tables:
            tables.put(rows)
        events += len(page.steps)
        progress(events, max(events, total))
        if not page.full:
            return events
        end = page.end


def _fold_news(aside: ShadowTables, reached: int) -> tuple[int, int]:
    """Until less than a page is left."""
    events = 0
    while True:
        with aside.look() as tables:
            page = _page(tables.by_position(reached, PAGE_EVENTS), reached)
            if not page.full:
                return events, reached
            rows = _folded(tables, page)
        with aside.turn() as tables:
            tables.put(rows)
        events, reached = events + len(page.steps), page.position


def _catch_up(tables: Tables, reached: int) -> tuple[int, int]:
    """Fold what is left, while nobody writes: little, since the last look found less than a page."""
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
    for position, stream, version, at, digest, topic, state, payload, principal in rows:
        steps.append(FoldStep(stream, version, at, digest, event_of(stream, version, topic, state, payload), principal))
        characters += len(state) + len(payload or "")
        if characters > PAGE_CHARACTERS:
            return _Page(steps, position, full=True)
    return _Page(steps, position, full=len(steps) == PAGE_EVENTS)


def _folded(tables: Tables, page: _Page) -> dict[str, list[Row]]:
    """The rows after a page, by view."""

    def load(streams: Sequence[str]) -> dict[str, State]:
        named: dict[str, dict[Row, str]] = {view.name: {} for view in STATES}
        for stream in streams:
            view, row = fold.put(initial(stream))
            named[view.name][row[: view.key]] = stream
        return {
            of[row[: view.key]]: fold.state_of(view, row)
            for view in STATES
            if (of := named[view.name])
            for row in tables.load(view, list(of))
        }

    states, added = fold_page(page.steps, load)
    rows: dict[str, dict[Row, Row]] = {view.name: {} for view in VIEWS}
    for table, row in (*map(fold.put, states.values()), *added):
        rows[table.name][row[: table.key]] = row
    return {view: list(of_view.values()) for view, of_view in rows.items()}
