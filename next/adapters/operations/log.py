"""The log: events and refusals."""

import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import (
    Agent,
    BlockingQuery,
    Limit,
    Name,
    Prefix,
    Query,
    Resource,
    Seconds,
    Version,
    refuse_bool,
)
from holdlog.adapters.operations.moments import Point, find_instant, find_start
from holdlog.adapters.operations.rows import NO_LIMIT, PAGE_EVENTS, read_transactions, show_event, show_refusal
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import CONTENT, FIRST_DIGEST
from holdlog.domain.claims.resource import overlap
from holdlog.domain.names import namespace_prefix
from holdlog.domain.refusals import InvalidError
from holdlog.projections.results import EventEntry, EventPage, LogPage, RefusalEntry

BOOKMARK_BYTES: Final = 8
GROUPS: Final = ("record", "claim", "thread", "token")
"""What streams start with: all kinds of events about values, and so on."""
_PLACE: Final = re.compile(rf"([0-9]{{1,19}})(?:\.([0-9a-f]{{{2 * BOOKMARK_BYTES}}}))?")


def check_place(after: int | str) -> int | str:
    """Raises ValueError for what is no position and no bookmark."""
    place = _PLACE.fullmatch(str(after))
    if place is None or int(place[1]) >= 2**63:
        raise ValueError("must be a position, or the bookmark of a page")
    return after


def check_kind(kind: str) -> str:
    """Raises ValueError for what is no kind of events, and no group of kinds."""
    if kind not in GROUPS and kind not in CONTENT:
        raise ValueError(f"must be of {', '.join(GROUPS)}, or an event such as ValueWritten")
    return kind


Kind = Annotated[str, Strict(), AfterValidator(check_kind)]


class Choice(Query):
    """Filters of events."""

    namespace: Name | None = Field(default=None, description="Values of this namespace")
    prefix: Prefix | None = Field(default=None, description="Of keys; needs a namespace")
    kinds: list[Kind] | None = Field(
        default=None, max_length=20, description="record, claim, thread, or ValueWritten …"
    )
    resource: Resource | None = Field(default=None, description="Claims that overlap it")
    agent: Agent | None = Field(default=None, description="Events of this agent and its sub-agents")

    @model_validator(mode="after")
    def _require_namespace(self) -> Self:
        if self.prefix is not None and self.namespace is None:
            raise ValueError("prefix: needs a namespace")
        return self

    def selects(self, stream: str, topic: str, meta: str) -> bool:
        if self.kinds is not None and topic not in self.kinds and stream.partition(":")[0] not in self.kinds:
            return False
        if self.namespace is not None and not stream.startswith(namespace_prefix(self.namespace) + (self.prefix or "")):
            return False
        if self.resource is not None:
            kind, _, resource = stream.partition(":")
            if kind != "claim" or not overlap(resource, self.resource):
                return False
        return self.agent is None or f"{from_json(meta).get('by')}/".startswith(f"{self.agent}/")


class Events(Choice, BlockingQuery, name="events", group="power", route="GET /events", words="after"):
    """Read the log: all events after a position or bookmark, in order. A page without events whose next_position moved
    leads on."""

    results = (EventPage,)
    after: Annotated[int | str, BeforeValidator(refuse_bool), AfterValidator(check_place)] = 0
    limit: Limit = 100
    wait_seconds: Seconds = Field(default=0, description="Wait so long for the first event")

    def seconds(self) -> float:
        return self.wait_seconds

    def read(self, reader: Reader) -> EventPage | Wait:
        page, is_last = self._read(reader)
        return Wait() if self.wait_seconds and is_last and not page.events else page

    def give_up(self, reader: Reader, elapsed: float) -> EventPage:
        return self._read(reader)[0]

    def _read(self, reader: Reader) -> tuple[EventPage, bool]:
        """A page, and whether it ends where the log does."""
        with reader.snapshot() as view:
            position, digest = self._find_place(view)
            rows, is_last = read_transactions(view, position)
        events: list[EventEntry] = []
        last_at = None  # a transaction has one time
        for row in rows:
            if len(events) >= self.limit and row[4] != last_at:
                break
            position, digest, last_at = row[0], row[7], row[4]
            if self.selects(row[1], row[3], row[5]):
                events.append(show_event(row))
        return EventPage(events, position, f"{position}.{digest[:BOOKMARK_BYTES].hex()}"), is_last

    def _find_place(self, view: Reader) -> tuple[int, bytes]:
        """Position and digest of the event before the page. Raises InvalidError."""
        text, _, part = str(self.after).partition(".")
        position = int(text)
        if not position:
            return 0, FIRST_DIGEST
        rows = view.read(sql.DIGEST, {"position": position})
        if not rows:
            raise InvalidError("after: the log has no such position")
        if part and bytes(rows[0][0])[:BOOKMARK_BYTES].hex() != part:
            raise InvalidError("after: this bookmark belongs to another history")
        return position, bytes(rows[0][0])


class Log(Choice, name="log"):
    """List the events of a range, the oldest first; with refusals, refused commands among them, without values. A store
    keeps the last 10,000 refusals, which a process records with its next write."""

    results = (LogPage,)
    start: Point | None = Field(default=None, description="The first event, or a time")
    end: Point | None = Field(default=None, description="The last event, or a time")
    after: Version | None = Field(default=None, description="The next_after of the page before")
    refusals: bool = False
    limit: Limit = 100

    def read(self, reader: Reader) -> LogPage:
        after, since = (0, 0) if self.start is None else find_start(reader, self.start, "start")
        first = after + 1 if self.start is not None and not since else after
        if self.after is not None:
            first = after = max(after, self.after)
        with reader.snapshot() as view:
            end = find_instant(view, "now" if self.end is None else self.end, "end")
            if end.position < after:
                raise InvalidError("end: lies before start")
            last, rows = self._read_events(view, after, end.position)
            entries: list[EventEntry | RefusalEntry] = [show_event(row) for row in rows]
            is_last = last == end.position
            if self.refusals:
                until = end.at if end.is_time else NO_LIMIT
                parameters = {"first": first, "last": last - (not (is_last and end.is_time)), "since": since}
                refused = view.read(sql.REFUSALS, parameters | {"until": until})
                entries += [show_refusal(row) for row in refused if self.selects(row[3], row[2], row[4])]
        entries.sort(key=lambda entry: entry[0])  # a refusal comes after the event at its position
        return LogPage(entries, None if is_last else last)

    def _read_events(self, view: Reader, after: int, end: int) -> tuple[int, list[Any]]:
        """The rows of a page, and the position up to which it reads."""
        selected: list[Any] = []
        stop = min(end, after + PAGE_EVENTS)
        for row in view.read(sql.EVENTS, {"after": after, "limit": stop - after}) if stop > after else ():
            if self.selects(row[1], row[3], row[5]):
                selected.append(row)
                if len(selected) == self.limit:
                    return row[0], selected
        return stop, selected
