"""The log: events."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import Agent, BlockingQuery, Limit, Name, Prefix, Resource, Seconds, refuse_bool
from holdlog.adapters.operations.rows import read_transactions, show_event
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import FIRST_DIGEST
from holdlog.domain.claims.resource import overlap
from holdlog.domain.names import namespace_prefix
from holdlog.domain.refusals import InvalidError
from holdlog.projections.results import EventEntry, EventPage

BOOKMARK_BYTES: Final = 8
_PLACE: Final = re.compile(rf"([0-9]{{1,19}})(?:\.([0-9a-f]{{{2 * BOOKMARK_BYTES}}}))?")


def check_place(after: int | str) -> int | str:
    """Raises ValueError for what is no position and no bookmark."""
    place = _PLACE.fullmatch(str(after))
    if place is None or int(place[1]) >= 2**63:
        raise ValueError("must be a position, or the bookmark of a page")
    return after


class Events(BlockingQuery, name="events", group="power", route="GET /events", words="after"):
    """Read the log: all events after a position or bookmark, in order. A page without events whose next_position moved
    leads on."""

    results = (EventPage,)
    after: Annotated[int | str, BeforeValidator(refuse_bool), AfterValidator(check_place)] = 0
    namespace: Name | None = None
    prefix: Prefix | None = Field(default=None, description="Of keys; needs a namespace")
    kinds: list[str] | None = Field(default=None, max_length=20)
    resource: Resource | None = Field(default=None, description="Claims that overlap it")
    agent: Agent | None = None
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
            if self._selects(row[1], row[3]) and ((event := show_event(row)).by == (self.agent or event.by)):
                events.append(event)
        return EventPage(events, position, f"{position}.{digest[:BOOKMARK_BYTES].hex()}"), is_last

    def _selects(self, stream: str, topic: str) -> bool:
        if self.kinds is not None and topic not in self.kinds:
            return False
        if self.resource is not None:
            return stream.startswith("claim:") and overlap(stream.removeprefix("claim:"), self.resource)
        return self.namespace is None or stream.startswith(namespace_prefix(self.namespace) + (self.prefix or ""))

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
