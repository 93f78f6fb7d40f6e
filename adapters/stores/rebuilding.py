"""Build the views anew from the log, beside those in use, and swap (docs/decisions/0011-rebuild.md)."""

import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from holdlog.adapters.stores.mapper import event_of
from holdlog.adapters.stores.schema import (
    CREATE_INDEXES,
    EVENTS_TABLE,
    MAJOR,
    MINOR,
    MINORS_PER_MAJOR,
    create_view,
    put_statement,
    select_row,
)
from holdlog.adapters.stores.sqlite import SqliteStore
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS, State
from holdlog.projections.rebuild import Step, fold_page, initial

PAGE_EVENTS: Final = 4_000
"""Events folded at once: their rows are written while other writers wait, some 20 ms."""
PAGE_CHARACTERS: Final = 16 * 1024 * 1024
"""Of values read at once; a page ends after the event that crosses it."""
PATIENCE: Final = 10.0
"""Seconds that each page waits for the gate."""

Progress = Callable[[int, int], None]
"""Called with the position reached and the last position known."""


class RebuildReport(NamedTuple):
    """`position`: of the last event in the new views; `rows` of each view by its name."""

    position: int
    events: int
    rows: dict[str, int]


class _Page(NamedTuple):
    """Some events, and where they ended: in order of streams, or of positions."""

    steps: list[Step]
    position: int
    full: bool

    @property
    def end(self) -> tuple[str, int]:
        return self.steps[-1].stream, self.steps[-1].version


def rebuild(store: SqliteStore, progress: Progress = lambda done, total: None) -> RebuildReport:
    """Replace all views by what the log says, while other processes read and write.

    Pages of the log are folded outside the gate and written in short transactions: first stream by stream, so that
    each row is written once and in the order of its keys; then, by position, what was appended meanwhile. The last
    transaction catches up and swaps: until then the old views are in use and whole, whatever happens. A second rebuild
    takes over from the first. Raises StoreError for a log that cannot be folded, UnavailableError when the store is
    locked, full or taken over.
    """
    ours = secrets.token_hex(8)
    total = _begin(store, ours)
    try:
        events = _fold_streams(store, ours, total, progress)
        more, reached = _fold_news(store, ours, total)
        with _turn(store, ours) as connection:
            rest, reached = _catch_up(connection, reached)
            _swap(connection)
    except BaseException:
        with suppress(HoldlogError), _turn(store, ours) as connection:
            _drop_aside(connection)
        raise
    with store.snapshot() as reader:
        rows = {
            view.name: reader.connection.execute(f'SELECT COUNT(*) FROM "{view.name}"').fetchone()[0] for view in VIEWS
        }
    return RebuildReport(reached, events + more + rest, rows)


def _fold_streams(store: SqliteStore, ours: str, total: int, progress: Progress) -> int:
    events, end = 0, ("", 0)
    while True:
        with store.snapshot() as reader:
            _require_ours(reader.connection, ours)
            page = _page(reader.connection.execute(_SELECT_BY_STREAM, (total, *end, PAGE_EVENTS)), total)
            states = _folded(reader.connection, page)
        with _turn(store, ours) as connection:
            _put(connection, states)
        events += len(page.steps)
        progress(events, max(events, total))
        if not page.full:
            return events
        end = page.end


def _fold_news(store: SqliteStore, ours: str, reached: int) -> tuple[int, int]:
    """Until less than a page is left."""
    events = 0
    while True:
        with store.snapshot() as reader:
            _require_ours(reader.connection, ours)
            page = _page(reader.connection.execute(_SELECT_BY_POSITION, (reached, PAGE_EVENTS)), reached)
            if not page.full:
                return events, reached
            states = _folded(reader.connection, page)
        with _turn(store, ours) as connection:
            _put(connection, states)
        events, reached = events + len(page.steps), page.position


def rebuild_within(connection: sqlite3.Connection) -> None:
    """As `rebuild`, in the transaction that the connection is in: nobody else writes, and all becomes durable at once.

    Raises StoreError for a log that cannot be folded.
    """
    _create_aside(connection)
    end = ("", 0)
    while True:
        page = _page(connection.execute(_SELECT_BY_STREAM, (sys.maxsize, *end, PAGE_EVENTS)), 0)
        _put(connection, _folded(connection, page))
        if not page.full:
            break
        end = page.end
    _swap(connection)


def left_over(connection: sqlite3.Connection) -> bool:
    """Whether a rebuild is running, or was killed."""
    names = {_aside(view.name) for view in VIEWS}
    return any(row[0] in names for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"))


def _begin(store: SqliteStore, ours: str) -> int:
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.wrote = True
        connection = transaction.connection
        _require_known_schema(connection)
        _create_aside(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_META, ours))
        return transaction.position()


@contextmanager
def _turn(store: SqliteStore, ours: str) -> Iterator[sqlite3.Connection]:
    """A write transaction in which the tables aside are still those that this rebuild made."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        _require_known_schema(transaction.connection)
        _require_ours(transaction.connection, ours)
        transaction.wrote = True
        yield transaction.connection


def _page(rows: Iterator[tuple[Any, ...]], after: int) -> _Page:
    steps: list[Step] = []
    position, characters = after, 0
    for position, stream, version, at, digest, topic, state, payload in rows:
        steps.append(Step(stream, version, at, digest, event_of(stream, version, topic, state, payload)))
        if payload is not None:
            characters += len(payload)
            if characters > PAGE_CHARACTERS:
                return _Page(steps, position, full=True)
    return _Page(steps, position, full=len(steps) == PAGE_EVENTS)


def _folded(connection: sqlite3.Connection, page: _Page) -> dict[str, State]:
    def load(streams: Sequence[str]) -> dict[str, State]:
        return {stream: state for stream in streams if (state := _load(connection, initial(stream))) is not None}

    return fold_page(page.steps, load)


def _load(connection: sqlite3.Connection, empty: State) -> State | None:
    view, row = fold.put(empty)
    found = connection.execute(_SELECT_ASIDE[view.name], row[: view.key]).fetchone()
    return None if found is None else fold.state_of(view, found)


def _put(connection: sqlite3.Connection, states: dict[str, State]) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {view.name: [] for view in VIEWS}
    for state in states.values():
        table, row = fold.put(state)
        rows[table.name].append(row)
    for view in VIEWS:
        connection.executemany(_PUT_ASIDE[view.name], rows[view.name])


def _catch_up(connection: sqlite3.Connection, reached: int) -> tuple[int, int]:
    """Fold what is left, under the gate: little, since the last look found less than a page."""
    events = 0
    while True:
        page = _page(connection.execute(_SELECT_BY_POSITION, (reached, PAGE_EVENTS)), reached)
        _put(connection, _folded(connection, page))
        events, reached = events + len(page.steps), page.position
        if not page.full:
            return events, reached


def _swap(connection: sqlite3.Connection) -> None:
    for view in VIEWS:
        connection.execute(f'DROP TABLE IF EXISTS "{view.name}"')
        connection.execute(f'ALTER TABLE "{_aside(view.name)}" RENAME TO "{view.name}"')
    for statement in CREATE_INDEXES:
        connection.execute(statement)
    connection.execute("DELETE FROM meta WHERE name = ?", (_META,))


def _create_aside(connection: sqlite3.Connection) -> None:
    _drop_aside(connection)
    for view in VIEWS:
        connection.execute(create_view(view, _aside(view.name)))


def _drop_aside(connection: sqlite3.Connection) -> None:
    for view in VIEWS:
        connection.execute(f'DROP TABLE IF EXISTS "{_aside(view.name)}"')
    connection.execute("DELETE FROM meta WHERE name = ?", (_META,))


def _require_ours(connection: sqlite3.Connection, ours: str) -> None:
    # A row, not a lock: it is read with the tables it speaks of, and a killed rebuild leaves nothing that blocks.
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (_META,)).fetchone()
    if found is None or found[0] != ours:
        raise UnavailableError("another rebuild started meanwhile and goes on; this one stopped, the views are whole")


def _require_known_schema(connection: sqlite3.Connection) -> None:
    """A newer minor may have views and columns that this build would lose."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > MAJOR * MINORS_PER_MAJOR + MINOR:
        raise StoreError(
            f"the store has schema {version // MINORS_PER_MAJOR}.{version % MINORS_PER_MAJOR}, this holdlog knows"
            f" {MAJOR}.{MINOR}; rebuild with the newest holdlog that uses this store"
        )


def _aside(name: str) -> str:
    return f"{name}_rebuilt"


_META: Final = "rebuild"
_PUT_ASIDE: Final = {view.name: put_statement(view, _aside(view.name)) for view in VIEWS}
_SELECT_ASIDE: Final = {view.name: select_row(view, _aside(view.name)) for view in VIEWS}
_STEPS: Final = (
    f"SELECT rowid, originator_id, originator_version, at, digest, topic, state, payload FROM {EVENTS_TABLE}"
)
_SELECT_BY_STREAM: Final = (  # the plus keeps the planner on the index of streams: https://www.sqlite.org/optoverview.html
    f"{_STEPS} WHERE +rowid <= ? AND (originator_id, originator_version) > (?, ?)"
    " ORDER BY originator_id, originator_version LIMIT ?"
)
_SELECT_BY_POSITION: Final = f"{_STEPS} WHERE rowid > ? ORDER BY rowid LIMIT ?"
