"""Threads in the memory of one process; the counterpart of stores/sqlite/threads.py."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice, takewhile
from operator import itemgetter
from typing import NamedTuple, Protocol

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.thread import Datum, ItemKind, Thread
from holdlog.projections.fold import State
from holdlog.projections.projection import Cell, Put
from holdlog.projections.threads import DATA, datum_of


class HeldItems(NamedTuple):
    """The contents of one thread. `positions`: indexes of its events in the log, by version; `items`: kind, version
    and name of each; `data`: rows by key; `results`: the last version of each checksum."""

    positions: list[int]
    items: list[tuple[str, int, str]]
    data: dict[str, tuple[Cell, ...]]
    results: dict[str, int]

    def copy(self) -> "HeldItems":
        return HeldItems(self.positions.copy(), self.items.copy(), self.data.copy(), self.results.copy())

    def put(self, put: Put) -> None:
        if put.table is DATA:
            self.data[str(put.row[1])] = put.row
            return
        _, kind, version, name, _ = put.row
        self.items.append((kind, version, name))  # type: ignore[arg-type]
        if kind == "result":
            self.results[str(name)] = version  # type: ignore[assignment]


NOTHING = HeldItems([], [], {}, {})
_version = itemgetter(1)


class _Log(Protocol):
    events: list[EncodedEvent]
    states: dict[str, State]
    held: dict[str, HeldItems]

    def _recorded(self, index: int) -> Recorded[Event]: ...


class MemoryThreads:
    """The reader's methods for threads."""

    def thread(self: _Log, thread: str) -> Thread:
        found = self.states.get(thread_stream(thread))
        return found if isinstance(found, Thread) else Thread(thread)

    def threads(self: _Log, after: str | None, limit: int) -> list[Thread]:
        found = [it for it in self.states.values() if isinstance(it, Thread) and (after is None or it.thread > after)]
        found.sort(key=lambda it: it.thread)
        return found if limit < 0 else found[:limit]

    def thread_events(
        self: _Log,
        thread: str,
        kinds: Sequence[ItemKind],
        after: int,
        before: int | None,
        limit: int,
        newest: bool,
        key: str | None = None,
    ) -> list[Recorded[Event]]:
        held = self.held.get(thread, NOTHING)
        first = bisect_right(held.items, after, key=_version)
        end = len(held.items) if before is None else bisect_left(held.items, before, key=_version)
        found: dict[int, None] = {}
        for index in range(end - 1, first - 1, -1) if newest else range(first, end):
            kind, version, name = held.items[index]
            if len(found) == limit and version not in found:
                break
            if kind in kinds and key in (None, name):
                found[version] = None
        return [self._recorded(held.positions[version - 1]) for version in found]

    def checksums(self: _Log, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        held = self.held.get(thread, NOTHING)
        if wanted is not None:
            return [name for name in wanted if held.results.get(name, 0) > after]
        newer = takewhile(lambda it: it[1] > after, reversed(held.items))
        return [name for kind, _, name in newer if kind == "result"][::-1]

    def thread_data(
        self: _Log, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        rows = self.held.get(thread, NOTHING).data
        wanted = (key for key in sorted(rows) if (key > (after or "") if keys is None else key in keys))
        found = (datum_of(rows[key]) for key in wanted if rows[key][3])
        return list(found if limit < 0 else islice(found, limit))

    def changed_keys(self: _Log, thread: str, after: int, limit: int) -> list[str]:
        found = sorted(key for key, row in self.held.get(thread, NOTHING).data.items() if int(row[2] or 0) > after)
        return found if limit < 0 else found[:limit]

    def version_at(self: _Log, stream: str, position: int | None, at: int | None) -> int:
        found = [
            it.stored.originator_version
            for index, it in enumerate(self.events)
            if it.stored.originator_id == stream
            and (position is None or index < position)
            and (at is None or it.extra[0] <= at)
        ]
        return found[-1] if found else 0
