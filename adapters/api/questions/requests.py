"""Requests for questions about what happened: check the arguments, then define what to run and how to respond."""

from collections.abc import Iterator
from heapq import heappush, heappushpop
from typing import Final, Generic, TypeVar

from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions.presenter import hold_entry, wait_entry
from holdlog.adapters.api.questions.responses import ResourceHistory
from holdlog.adapters.api.questions.window import Window
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import page_size
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import NotFoundError
from holdlog.projections.past_board import Ending
from holdlog.projections.spans import ClaimSpan, HoldSpan, OpenSpans, WaitSpan

HISTORY_PAGE: Final = 100
_CHUNK: Final = 500
"""Events of a stream read at once."""

AnySpan = TypeVar("AnySpan", HoldSpan, WaitSpan)


class QuestionRequests:
    """Builds requests about what happened. They need the grants that requests about the present need."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def history(
        self,
        resource: str,
        since: PointInTime | None = None,
        until: PointInTime | None = None,
        limit: int = HISTORY_PAGE,
    ) -> Query[ResourceHistory]:
        """Who held a resource, or one that overlaps it, and who waited; `limit` applies to both. The query raises
        NotFoundError if nothing that overlaps it was ever claimed, InvalidError as `Window.of`."""
        resource, size = self._rules.resource(resource), page_size(limit)
        self._rules.require_to_see(resource)

        def answer(reader: Reader) -> ResourceHistory:
            window, now = Window.of(reader, since, until), self._rules.clock()
            names = [name for name in reader.ever_claimed(resource) if self._rules.grants.sees_claim(name)]
            if not names:
                raise NotFoundError.of_claim(resource)
            holds, waits = _Newest[HoldSpan](size), _Newest[WaitSpan](size)
            for name in names:
                for span in self.spans(reader, name):
                    if window.includes(span.began, span.ended):
                        holds.add(span) if isinstance(span, HoldSpan) else waits.add(span)
            found = ResourceHistory(
                resource=resource,
                holds=[hold_entry(self._visible(it), now) for it in holds.found()],
                waits=[wait_entry(it, now) for it in waits.found()],
                more=holds.more or waits.more or None,
            )
            return self._rules.shown(found)

        return Query(answer, large=True)

    def spans(self, reader: Reader, resource: str) -> Iterator[ClaimSpan]:
        """All holds and waits of one resource. A lease that is due has ended, although the log may not know it yet."""
        stream, after, spans = claim_stream(resource), 0, OpenSpans()
        while page := reader.following(stream, after, _CHUNK):
            for recorded in page:
                yield from spans.apply(recorded)
            after = page[-1].envelope.version
        yield from self.unended(reader, spans)

    def unended(self, reader: Reader, spans: OpenSpans) -> Iterator[ClaimSpan]:
        """The spans that have not ended in the log, as of now."""
        now, steady = self._rules.clock(), self._rules.steady()
        leases = reader.leases.of(list({key[0] for key in (*spans.holds, *spans.waits)})) if spans.is_any else []
        due = {lease.key: now - (steady - lease.deadline) for lease in leases if lease.deadline <= steady}
        for hold in spans.holds.values():
            at = due.get(hold.key)
            yield hold if at is None else hold._replace(ending=Ending("expired", at, at))
        for wait in spans.waits.values():
            at = due.get(wait.key)
            yield wait if at is None else wait._replace(outcome="absent", ended=at)

    def _visible(self, hold: HoldSpan) -> HoldSpan:
        """Without the new name of what was moved, unless the caller may see that, too."""
        moved = hold.moved_to
        return hold if moved is None or self._rules.grants.sees_claim(moved) else hold._replace(moved_to=None)


class _Newest(Generic[AnySpan]):
    """Keeps the newest `size` spans. `more`: there were others."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, tuple[str, int], AnySpan]] = []
        self.more = False

    def add(self, span: AnySpan) -> None:
        entry = (span.began, span.key, span)
        if len(self._heap) < self._size:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)
            self.more = True

    def found(self) -> list[AnySpan]:
        return [span for _, _, span in sorted(self._heap, reverse=True)]
