"""The log: events."""

from typing import Any

from pydantic import Field
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import Wait
from holdlog.adapters.operations.base import BlockingQuery, Limit, Name, Seconds
from holdlog.adapters.stores import sql
from holdlog.domain.names import namespace_prefix, split_stream
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import EventEntry, EventPage, utc

BOOKMARK_BYTES = 8


class Events(BlockingQuery, name="events", group="power", route="GET /events", words="after"):
    """Read the log: all events after a position or bookmark, in order."""

    results = (EventPage,)
    after: int | str = 0
    namespace: Name | None = None
    limit: Limit = 100
    wait_seconds: Seconds = Field(default=0, description="Wait so long for the first event")

    def seconds(self) -> float:
        return self.wait_seconds

    def read(self, reader: Reader) -> EventPage | Wait:
        page = self._read(reader)
        return page if page.events else Wait()

    def give_up(self, reader: Reader, elapsed: float) -> EventPage:
        return self._read(reader)

    def _read(self, reader: Reader) -> EventPage:
        with reader.snapshot() as view:
            position, digest = self._position(view)
            rows = view.read(sql.EVENTS, {"after": position, "limit": 1000})
        found: list[EventEntry] = []
        last_at = None  # a transaction has one time
        prefix = namespace_prefix(self.namespace) if self.namespace is not None else ""
        for row in rows:
            if len(found) >= self.limit and row[4] != last_at:
                break
            position, digest, last_at = row[0], row[7], row[4]
            if row[1].startswith(prefix):
                found.append(entry(row))
        return EventPage(found, position, f"{position}.{digest[:BOOKMARK_BYTES].hex()}")

    def _position(self, view: Reader) -> tuple[int, bytes]:
        text, _, part = str(self.after).partition(".")
        position = int(text)
        if not position:
            return 0, bytes(32)
        rows = view.read(sql.DIGEST, {"position": position})
        if not rows:
            raise InvalidError("after: the log has no such position")
        if part and bytes(rows[0][0])[:BOOKMARK_BYTES].hex() != part:
            raise InvalidError("after: this bookmark belongs to another history")
        return position, bytes(rows[0][0])


def entry(row: Any) -> EventEntry:
    position, stream, version, topic, at, meta, payload = row[:7]
    fields = from_json(meta) | (from_json(payload) if payload is not None else {})
    namespace, key = split_stream(stream)
    fields |= {"namespace": namespace, "key": key}
    return EventEntry(position, f"{stream}@{version}", stream, version, topic, utc(at), fields.pop("by", None), fields)
