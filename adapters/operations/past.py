"""The past: values, lists, threads, claims and the board as they were, and who held a resource."""

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Agent, Limit, Name, Prefix, Query, Resource, Version
from holdlog.adapters.operations.moments import MomentArgument, find_moment, find_start
from holdlog.adapters.operations.rows import (
    NO_LIMIT,
    cut_page,
    describe_deletion,
    find_version,
    is_live,
    scan,
    show_event,
    show_record,
)
from holdlog.adapters.operations.threads import ThreadId, read_thread
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.decoding import decode_event
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ClaimExpired, ClaimGranted, ClaimReleased, Ended, OfferExpired
from holdlog.domain.claims.resource import list_covering, overlap
from holdlog.domain.names import end_of_range, namespace_prefix, value_stream
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.results import NotFound
from holdlog.domain.threads import thread_stream
from holdlog.projections.board import Available, BoardPage, Held, Replayed
from holdlog.projections.past import (
    PastMoment,
    begin_board,
    describe_end,
    describe_hold,
    describe_past_board,
    describe_past_resource,
    fold_claims,
)
from holdlog.projections.results import HoldEntry, Holds, NoThread, RecordPage, StateRecord, ThreadPage


class At(Query, name="at", group="power", route="GET /at", positional="moment namespace key"):
    """Read the past: a value, the list of a namespace, a thread, a resource, or without any the board, as get, list,
    thread_read and status returned it then. moment is a position of the log, a version of the key (v3), or a time."""

    results = (StateRecord, NotFound, RecordPage, ThreadPage, NoThread, Held, Available, BoardPage)
    moment: MomentArgument
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
            raise ValueError(f"{name}: cannot be combined with others")
        return self

    def read(self, reader: Reader) -> StateRecord | RecordPage | ThreadPage | NoThread | Held | Available | BoardPage:
        if self.namespace is not None and self.key is not None:
            return read_value_at(reader, self.namespace, self.key, self.moment, "moment")
        moment = find_moment(reader, self.moment, "moment")
        if self.thread_id is not None:
            last = find_version(reader, thread_stream(self.thread_id), moment.position)
            if last is None:
                return NoThread(self.thread_id)
            thread = read_thread(reader, self.thread_id, None, last[1] + 1, self.limit)
            return thread._replace(as_of=moment.as_of) if isinstance(thread, ThreadPage) else thread
        if self.namespace is not None:
            first = namespace_prefix(self.namespace)
            after = first + (self.after_key or "")
            page, more = read_values_at(reader, first + self.prefix, after, self.limit, moment)
            next_after = page[-1].key if more else None
            return RecordPage(self.namespace, len(page), page, moment.position, next_after, moment.as_of)
        board = read_board_at(reader, moment, self.resource)
        if self.resource is not None:
            return describe_past_resource(self.resource, board, moment)
        return describe_past_board(board, self.agent, self.after or "", self.limit, moment)


class Replay(Query, name="replay", positional="start end"):
    """List the events from one moment to another, and the state then: values, claims and queues."""

    results = (Replayed,)
    start: MomentArgument
    end: MomentArgument = "now"
    limit: Limit = Field(default=1000, description="Of each list")

    def read(self, reader: Reader) -> Replayed:
        after, _ = find_start(reader, self.start, "start")
        end = find_moment(reader, self.end, "end")
        if end.position < after:
            raise InvalidError("end: lies before the first moment")
        rows = islice(scan(reader, sql.EVENTS, {"after": after}, self.limit, payload=6), end.position - after)
        page, has_later = cut_page(rows, self.limit, payload=6)
        values, has_more = read_values_at(reader, "record:", "", self.limit, end)
        board = describe_past_board(read_board_at(reader, end), None, "", self.limit, end)
        next_start = page[-1][0] + 1 if has_later else None
        is_cut = True if has_more or board.next_after is not None else None
        events = [show_event(row) for row in page]
        return Replayed(events, values, board.claims, board.queues, end.as_of, next_start, is_cut)


class ResourceHistory(Query, name="resource_history", positional="resource limit", returns="history"):
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
            position, stream, version, topic, at, meta, payload = row
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
        parameters = {"streams": streams, "first": first, "end": end, "before": NO_LIMIT}
        return scan(reader, sql.CLAIM_HISTORY, parameters, NO_LIMIT, "before", payload=6)


def read_value_at(reader: Reader, namespace: str, key: str, moment: int | str | datetime, argument: str) -> StateRecord:
    """The value of a key at a moment. Raises InvalidError, NotFoundError."""
    stream = value_stream(namespace, key)
    then = PastMoment(moment, 0, False) if isinstance(moment, int) else find_moment(reader, moment, argument, stream)
    last = find_version(reader, stream, then.position)
    if not then.at:  # one query finds both
        then = then._replace(at=last[6]) if last and last[6] else find_moment(reader, moment, argument)
    if last is None:
        raise NotFoundError(NotFound(namespace, key))
    row = _as_row(last[:6])
    if not _is_live_at(row, then):
        raise NotFoundError(describe_deletion(namespace, key, row))
    return show_record(row, then.at)._replace(as_of=then.as_of)


def read_values_at(
    reader: Reader, prefix: str, after: str, limit: int, moment: PastMoment
) -> tuple[list[StateRecord], bool]:
    """A page of the values whose streams start with a prefix, and whether there are more."""
    rows, more = cut_page(scan_values_at(reader, prefix, after, limit + 1, moment), limit)
    return [show_record(row, moment.at) for row in rows], more


def scan_values_at(reader: Reader, prefix: str, after: str, rows: int, moment: PastMoment) -> Iterator[Any]:
    """The rows of the values whose streams start with a prefix; `rows`: that are needed."""
    parameters = {"first": prefix, "end": end_of_range(prefix), "after": after, "position": moment.position}
    past_rows = map(_as_row, scan(reader, sql.RECORDS_AT, parameters, rows))
    return (row for row in past_rows if _is_live_at(row, moment))


def read_board_at(reader: Reader, moment: PastMoment, resource: str | None = None) -> Board:
    """The claims and tickets, and how the last holds of what overlaps a resource had ended."""
    board, positions = begin_board(moment), list[int]()
    for row in scan(reader, sql.CLAIMS_AT, {"after": "", "position": moment.position}, NO_LIMIT, payload=1):
        positions += _list_open(row)
        if resource is not None and row[5] is not None and overlap(row[0].removeprefix("claim:"), resource):
            positions.append(row[5])
    fold_claims(board, map(_decode, reader.read(sql.EVENTS_AT, {"positions": json.dumps(positions)})))
    if moment.is_time and board.claims:
        streams = json.dumps([*{f"claim:{claim.resource}" for claim in board.claims.values()}])
        expiries = map(_decode, reader.read(sql.EXPIRIES, {"streams": streams, "position": moment.position}))
        fold_claims(board, [expiry for expiry in expiries if expiry[0].due <= moment.at])
    return board


def _list_open(row: Any) -> list[int]:
    """The positions of the events of a stream that the board needs: of grants and tickets that have not ended."""
    starts, ends, tickets, replaced = (text.split(",") if text else [] for text in row[1:5])
    ended = set(ends)
    links = [link.split(" ") for link in (*tickets, *replaced)]
    for grant, earlier in sorted(links, key=lambda link: -int(link[0])):  # what a grant that has not ended takes over
        if grant in ended:
            ended.add(earlier)
    pairs = (start.split(" ") for start in starts)
    return [int(position) for version, position in pairs if version not in ended]


def _decode(row: Any) -> tuple[Any, int, int, int]:
    stream, version, position, topic, at, meta, payload = row
    return decode_event(stream, topic, meta, payload), version, position, at


def _as_row(row: Any) -> Any:
    """The row of a value then, as it was in the view of current ones."""
    *start, topic = row
    exists = topic == "ValueWritten"
    return (*start, from_json(row[3]).get("expires_at") if exists else None, exists)


def _is_live_at(row: Any, moment: PastMoment) -> bool:
    """Whether a value existed. At a position, one that had expired unrecorded did, as in a replay."""
    return is_live(row, moment.at if moment.is_time else 0)
