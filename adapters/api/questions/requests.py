"""Requests for questions about what happened: check the arguments, then define what to run and how to respond."""

from collections.abc import Iterator
from typing import Final

from holdlog.adapters.api.events.ranges import Window, range_of, window_of
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions.presenter import hold_entry, wait_entry
from holdlog.adapters.api.questions.responses import ResourceHistory
from holdlog.adapters.api.questions.spans import Newest, Now, spans_of
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import page_size
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import NotFoundError
from holdlog.projections.spans import ClaimSpan, HoldSpan, WaitSpan

HISTORY_PAGE: Final = 100


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
        NotFoundError if nothing that overlaps it was ever claimed, InvalidError as `range_of`."""
        resource, size = self._rules.resource(resource), page_size(limit)
        self._rules.require_to_see(resource)

        def answer(reader: Reader) -> ResourceHistory:
            window, now = self._window(reader, since, until), self._now()
            holds, waits = Newest[HoldSpan](size), Newest[WaitSpan](size)
            for span in self._overlapping(reader, resource, now):
                if not window.includes(span.began, span.ended):
                    continue
                if isinstance(span, HoldSpan):
                    holds.add(span.began, span.key, span)
                else:
                    waits.add(span.began, span.key, span)
            found = ResourceHistory(
                resource=resource,
                holds=[hold_entry(self._visible(it), now.clock) for it in holds.found()],
                waits=[wait_entry(it, now.clock) for it in waits.found()],
                more=holds.more or waits.more or None,
            )
            return self._rules.shown(found)

        return Query(answer, large=True)

    def _overlapping(self, reader: Reader, resource: str, now: Now) -> Iterator[ClaimSpan]:
        """The holds and waits of all that overlaps a resource. Raises NotFoundError if nothing ever did."""
        names = [name for name in reader.ever_claimed(resource) if self._rules.grants.sees_claim(name)]
        if not names:
            raise NotFoundError.of_claim(resource)
        for name in names:
            yield from spans_of(reader, name, now)

    def _visible(self, hold: HoldSpan) -> HoldSpan:
        """Without the new name of what was moved, unless the caller may see that, too."""
        moved = hold.moved_to
        return hold if moved is None or self._rules.grants.sees_claim(moved) else hold._replace(moved_to=None)

    def _window(self, reader: Reader, since: PointInTime | None, until: PointInTime | None) -> Window:
        return window_of(reader, range_of(reader, since, until), since, until)

    def _now(self) -> Now:
        return Now(self._rules.clock(), self._rules.steady())
