"""Threads through one connection to a file: their rows, and the events that these lead to."""

import sqlite3
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

from holdlog.adapters.stores.mapper import unseal
from holdlog.adapters.stores.schema import EVENT_COLUMNS, EVENTS_TABLE, select_from
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.thread import Datum, Kind, Thread
from holdlog.projections.threads import DATA, ITEMS, THREADS, datum_of, thread_of

_SELECT_THREAD: Final = f"{select_from(THREADS)} WHERE thread = ?"
_SELECT_THREADS: Final = f"{select_from(THREADS)} WHERE thread > ? ORDER BY thread LIMIT ?"
_SELECT_DATA: Final = f"{select_from(DATA)} WHERE thread = ? AND live = 1 ORDER BY key"
_SELECT_DATUM: Final = f"{select_from(DATA)} WHERE thread = ? AND live = 1 AND key = ?"
_SELECT_CHANGED: Final = f"SELECT key FROM {DATA.name} WHERE thread = ? AND version > ? ORDER BY key LIMIT ?"
_RESULTS: Final = f"SELECT name FROM {ITEMS.name} WHERE thread = ? AND kind = 'result' AND version > ?"
_SELECT_CHECKSUMS: Final = f"{_RESULTS} ORDER BY version"
_SELECT_CHECKSUM: Final = f"{_RESULTS} AND name = ? AND name <> ''"  # as the index has it, or it would not be used
_AT: Final = f"SELECT originator_version FROM {EVENTS_TABLE} WHERE originator_id = ?"
_SELECT_AT_POSITION: Final = f"{_AT} AND rowid <= ? ORDER BY originator_version DESC LIMIT 1"
_SELECT_AT_TIME: Final = f"{_AT} AND at <= ? ORDER BY originator_version DESC LIMIT 1"


class SqliteThreads:
    """A part of the reader."""

    connection: sqlite3.Connection

    def thread(self, thread: str) -> Thread:
        row = self.connection.execute(_SELECT_THREAD, (thread,)).fetchone()
        return Thread(thread) if row is None else thread_of(row)

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        return [thread_of(row) for row in self.connection.execute(_SELECT_THREADS, (after or "", limit))]

    def thread_events(
        self,
        thread: str,
        kinds: Sequence[Kind],
        after: int,
        before: int | None,
        limit: int,
        newest: bool,
        key: str | None = None,
    ) -> list[Recorded[Event]]:
        below = sys.maxsize if before is None else before
        place = (after, below) if key is None else (after, below, key)
        parameters = [it for kind in kinds for it in (thread, kind, *place, limit)]
        select = _select_events(len(kinds), newest, key is not None)
        rows = self.connection.execute(select, (*parameters, thread_stream(thread), limit))
        return [unseal(row) for row in rows]

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        if wanted is None:
            return [name for (name,) in self.connection.execute(_SELECT_CHECKSUMS, (thread, after))]
        found = (self.connection.execute(_SELECT_CHECKSUM, (thread, after, it)).fetchone() for it in wanted)
        return [row[0] for row in found if row is not None]

    def thread_data(self, thread: str, keys: Sequence[str] | None) -> list[Datum]:
        if keys is None:
            return [datum_of(row) for row in self.connection.execute(_SELECT_DATA, (thread,))]
        found = (self.connection.execute(_SELECT_DATUM, (thread, key)).fetchone() for key in sorted(set(keys)))
        return [datum_of(row) for row in found if row is not None]

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        return [key for (key,) in self.connection.execute(_SELECT_CHANGED, (thread, after, limit))]

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        if position is not None:
            row = self.connection.execute(_SELECT_AT_POSITION, (stream, position)).fetchone()
        else:
            row = self.connection.execute(_SELECT_AT_TIME, (stream, sys.maxsize if at is None else at)).fetchone()
        return row[0] if row else 0


@cache
def _select_events(kinds: int, newest: bool, with_key: bool) -> str:
    """One statement, so that all kinds are read at the same moment; each by its own stretch of the index."""
    order = "ORDER BY version DESC LIMIT ?" if newest else "ORDER BY version LIMIT ?"
    named = " AND name = ? AND name <> ''" if with_key else ""
    place = f"thread = ? AND kind = ? AND version > ? AND version < ?{named}"
    of_kind = f"SELECT DISTINCT version FROM {ITEMS.name} WHERE {place}"
    found = " UNION ALL ".join([f"SELECT * FROM ({of_kind} {order})"] * kinds)
    columns = ", ".join(EVENT_COLUMNS)
    return (
        f"SELECT rowid, {columns} FROM ({found}) CROSS JOIN {EVENTS_TABLE}"
        f" WHERE originator_id = ? AND originator_version = version {order}"
    )
