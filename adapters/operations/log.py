"""The log: events and refusals."""

import re
from itertools import islice
from operator import itemgetter
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
    refuse_bool,
)
from holdlog.adapters.operations.moments import MomentArgument, find_moment, find_start
from holdlog.adapters.operations.rows import (
    NO_LIMIT,
    PAGE_CHARACTERS,
    PAGE_EVENTS,
    cut_page,
    scan,
    show_event,
    show_refusal,
)
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import CONTENT, FIRST_DIGEST
from holdlog.domain.claims.resource import overlap
from holdlog.domain.names import is_of_agent, namespace_prefix
from holdlog.domain.refusals import InvalidError
from holdlog.projections.results import EventEntry, EventPage, LogPage

BOOKMARK_BYTES: Final = 8
MAX_TRANSACTION: Final = 100_000
"""Events of the longest transaction that comes on one page."""
GROUPS: Final = ("record", "claim", "thread", "token")
"""What streams start with: all kinds of events about values, and so on."""
_PLACE: Final = re.compile(rf"([0-9]{{1,19}})(?:\.([0-9a-f]{{{2 * BOOKMARK_BYTES}}}))?")


def check_place(after: int | str) -> int | str:
    """Raises ValueError unless it is a position or a bookmark."""
    place = _PLACE.fullmatch(str(after))
    if place is None or int(place[1]) >= 2**63:
        raise ValueError("must be a position, or the bookmark of a page")
    return after


def check_kind(kind: str) -> str:
    """Raises ValueError unless it is a kind of events, or a group of kinds."""
    if kind not in GROUPS and kind not in CONTENT:
        raise ValueError(f"must be of {', '.join(GROUPS)}, or an event such as ValueWritten")
    return kind


Place = Annotated[int | str, BeforeValidator(refuse_bool), AfterValidator(check_place)]
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
        return self.agent is None or is_of_agent(from_json(meta).get("by") or "", self.agent)


class Events(Choice, BlockingQuery, name="events", group="power", route="GET /events", positional="after"):
    """Read the log: all events after a position or bookmark, in order. A page without events whose next_position moved
    leads on."""

    results = (EventPage,)
    after: Place = 0
    limit: Limit = 100
    wait_seconds: Seconds = Field(default=0, description="How long to wait for the first event")

    def read(self, reader: Reader) -> EventPage | Wait:
        page, is_last = self._read(reader)
        return Wait() if self.wait_seconds and is_last and not page.events else page

    def give_up(self, reader: Reader, elapsed: float) -> EventPage:
        return self._read(reader)[0]

    def _read(self, reader: Reader) -> tuple[EventPage, bool]:
        """A page, and whether it ends where the log does."""
        events: list[EventEntry] = []
        size, last_at, is_last = 0, None, True
        with reader.snapshot() as snapshot:
            first, digest = self._find_place(snapshot)
            position = first
            for row in scan(snapshot, sql.EVENTS, {"after": first}, self.limit + 1, payload=6):
                is_full = len(events) >= self.limit or size > PAGE_CHARACTERS or row[0] > first + PAGE_EVENTS
                if (is_full and row[4] != last_at) or row[0] > first + MAX_TRANSACTION:
                    is_last = False
                    break
                position, digest, last_at = row[0], row[7], row[4]  # a transaction has one time
                if self.selects(row[1], row[3], row[5]):
                    events.append(show_event(row))
                    size += len(row[6] or "")
        return EventPage(events, position, f"{position}.{digest[:BOOKMARK_BYTES].hex()}"), is_last

    def _find_place(self, snapshot: Reader) -> tuple[int, bytes]:
        """Position and digest of the event before the page. Raises InvalidError."""
        text, _, part = str(self.after).partition(".")
        position = int(text)
        if not position:
            return 0, FIRST_DIGEST
        rows = snapshot.read(sql.DIGEST, {"position": position})
        if not rows:
            raise InvalidError("after: the log has no such position")
        if part and bytes(rows[0][0])[:BOOKMARK_BYTES].hex() != part:
            raise InvalidError("after: this bookmark belongs to another history")
        return position, bytes(rows[0][0])


class Log(Choice, name="log", route="GET /log"):
    """List the events of a range, the oldest first; with refusals, refused commands among them, without values. A store
    keeps the last 10,000 refusals, which a process records with its next write."""

    results = (LogPage,)
    start: MomentArgument | None = Field(default=None, description="The first event, or a time")
    end: MomentArgument | None = Field(default=None, description="The last event, or a time")
    after: Place | None = Field(default=None, description="The next_after of the page before")
    refusals: bool = False
    limit: Limit = 100

    def read(self, reader: Reader) -> LogPage:
        after, since = (0, 0) if self.start is None else find_start(reader, self.start, "start")
        place = after + 1 if self.start is not None and not since else after, 0
        if self.after is not None:
            text, _, number = str(self.after).partition(".")
            place = max(place, (int(text), min(int(number or "0", 16), NO_LIMIT)))
            after = max(after, int(text))
        with reader.snapshot() as snapshot:
            end = find_moment(snapshot, "now" if self.end is None else self.end, "end")
            if end.position < after:
                raise InvalidError("end: lies before the first moment")
            last, rows = self._read_events(snapshot, after, end.position)
            entries: list[tuple[int, int, Any]] = [(row[0], 0, show_event(row)) for row in rows]
            is_last = last == end.position
            if self.refusals:
                until = end.at if end.is_time else NO_LIMIT
                parameters = {"first": place[0], "id": place[1], "since": since, "until": until}
                refused = snapshot.read(sql.REFUSALS, parameters | {"last": last - (not (is_last and end.is_time))})
                selected = (row for row in refused if self.selects(row[3], row[2], row[4]))
                entries += [(row[0], row[5], show_refusal(row)) for row in selected]
        entries.sort(key=itemgetter(0, 1))  # a refusal comes after the event at its position
        next_after: int | str | None = None if is_last else last
        if len(entries) > self.limit:
            position, row_id, _ = entries[self.limit - 1]
            next_after = f"{position}.{row_id:0{2 * BOOKMARK_BYTES}x}" if row_id else position
        return LogPage([entry for _, _, entry in entries[: self.limit]], next_after)

    def _read_events(self, snapshot: Reader, after: int, end: int) -> tuple[int, list[Any]]:
        """The rows of a page, and the position up to which it reads."""
        stop = min(end, after + PAGE_EVENTS)
        rows = islice(scan(snapshot, sql.EVENTS, {"after": after}, self.limit + 1, payload=6), stop - after)
        selected = (row for row in rows if self.selects(row[1], row[3], row[5]))
        page, more = cut_page(selected, self.limit, payload=6)
        return page[-1][0] if more else stop, page
