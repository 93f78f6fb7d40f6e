"""Reads threads: their rows, and the events that these refer to."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sql.text import ALL, NONE, Statements, bound
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.thread import Datum, ItemKind, Thread
from holdlog.projections.projection import Row, Table
from holdlog.projections.threads import DATA, ITEMS, THREADS, datum_of

_SELECT_THREAD: Final = f"{select_from(THREADS)} WHERE thread = :thread"
_SELECT_THREADS: Final = f"{select_from(THREADS)} WHERE thread > :after ORDER BY thread LIMIT :limit"
_COUNT_THREADS: Final = f"SELECT COUNT(*) FROM {THREADS.name}"
_COUNT_ITEMS: Final = (
    f"SELECT COUNT(*) FROM {ITEMS.name} WHERE thread = :thread AND kind = :kind"
    " AND version > :after AND version <= :upto"
)
_CURRENT: Final = f"{select_from(DATA)} WHERE thread = :thread AND live = 1"
_SELECT_DATA: Final = f"{_CURRENT} AND key > :after ORDER BY key LIMIT :limit"
_SELECT_DATUM: Final = f"{_CURRENT} AND key = :key"
_SELECT_CHANGED: Final = (
    f"SELECT key FROM {DATA.name} WHERE thread = :thread AND version > :after ORDER BY key LIMIT :limit"
)
_RESULTS: Final = f"SELECT name FROM {ITEMS.name} WHERE thread = :thread AND kind = 'result' AND version > :after"
_SELECT_CHECKSUMS: Final = f"{_RESULTS} ORDER BY version"
_SELECT_CHECKSUM: Final = f"{_RESULTS} AND name = :name AND name <> ''"  # the index's exact condition


class SqlThreads(Statements):
    """The part of the reader that reads threads."""

    recorder: LogRecorder

    def state(self, view: Table, row: Row) -> Any:
        """The state of a row of a view."""
        raise NotImplementedError

    def states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        """The states of rows of a view."""
        raise NotImplementedError

    def thread(self, thread: str) -> Thread:
        rows = self.rows(_SELECT_THREAD, {"thread": thread})
        return self.state(THREADS, rows[0]) if rows else Thread(thread)

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        return self.states(THREADS, self.rows(_SELECT_THREADS, {"after": after or "", "limit": bound(limit)}))

    def thread_count(self) -> int:
        return int(self.rows(_COUNT_THREADS, NONE)[0][0])

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
        parameters: dict[str, object] = {"thread": thread, "after": after, "limit": bound(limit)}
        parameters |= {"before": ALL if before is None else before} | ({} if key is None else {"key": key})
        found = [row[0] for row in self.rows(_select_versions(tuple(kinds), newest, key is not None), parameters)]
        events = self.recorder.select_versions(thread_stream(thread), found, self)  # an event never changes
        return [decode(events[version]) for version in found]

    def item_count(self, thread: str, kind: ItemKind, after: int, upto: int) -> int:
        parameters = {"thread": thread, "kind": kind, "after": after, "upto": upto}
        return int(self.rows(_COUNT_ITEMS, parameters)[0][0])

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        parameters: dict[str, object] = {"thread": thread, "after": after}
        if wanted is None:
            return [name for (name,) in self.rows(_SELECT_CHECKSUMS, parameters)]
        return [name for name in wanted if self.rows(_SELECT_CHECKSUM, parameters | {"name": name})]

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        if keys is None:
            rows = self.rows(_SELECT_DATA, {"thread": thread, "after": after or "", "limit": bound(limit)})
        else:
            found = (self.rows(_SELECT_DATUM, {"thread": thread, "key": key}) for key in sorted(set(keys)))
            rows = [row for of_key in found for row in of_key]
        return [datum_of(row) for row in rows]

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        found = self.rows(_SELECT_CHANGED, {"thread": thread, "after": after, "limit": bound(limit)})
        return [key for (key,) in found]


@cache
def _select_versions(kinds: tuple[ItemKind, ...], newest: bool, with_key: bool) -> str:
    """One statement, so that all kinds are read at the same moment; each reads its own range of an index."""
    down = " DESC" if newest else ""
    if with_key:
        condition = "(name, version) > (:key, :after) AND (name, version) < (:key, :before) AND name <> ''"
        order = f"ORDER BY name{down}, version{down}"
    else:
        condition = "version > :after AND version < :before"
        order = f"ORDER BY version{down}"
    found = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {_version(kind, with_key)} FROM {ITEMS.name} WHERE thread = :thread AND kind = '{kind}'"
        f" AND {condition} {order} LIMIT :limit) AS of_{kind}"
        for kind in kinds
    )
    return f"SELECT version FROM ({found}) AS of_kinds ORDER BY version{down} LIMIT :limit"


def _version(kind: ItemKind, with_key: bool) -> str:
    """The version column; deduplicated, because a change of data has a row for each key."""
    return "DISTINCT version" if kind == "data" and not with_key else "version"
