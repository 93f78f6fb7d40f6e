"""The past: values, lists, threads, claims and the board as they were, and who held a resource."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from pydantic import Field, model_validator
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Agent, Limit, Name, Prefix, Query, Resource, Version
from holdlog.adapters.operations.moments import Point, find_instant, find_start
from holdlog.adapters.operations.rows import (
    NO_LIMIT,
    PAGE_CHARACTERS,
    PAGE_EVENTS,
    describe_deletion,
    find_version,
    is_live,
    show_event,
    show_record,
)
from holdlog.adapters.operations.threads import ThreadId, read_thread
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.decoding import decode_event
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ENDS, ClaimExpired, ClaimGranted, ClaimReleased, Ended, OfferExpired
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.names import end_of_range, namespace_prefix, value_stream
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.results import NotFound
from holdlog.domain.threads import thread_stream
from holdlog.projections.board import Available, BoardPage, Held, Replayed
from holdlog.projections.past import (
    Instant,
    begin_board,
    describe_end,
    describe_hold,
    describe_past_board,
    describe_past_resource,
    fold,
)
from holdlog.projections.results import HoldEntry, Holds, NoThread, RecordPage, StateRecord, ThreadPage

BLOCK: Final = 5_000
"""Events that are read at once."""
_ENDINGS: Final = {
    "ClaimReleased": "grant",
    "ClaimExpired": "grant",
    "OfferExpired": "grant",
    "ClaimUnqueued": "ticket",
}
"""Events that end a grant or ticket, and which field has its version."""


class At(Query, name="at", group="power", route="GET /at", words="moment namespace key"):
    """Read the past: a value, the list of a namespace, a thread, a resource, or without any the board, as get, list,
    thread_read and status returned it then. moment is a position of the log, a version of the key (v3), or a time."""

    results = (StateRecord, NotFound, RecordPage, ThreadPage, NoThread, Held, Available, BoardPage)
    moment: Point
    namespace: Name | None = None
    key: Name | None = None
    resource: Resource | None = None
    thread_id: ThreadId | None = Field(default=None, description="Its newest messages and results then")
    prefix: Prefix = Field(default="", description="Of the keys of a namespace")
    agent: Agent | None = Field(default=None, description="Of the board: what it and its sub-agents held")
    limit: Limit = 100
    after_key: Prefix | None = Field(default=None, description="The next_after of the page before of a namespace")
    after: Resource | None = Field(default=None, description="The next_after of the page before of the board")

    @model_validator(mode="after")
    def _require_one_kind(self) -> "At":
        if self.key is not None and self.namespace is None:
            raise ValueError("key: needs a namespace")
        if sum(name is not None for name in (self.resource, self.namespace, self.thread_id)) > 1:
            name = "resource" if self.resource is not None else "thread_id"
            raise ValueError(f"{name}: goes alone")
        return self

    def read(self, reader: Reader) -> StateRecord | RecordPage | ThreadPage | NoThread | Held | Available | BoardPage:
        if self.namespace is not None and self.key is not None:
            return read_value_at(reader, self.namespace, self.key, self.moment, "moment")
        instant = find_instant(reader, self.moment, "moment")
        if self.thread_id is not None:
            last = find_version(reader, thread_stream(self.thread_id), instant.position)
            if last is None:
                return NoThread(self.thread_id)
            thread = read_thread(reader, self.thread_id, None, last[1] + 1, self.limit)
            return thread._replace(as_of=instant.as_of) if isinstance(thread, ThreadPage) else thread
        if self.namespace is not None:
            first = namespace_prefix(self.namespace)
            after = first + (self.after_key or "")
            page, more = read_values_at(reader, first + self.prefix, after, self.limit, instant)
            next_after = page[-1].key if more else None
            return RecordPage(self.namespace, len(page), page, instant.position, next_after, instant.as_of)
        board = read_board_at(reader, instant)
        if self.resource is not None:
            return describe_past_resource(self.resource, None, board, instant)
        return describe_past_board(board, self.agent, self.after or "", self.limit, instant)


class Replay(Query, name="replay", words="start end"):
    """List the events from one moment to another, and the state then: values, claims and queues."""

    results = (Replayed,)
    start: Point
    end: Point = "now"
    limit: Limit = Field(default=1000, description="Of each list")

    def read(self, reader: Reader) -> Replayed:
        after, _ = find_start(reader, self.start, "start")
        instant = find_instant(reader, self.end, "end")
        if instant.position < after:
            raise InvalidError("end: lies before start")
        last = min(instant.position, after + self.limit)
        rows = reader.read(sql.EVENTS, {"after": after, "limit": last - after}) if last > after else []
        values, has_more = read_values_at(reader, "record:", "", self.limit, instant)
        board = describe_past_board(read_board_at(reader, instant), None, "", self.limit, instant)
        next_start = last + 1 if last < instant.position else None
        is_cut = True if has_more or board.next_after is not None else None
        events = [show_event(row) for row in rows]
        return Replayed(events, values, board.claims, board.queues, instant.as_of, next_start, is_cut)


class ResourceHistory(Query, name="resource_history", words="resource limit", returns="history"):
    """List who held a resource, or something that overlaps it, and how each hold ended; the newest first."""

    results = (Holds,)
    resource: Resource
    limit: Limit = 100
    before: Version | None = Field(default=None, description="The next_before of the page before")

    def read(self, reader: Reader) -> Holds:
        """Reads from the end of the log for every page, as a hold may have ended at any time."""
        last = self.before if self.before is not None else NO_LIMIT
        history, ends = list[HoldEntry](), dict[tuple[str, int], Any]()
        for row in self._read_events(reader):
            stream, version, position, topic, at, meta, payload = row
            event = decode_event(stream, topic, meta, payload)
            if isinstance(event, ClaimReleased | ClaimExpired | OfferExpired):
                ends[stream, event.grant] = describe_end(event, position, at)
            if not isinstance(event, ClaimGranted):
                continue
            if event.instead_of is not None:
                ends[stream, event.instead_of] = Ended(position, stream, "replaced", event.by, at, event.instead_of)
            if position < last:
                if len(history) == self.limit:
                    return Holds(self.resource, history, history[-1].position)
                history.append(describe_hold(event, version, position, at, ends.get((stream, version))))
        return Holds(self.resource, history)

    def _read_events(self, reader: Reader) -> Iterator[Any]:
        stream = f"claim:{self.resource}"
        streams = json.dumps([f"claim:{name}" for name in list_covering(self.resource)])
        first, end = (stream, end_of_range(stream)) if stream.endswith("/") else ("", "")
        parameters = {"streams": streams, "first": first, "end": end, "limit": PAGE_EVENTS}
        before = NO_LIMIT
        while rows := reader.read(sql.CLAIM_HISTORY, parameters | {"before": before}):
            yield from rows
            before = rows[-1][2]


def read_value_at(reader: Reader, namespace: str, key: str, point: int | str | datetime, argument: str) -> StateRecord:
    """The value of a key at a point. Raises InvalidError, NotFoundError."""
    stream = value_stream(namespace, key)
    instant = Instant(point, 0, False) if isinstance(point, int) else find_instant(reader, point, argument, stream)
    parameters = {"stream": stream, "position": instant.position}
    rows = reader.read(sql.RECORD_AT, parameters) or reader.read(sql.OLD_RECORD_AT, parameters)
    if not instant.at:  # one query finds both
        instant = instant._replace(at=rows[0][6]) if rows and rows[0][6] else find_instant(reader, point, argument)
    if not rows:
        raise NotFoundError(NotFound(namespace, key))
    row = _as_row(rows[0][:6])
    if not _is_live_at(row, instant):
        raise NotFoundError(describe_deletion(namespace, key, row))
    return show_record(row, instant.at)._replace(as_of=instant.as_of)


def read_values_at(
    reader: Reader, prefix: str, after: str, limit: int, instant: Instant
) -> tuple[list[StateRecord], bool]:
    """A page of the values whose streams start with a prefix, and whether there are more."""
    page: list[StateRecord] = []
    size = 0
    parameters: dict[str, Any] = {"first": prefix, "end": end_of_range(prefix), "position": instant.position}
    while rows := reader.read(sql.RECORDS_AT, parameters | {"after": after, "limit": limit + 1}):
        for row in map(_as_row, rows):
            if not _is_live_at(row, instant):
                continue
            size += len(row[4] or "")
            if page and (len(page) == limit or size > PAGE_CHARACTERS):
                return page, True
            page.append(show_record(row, instant.at))
        after = rows[-1][0]
    return page, False


def read_board_at(reader: Reader, instant: Instant) -> Board:
    """The claims and tickets, and how the last holds had ended."""
    board = begin_board(instant)
    for _, rows in groupby(_read_claims(reader, instant.position), itemgetter(0)):
        fold(board, map(_decode, _skip_ended(rows)))
    if instant.is_time and board.claims:
        streams = json.dumps([*{f"claim:{claim.resource}" for claim in board.claims.values()}])
        expiries = map(_decode, reader.read(sql.EXPIRIES, {"streams": streams, "position": instant.position}))
        fold(board, [expiry for expiry in expiries if expiry[0].due <= instant.at])
    return board


def _read_claims(reader: Reader, position: int) -> Iterator[Any]:
    before, version = "claim;", 0
    while True:
        parameters = {"before": before, "version": version, "position": position, "limit": BLOCK}
        yield from (rows := reader.read(sql.CLAIMS_AT, parameters))
        if len(rows) < BLOCK:
            return
        before, version = rows[-1][:2]


def _skip_ended(rows: Iterable[Any]) -> list[Any]:
    """Of the events of a stream, which come the newest first, those that the board needs, in their order: of grants and
    tickets that have not ended, and of the last end. Decoding the others would take most of the time."""
    ended, kept, has_end = set(), [], False
    for row in rows:
        version, topic, meta = row[1], row[3], row[5]
        if topic in _ENDINGS:
            about = from_json(meta)
            ended.add(about[_ENDINGS[topic]])
            if has_end or topic not in ENDS:
                continue
            has_end = True
        elif version in ended:
            if '"ticket":' in meta or '"instead_of":' in meta:  # of a grant; it ended them
                about = from_json(meta)
                ended |= {about.get("ticket"), about.get("instead_of")}
            continue
        elif topic == "FileChanged" or (topic == "ClaimHandedOver" and from_json(meta)["claim"] in ended):
            continue
        kept.append(row)
    return kept[::-1]


def _decode(row: Any) -> tuple[Any, int, int, int]:
    stream, version, position, topic, at, meta, payload = row
    return decode_event(stream, topic, meta, payload), version, position, at


def _as_row(row: Any) -> Any:
    """The row of a value then, as it was in the view of current ones."""
    *start, topic = row
    exists = topic == "ValueWritten"
    return (*start, from_json(row[3]).get("expires_at") if exists else None, exists)


def _is_live_at(row: Any, instant: Instant) -> bool:
    """Whether a value existed. At a position, one that had expired unrecorded did, as in a replay."""
    return is_live(row, instant.at if instant.is_time else 0)
