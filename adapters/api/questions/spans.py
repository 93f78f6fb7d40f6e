"""Reads who held a resource and who waited for it, from the log and from the leases that are due."""

from collections.abc import Iterator
from heapq import heappush, heappushpop
from typing import Generic, TypeVar

from holdlog.adapters.api.rules import RequestRules
from holdlog.domain.claims.board import Key
from holdlog.domain.history import oldest_first
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import NotFoundError
from holdlog.projections.past_board import Ending
from holdlog.projections.spans import ClaimSpan, HoldSpan, OpenSpans

Found = TypeVar("Found")


class SpanReader:
    """Reads what the caller may see, as of the moment when it was made. `now`: microseconds UTC."""

    def __init__(self, reader: Reader, rules: RequestRules) -> None:
        self._reader, self._grants = reader, rules.grants
        self.now, self._steady = rules.clock(), rules.steady()

    def overlapping(self, resource: str) -> Iterator[ClaimSpan]:
        """The holds and waits of all that overlaps a resource. Raises NotFoundError if the log has no
        event of any."""
        names = [name for name in self._reader.ever_claimed(resource) if self._grants.sees_claim(name)]
        if not names:
            raise NotFoundError.of_claim(resource)
        for name in names:
            yield from self.of(name)

    def of(self, resource: str) -> Iterator[ClaimSpan]:
        """All holds and waits of one resource; none if the caller may not see them. A lease that is due has ended,
        although the log may not know it yet."""
        if not self._grants.sees_claim(resource):
            return
        spans = OpenSpans()
        for recorded in oldest_first(self._reader, claim_stream(resource)):
            for span in spans.apply(recorded):
                yield self._visible(span) if isinstance(span, HoldSpan) else span
        due = self._due(resource) if spans.holds or spans.waits else {}
        for hold in spans.holds.values():
            at = due.get(hold.key)
            yield hold if at is None else hold._replace(ending=Ending("expired", at, at))
        for wait in spans.waits.values():
            at = due.get(wait.key)
            yield wait if at is None else wait._replace(outcome="absent", ended=at)

    def _due(self, resource: str) -> dict[Key, int]:
        """When leases of a resource were due (microseconds UTC)."""
        leases = self._reader.leases.of([resource])
        return {it.key: self.now - (self._steady - it.deadline) for it in leases if it.deadline <= self._steady}

    def _visible(self, hold: HoldSpan) -> HoldSpan:
        """Without the new name of what was moved, unless the caller may see that, too."""
        moved = hold.moved_to
        return hold if moved is None or self._grants.sees_claim(moved) else hold._replace(moved_to=None)


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
