"""Reads who held a resource and who waited for it, from the log and from the leases that are due."""

from collections.abc import Iterator
from heapq import heappush, heappushpop
from typing import Final, Generic, NamedTuple, TypeVar

from holdlog.domain.claims.board import Key
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.projections.past_board import Ending
from holdlog.projections.spans import ClaimSpan, OpenSpans

_CHUNK: Final = 500
"""Events of a stream read at once."""

Found = TypeVar("Found")


class Now(NamedTuple):
    """The present, by the clock of the log and by that of leases: microseconds."""

    clock: int
    steady: int


def spans_of(reader: Reader, resource: str, now: Now) -> Iterator[ClaimSpan]:
    """All holds and waits of one resource. A lease that is due has ended, although the log may not know it yet."""
    spans = OpenSpans()
    for recorded in events_of(reader, claim_stream(resource)):
        yield from spans.apply(recorded)
    keys = [key for key, _ in (*spans.holds, *spans.waits)]
    leases = reader.leases.of(keys[:1]) if keys else []
    due = {it.key: now.clock - (now.steady - it.deadline) for it in leases if it.deadline <= now.steady}
    for hold in spans.holds.values():
        at = due.get(hold.key)
        yield hold if at is None else hold._replace(ending=Ending("expired", at, at))
    for wait in spans.waits.values():
        at = due.get(wait.key)
        yield wait if at is None else wait._replace(outcome="absent", ended=at)


def events_of(reader: Reader, stream: str, after: int = 0) -> Iterator[Recorded[Event]]:
    """The events of a stream above a version, oldest first."""
    while page := reader.following(stream, after, _CHUNK):
        yield from page
        after = page[-1].envelope.version


class Newest(Generic[Found]):
    """Keeps the newest `size` of all that is added. `more`: there was something else."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, Key, Found]] = []
        self.more = False

    def add(self, began: int, key: Key, found: Found) -> None:
        """`key`: unique; of two that began together, the larger one is newer."""
        entry = (began, key, found)
        if len(self._heap) < self._size:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)
            self.more = True

    def found(self) -> list[Found]:
        """Newest first."""
        return [it for _, _, it in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]
