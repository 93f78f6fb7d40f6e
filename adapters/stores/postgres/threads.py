"""Threads in PostgreSQL; the counterpart of stores/sqlite/threads.py."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.postgres.leases import Rows
from holdlog.adapters.stores.sqlite.schema import EVENT_COLUMNS, EVENTS_TABLE, select_from
from holdlog.adapters.stores.sqlite.threads import seek
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.thread import Datum, ItemKind, Thread
from holdlog.projections.projection import Row, Table
from holdlog.projections.threads import DATA, ITEMS, THREADS, datum_of

_SELECT_THREAD: Final = f"{select_from(THREADS)} WHERE thread = %s"
_SELECT_THREADS: Final = f"{select_from(THREADS)} WHERE thread > %s ORDER BY thread LIMIT %s"
_SELECT_DATA: Final = f"{select_from(DATA)} WHERE thread = %s AND live = 1"
_SELECT_CHANGED: Final = f"SELECT key FROM {DATA.name} WHERE thread = %s AND version > %s ORDER BY key LIMIT %s"
_SELECT_CHECKSUMS: Final = (
    f"SELECT name FROM {ITEMS.name} WHERE thread = %s AND kind = 'result' AND version > %s ORDER BY version"
)
# Bound the rows as one range of the index of names: with separate conditions on its two columns, the planner might
# choose the other key.
_NEWEST: Final = (
    f"SELECT version FROM {ITEMS.name} WHERE thread = wanted.thread AND kind = 'result' AND name <> ''"
    f" AND (name, version) >= (wanted.name, 0) AND (name, version) <= (wanted.name, {sys.maxsize})"
    " ORDER BY name DESC, version DESC LIMIT 1"
)
PREPARE_THREADS: Final = (
    f"PREPARE prefetch_threads (text[]) AS {select_from(THREADS)} WHERE thread = ANY($1)",
    f"""PREPARE prefetch_results (text[], text[]) AS
    SELECT thread, name, ({_NEWEST}) FROM unnest($1, $2) AS wanted (thread, name)""",
)
"""What batches with thread commands read first: the threads' states, and the newest version of each result."""
EXECUTE_THREADS: Final = "EXECUTE prefetch_threads(%s); EXECUTE prefetch_results(%s, %s)"
_SELECT_RESULTS: Final = (
    f"SELECT thread, name, ({_NEWEST}) FROM (SELECT %s::text AS thread, name FROM unnest(%s::text[]) AS name) AS wanted"
)


class PostgresThreads:
    """The part of the reader that reads threads."""

    rows: Rows

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        raise NotImplementedError

    def thread(self, thread: str) -> Thread:
        rows = self.rows(_SELECT_THREAD, (thread,))
        return self._states(THREADS, rows)[0] if rows else Thread(thread)

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        return self._states(THREADS, self.rows(_SELECT_THREADS, (after or "", None if limit < 0 else limit)))

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
        parameters = {
            "thread": thread,
            "stream": thread_stream(thread),
            "after": after,
            "before": sys.maxsize if before is None else before,
            "limit": None if limit < 0 else limit,
        } | ({} if key is None else {"key": key})
        return [decode(row) for row in self.rows(select_events(tuple(kinds), newest, key is not None), parameters)]

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        if wanted is None:
            return [name for (name,) in self.rows(_SELECT_CHECKSUMS, (thread, after))]
        found = self.rows(_SELECT_RESULTS, (thread, list(wanted)))
        return [name for _, name, version in found if version is not None and version > after]

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        if keys is None:
            select = f"{_SELECT_DATA} AND key > %s ORDER BY key LIMIT %s"
            rows = self.rows(select, (thread, after or "", None if limit < 0 else limit))
        else:
            rows = sorted(self.rows(f"{_SELECT_DATA} AND key = ANY(%s)", (thread, list(keys))))
        return [datum_of(row) for row in rows]

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        return [key for (key,) in self.rows(_SELECT_CHANGED, (thread, after, None if limit < 0 else limit))]

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        if position is not None:
            return self._seek("notification_id", stream, position)
        return self._seek("at", stream, sys.maxsize if at is None else at)

    def _seek(self, column: str, stream: str, bound: int) -> int:
        rows: list[tuple[Any, ...]] = self.rows(
            seek(column, "%(stream)s", "%(bound)s"), {"stream": stream, "bound": bound}
        )
        return int(rows[0][0])


@cache
def select_events(kinds: tuple[ItemKind, ...], newest: bool, with_key: bool) -> str:
    """One statement, so that all kinds are read at the same moment; each reads its own range of an index."""
    down = " DESC" if newest else ""
    if with_key:
        condition = "(name, version) > (%(key)s, %(after)s) AND (name, version) < (%(key)s, %(before)s) AND name <> ''"
        order = f"ORDER BY name{down}, version{down}"
    else:
        condition = "version > %(after)s AND version < %(before)s"
        order = f"ORDER BY version{down}"
    found = " UNION ALL ".join(
        f"(SELECT {_version(kind, with_key)} FROM {ITEMS.name} WHERE thread = %(thread)s AND kind = '{kind}'"
        f" AND {condition} {order} LIMIT %(limit)s)"
        for kind in kinds
    )
    columns = ", ".join(EVENT_COLUMNS)
    # Looked up one by one (OFFSET 0): a join could read the whole stream instead.
    return (
        f"SELECT event.* FROM (SELECT version FROM ({found}) AS of_kinds ORDER BY version{down} LIMIT %(limit)s)"
        f" AS found CROSS JOIN LATERAL (SELECT notification_id, {columns} FROM {EVENTS_TABLE}"
        " WHERE originator_id = %(stream)s AND originator_version = found.version OFFSET 0) AS event"
        f" ORDER BY found.version{down}"
    )


def _version(kind: ItemKind, with_key: bool) -> str:
    """The version column; deduplicated, because a change of data has a row for each key."""
    return "DISTINCT version" if kind == "data" and not with_key else "version"
