"""Threads through one connection to a file: their rows, and the events that these refer to."""

import sqlite3
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.sqlite.schema import EVENT_COLUMNS, EVENTS_TABLE, select_from
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.thread import Datum, ItemKind, Thread
from holdlog.projections.projection import Row, Table
from holdlog.projections.threads import DATA, ITEMS, THREADS, datum_of

_SELECT_THREAD: Final = f"{select_from(THREADS)} WHERE thread = ?"
_SELECT_THREADS: Final = f"{select_from(THREADS)} WHERE thread > ? ORDER BY thread LIMIT ?"
_SELECT_DATA: Final = f"{select_from(DATA)} WHERE thread = ? AND live = 1 AND key > ? ORDER BY key LIMIT ?"
_SELECT_DATUM: Final = f"{select_from(DATA)} WHERE thread = ? AND live = 1 AND key = ?"
_SELECT_CHANGED: Final = f"SELECT key FROM {DATA.name} WHERE thread = ? AND version > ? ORDER BY key LIMIT ?"
_RESULTS: Final = f"SELECT name FROM {ITEMS.name} WHERE thread = ? AND kind = 'result' AND version > ?"
_SELECT_CHECKSUMS: Final = f"{_RESULTS} ORDER BY version"
_SELECT_CHECKSUM: Final = f"{_RESULTS} AND name = ? AND name <> ''"  # the index's exact condition; else it is not used


class SqliteThreads:
    """The part of the reader that reads threads."""

    connection: sqlite3.Connection

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        raise NotImplementedError

    def thread(self, thread: str) -> Thread:
        row = self.connection.execute(_SELECT_THREAD, (thread,)).fetchone()
        return Thread(thread) if row is None else self._states(THREADS, [row])[0]

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        return self._states(THREADS, self.connection.execute(_SELECT_THREADS, (after or "", limit)))

    def thread_events(
        self,
        thread: str,
        kinds: Sequence[ItemKind],
        after: int,
        before: int | None,
        limit: int,
        newest: bool,
        key: str | None = None,
    ) -> list[Recorded[Event]]:
        below = sys.maxsize if before is None else before
        bounds = (after, below) if key is None else (after, below, key)
        parameters = [it for kind in kinds for it in (thread, kind, *bounds, limit)]
        select = _select_events(len(kinds), newest, key is not None)
        rows = self.connection.execute(select, (*parameters, limit, thread_stream(thread)))
        return [decode(row) for row in rows]

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        if wanted is None:
            return [name for (name,) in self.connection.execute(_SELECT_CHECKSUMS, (thread, after))]
        found = (self.connection.execute(_SELECT_CHECKSUM, (thread, after, it)).fetchone() for it in wanted)
        return [row[0] for row in found if row is not None]

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        if keys is None:
            return [datum_of(row) for row in self.connection.execute(_SELECT_DATA, (thread, after or "", limit))]
        found = (self.connection.execute(_SELECT_DATUM, (thread, key)).fetchone() for key in sorted(set(keys)))
        return [datum_of(row) for row in found if row is not None]

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        return [key for (key,) in self.connection.execute(_SELECT_CHANGED, (thread, after, limit))]

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        if position is not None:
            return self._seek("rowid", stream, position)
        return self._seek("at", stream, sys.maxsize if at is None else at)

    def _seek(self, column: str, stream: str, bound: int) -> int:
        version: int = self.connection.execute(
            seek(column, ":stream", ":bound"), {"stream": stream, "bound": bound}
        ).fetchone()[0]
        return version


@cache
def seek(column: str, stream: str, bound: str) -> str:
    """Binary search for the last version of a stream whose column, which never decreases, is at most a bound. A
    statement for any store; `stream`, `bound`: its parameters."""
    events = f"FROM {EVENTS_TABLE} WHERE originator_id = {stream}"
    fits = f"EXISTS (SELECT 1 {events} AND originator_version = (low + high + 1) / 2 AND {column} <= {bound})"
    last = f"SELECT originator_version {events} ORDER BY originator_version DESC LIMIT 1"
    return (
        f"WITH RECURSIVE seek (low, high) AS (SELECT CAST(0 AS BIGINT), COALESCE(({last}), 0) UNION ALL"
        f" SELECT CASE WHEN {fits} THEN (low + high + 1) / 2 ELSE low END,"
        f" CASE WHEN {fits} THEN high ELSE (low + high + 1) / 2 - 1 END FROM seek WHERE low < high)"
        " SELECT low FROM seek WHERE low = high"
    )


@cache
def _select_events(kinds: int, newest: bool, with_key: bool) -> str:
    """One statement, so that all kinds are read at the same moment; each reads its own range of the index."""
    order = "ORDER BY version DESC" if newest else "ORDER BY version"
    named = " AND name = ? AND name <> ''" if with_key else ""
    condition = f"thread = ? AND kind = ? AND version > ? AND version < ?{named}"
    of_kind = f"SELECT DISTINCT version FROM {ITEMS.name} WHERE {condition}"
    found = " UNION ALL ".join([f"SELECT * FROM ({of_kind} {order} LIMIT ?)"] * kinds)
    columns = ", ".join(EVENT_COLUMNS)
    return (
        f"SELECT rowid, {columns} FROM (SELECT version FROM ({found}) {order} LIMIT ?) CROSS JOIN {EVENTS_TABLE}"
        f" WHERE originator_id = ? AND originator_version = version {order}"
    )
