"""Requests for questions about what happened: check the arguments, then define what to run and how to respond."""

from typing import Final

from holdlog.adapters.api.claims.files import FileBlame, file_blame
from holdlog.adapters.api.events.ranges import range_of, window_of
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions.presenter import hold_entry, wait_entry
from holdlog.adapters.api.questions.responses import ResourceHistory
from holdlog.adapters.api.questions.spans import Newest, SpanReader
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import page_size
from holdlog.domain.ports import Reader
from holdlog.projections.spans import HoldSpan, WaitSpan

HISTORY_PAGE: Final = 100


class QuestionRequests:
    """Builds requests about what happened. They need the grants that requests about the present need."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def file_changes(self, resource: str, limit: int = HISTORY_PAGE) -> Query[FileBlame]:
        """Who changed a file last, as hooks recorded it."""
        return file_blame(self._rules, resource, limit)

    def history(
        self,
        resource: str,
        since: PointInTime | None = None,
        until: PointInTime | None = None,
        limit: int = HISTORY_PAGE,
    ) -> Query[ResourceHistory]:
        """Who held a resource, or one that overlaps it, and who waited; `limit` applies to both. The query raises
        NotFoundError if nothing that overlaps it was ever claimed or changed, InvalidError as `range_of`."""
        resource, size = self._rules.resource(resource), page_size(limit)
        self._rules.require_to_see(resource)

        def answer(reader: Reader) -> ResourceHistory:
            window = window_of(reader, range_of(reader, since, until), since, until)
            spans = SpanReader(reader, self._rules)
            holds, waits = Newest[HoldSpan](size), Newest[WaitSpan](size)
            for span in spans.overlapping(resource):
                if not window.includes(span.began, span.ended):
                    continue
                if isinstance(span, HoldSpan):
                    holds.add(span.began, span.key, span)
                else:
                    waits.add(span.began, span.key, span)
            found = ResourceHistory(
                resource=resource,
                holds=[hold_entry(it, spans.now) for it in holds.found()],
                waits=[wait_entry(it, spans.now) for it in waits.found()],
                more=holds.more or waits.more or None,
            )
            return self._rules.shown(found)

        return Query(answer, large=True)
