"""Requests for events: check the arguments, then define what to run and how to respond."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from holdlog.adapters.api.events.event_filter import EventFilter, topics_of
from holdlog.adapters.api.events.event_view import event_view
from holdlog.adapters.api.events.paging import read_page, read_part
from holdlog.adapters.api.events.ranges import LogRange, range_of
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.request import BlockingQuery, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import BEGINNING, NAME, STORED_AGENT, number_of_seconds, page_size, text, whole
from holdlog.adapters.api.values.responses import Events
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError

EVENTS_PAGE: Final = 100
MAX_DIGITS: Final = 19
"""Of a position in a bookmark."""

Shown = TypeVar("Shown")


class EventRequests:
    """Builds requests for events. Leaves out events that the caller may not see, as if they did not exist."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def choice(
        self,
        namespace: str | None = None,
        prefix: str | None = None,
        kinds: Sequence[str] | None = None,
        resource: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
    ) -> EventFilter:
        """Build the filter of events. Raises DeniedError for a namespace, resource or thread whose events the caller
        may not see, because nothing would ever match."""
        if prefix is not None and namespace is None:
            raise InvalidError("prefix: requires namespace; it filters the keys of one")
        choice = EventFilter(
            namespace=None if namespace is None else text(namespace, "namespace", NAME),
            prefix="" if prefix is None else text(prefix, "prefix", BEGINNING),
            resource=None if resource is None else self._rules.resource(resource),
            thread=None if thread is None else text(thread, "thread", NAME),
            topics=topics_of(kinds),
            agent=None if agent is None else text(agent, "agent", STORED_AGENT),
            sees=self._rules.sees,
        )
        if choice.namespace is not None:
            self._rules.require("read-values", choice.namespace)
        if choice.thread is not None:
            self._rules.require("read-threads", choice.thread)
        if choice.resource is not None:
            self._rules.require_to_see(choice.resource)
        return choice

    def start(self, after: int | str | None) -> Query[tuple[str, int]]:
        """The id of the store, and the position after which to read: that of `after`, a position or a bookmark (the two
        as `ID:POSITION`), or the end of the log. The query raises InvalidError for a bookmark of another store."""
        store_id, position = _parsed(after)

        def answer(reader: Reader) -> tuple[str, int]:
            opened = reader.meta("store_id") or ""
            if store_id not in (None, opened):
                raise InvalidError(
                    "after: is a bookmark of another store; open that store, or pass a position of this one"
                )
            return opened, reader.position() if position is None else position

        return Query(answer)

    def range(self, first: PointInTime | None, last: PointInTime | None) -> Query[LogRange]:
        """The events from one moment to another; the query raises InvalidError as `range_of`."""
        return Query(lambda reader: range_of(reader, first, last))

    def part(
        self, choice: EventFilter, found: LogRange, show: Callable[[Recorded[Event]], Shown]
    ) -> Query[tuple[list[Shown], int]]:
        """The first matches of a range, each as `show` converted it, and the position after which to continue."""
        return Query(lambda reader: read_part(reader, choice, *found, show), large=True)

    def page(self, choice: EventFilter, after: int = 0, limit: int = EVENTS_PAGE) -> Query[Events]:
        """A page as it is now. The query raises InvalidError for a position beyond the end of the log."""
        position, size = whole(after, "after"), page_size(limit)
        return Query(lambda reader: self._page(reader, choice, position, size), large=True)

    def next_page(
        self, choice: EventFilter, after: int = 0, limit: int = EVENTS_PAGE, wait_seconds: float = 0
    ) -> BlockingQuery[Events]:
        """The next page with events. An empty one on a timeout, or if the log has more to scan than fits one call."""
        position, size = whole(after, "after"), page_size(limit)
        seconds, _ = self._rules.capped(number_of_seconds(wait_seconds, "wait_seconds"))

        def read(reader: Reader, elapsed: float) -> Events | None:
            nonlocal position
            page = self._page(reader, choice, position, size)
            if page.events or page.next_position < page.bookmark:
                return page
            position = page.next_position  # do not scan the same part again
            return None

        def timed_out(reader: Reader, elapsed: float) -> Events:
            return self._page(reader, choice, position, size)

        return BlockingQuery(read, timed_out, seconds, choice.concerns, large=True)

    def _page(self, reader: Reader, choice: EventFilter, after: int, limit: int) -> Events:
        shown, sees = self._rules.spelled, choice.sees
        page = read_page(reader, choice, after, limit, lambda recorded: event_view(recorded, shown, sees))
        return Events(events=page.events, next_position=page.scanned, bookmark=page.end)


def _parsed(after: object) -> tuple[str | None, int | None]:
    """The store id and the position that a bookmark, a position or None names. Raises InvalidError."""
    if not isinstance(after, str):
        return None, None if after is None else whole(after, "after")
    store_id, _, position = after.rpartition(":")
    if not (store_id and position.isascii() and position.isdigit() and len(position) <= MAX_DIGITS):
        raise InvalidError("after: must be a position, or a bookmark that changes() returned")
    return store_id, whole(int(position), "after")
