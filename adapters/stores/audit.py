"""Does a log hold together, and are the views what it says? One pass by stream, in little memory. Mends nothing."""

import sqlite3
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from holdlog.adapters.stores.mapper import event_of, expected_digest
from holdlog.adapters.stores.schema import EVENTS_TABLE, SELECT_EVENTS, select_from, select_row
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.refusals import StoreError
from holdlog.projections import fold
from holdlog.projections.fold import VIEWS, State
from holdlog.projections.projection import Table
from holdlog.projections.rebuild import Step, following, initial

MAX_EXAMPLES: Final = 3
PROGRESS_EVERY: Final = 4_000
_BROKEN: Final = (ValueError, TypeError, AttributeError, KeyError, OverflowError)
"""What a row that somebody else wrote may cause in code that trusts its types."""

Row = tuple[Any, ...]


class Faults:
    """How many, and the first few by name."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []

    def add(self, example: str) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return "; ".join(self.examples) + (f"; and {more:,} more" if more else "")


class Audit:
    """What one pass found. `connection`: in a read transaction, with a `text_factory` that takes any bytes."""

    def __init__(self, connection: sqlite3.Connection, progress: Callable[[int, int], None]) -> None:
        self.events = 0
        self.streams = 0
        self.positions = Faults()
        self.versions = Faults()
        self.times = Faults()
        self.digests = Faults()
        self.unreadable = Faults()
        self.views = Faults()
        self._connection = connection
        self._progress = progress
        self._found = dict.fromkeys((view.name for view in VIEWS), 0)
        self._missing = {view.name for view in VIEWS} - _tables(connection)
        self._total = connection.execute(f"SELECT COUNT(*) FROM {EVENTS_TABLE} NOT INDEXED").fetchone()[0]

    def run(self) -> None:
        """Raises sqlite3.Error where the file itself cannot be read."""
        for missing in sorted(self._missing):
            self.views.add(f"the table {missing} is missing")
        rows = self._connection.execute(f"{SELECT_EVENTS} ORDER BY originator_id, originator_version")
        for stream, of_stream in groupby(rows, key=itemgetter(1)):
            self.streams += 1
            state = self._follow(stream, of_stream)
            if state is not None:
                self._compare(stream, state)
        self._progress(self.events, self._total)
        for view in VIEWS:
            if view.name not in self._missing:
                self._find_strays(view)
        self._check_order()

    def _follow(self, stream: str, rows: Iterator[Row]) -> State | None:
        """The state after the stream's last event, None where it cannot be known."""
        state = self._initial(stream)
        last: object = 0
        previous: Any = NO_DIGEST
        for row in rows:
            self._count()
            version = row[2]
            if not isinstance(last, int) or version != last + 1:
                self.versions.add(f"{stream}@{version} follows version {last}")
            if not _verifies(row, previous):
                self.digests.add(f"{stream}@{version}")
            last, previous = version, row[11]
            if state is not None:
                state = self._evolved(state, row)
        return state

    def _initial(self, stream: str) -> State | None:
        try:
            state = initial(stream)
            if state.stream == stream:
                return state
            self.unreadable.add(f"stream {stream!r} is not spelled as holdlog spells it")
        except StoreError as error:
            self.unreadable.add(str(error))
        except _BROKEN:
            self.unreadable.add(f"stream {stream!r} is no text")
        return None

    def _evolved(self, state: State, row: Row) -> State | None:
        stream, version, topic, body, at = row[1:6]
        digest, payload = row[11], row[13]
        try:
            # Versions with a gap were told; views are compared as if there were none.
            before: State = state._replace(version=version - 1)
            return following(before, Step(stream, version, at, digest, event_of(stream, version, topic, body, payload)))
        except StoreError as error:
            self.unreadable.add(str(error))
        except _BROKEN:
            self.unreadable.add(f"event {stream}@{version} cannot be read")
        return None

    def _compare(self, stream: str, state: State) -> None:
        table, row = fold.put(state)
        if table.name in self._missing:
            return
        found = self._connection.execute(_SELECT_ROW[table.name], row[: table.key]).fetchone()
        if found is None:
            self.views.add(f"{table.name} has no row of {stream}")
            return
        self._found[table.name] += 1
        if found != row:
            differing = (name for name, kept, told in zip(table.columns, found, row, strict=True) if kept != told)
            self.views.add(f"{table.name} and the log differ in {', '.join(differing)} of {stream}")

    def _find_strays(self, view: Table) -> None:
        rows = self._connection.execute(f'SELECT COUNT(*) FROM "{view.name}"').fetchone()[0]
        if rows == self._found[view.name]:
            return
        for row in self._connection.execute(select_from(view)):
            stream = _stream_of(view, row)
            if self._connection.execute(_SELECT_STREAM, (stream,)).fetchone() is None:
                self.views.add(f"{view.name} has a row {'/'.join(map(str, row[: view.key]))} that is not in the log")

    def _check_order(self) -> None:
        if self.events != self._total:
            self.positions.add(f"{self._total:,} events, of which the index of streams knows {self.events:,}")
        last = self._connection.execute(f"SELECT MAX(rowid) FROM {EVENTS_TABLE}").fetchone()[0] or 0
        if last != self._total:
            # SQLite's one writer leaves no gaps: only somebody who takes rows out does.
            self.positions.add(f"the last position is {last:,}, but there are {self._total:,} events")
        for position, version, stream in self._connection.execute(_SELECT_TIMES_BACKWARDS):
            self.times.add(f"{stream}@{version} (position {position})")

    def _count(self) -> None:
        self.events += 1
        if self.events % PROGRESS_EVERY == 0:
            self._progress(self.events, self._total)


def any_text(text: bytes) -> str:
    """A `text_factory` that reads what is no UTF-8, too; it then differs from whatever it is compared with."""
    return text.decode("utf-8", "surrogateescape")


def _verifies(row: Row, previous: bytes) -> bool:
    try:
        return bool(expected_digest(row, previous) == row[11])
    except _BROKEN:
        return False


def _stream_of(view: Table, row: Row) -> str | None:
    try:
        return fold.state_of(view, row).stream
    except _BROKEN:
        return None


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


_SELECT_ROW: Final = {view.name: select_row(view) for view in VIEWS}
_SELECT_STREAM: Final = f"SELECT 1 FROM {EVENTS_TABLE} WHERE originator_id = ? LIMIT 1"
_SELECT_TIMES_BACKWARDS: Final = f"""
SELECT rowid, originator_version, originator_id FROM (
    SELECT rowid, originator_version, originator_id, at, LAG(at) OVER (ORDER BY rowid) AS before FROM {EVENTS_TABLE}
) WHERE at < before"""
