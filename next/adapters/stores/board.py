"""How the board is rows, and what a command reads of it. Both stores and the queries use these."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.sql import CLAIM_COLUMNS
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.holder import Holder, Loss, Who
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.state import Reads, Record


@lru_cache(1024)
def name_overlapping(resources: tuple[str, ...]) -> tuple[str, str, str]:
    """Parameters of CLAIMS and STREAMS, as JSON: names, subtrees, streams."""
    names = list(dict.fromkeys(name for resource in resources for name in list_covering(resource)))
    subtrees = [resource for resource in resources if resource.endswith("/")]
    streams = [f"claim:{name}" for name in names]
    return json.dumps(names), json.dumps(subtrees), json.dumps(streams)


def list_queries(read: Reads) -> tuple[str, ...]:
    """What reads the board for a command, besides all of it."""
    if not read.beats:
        return (sql.CLAIMS,)
    return (sql.CLAIMS, sql.BEATS) if read.resources else (sql.BEATS,)


def select(read: Reads, caller: Caller, now: int) -> dict[str, Any]:
    """The parameters of CLAIMS, BOARD and BEATS."""
    names, subtrees, _ = name_overlapping(read.resources)
    session, principal = caller.session, caller.principal or ""
    return {"names": names, "subtrees": subtrees, "session": session, "principal": principal, "now": now}


def add_rows(board: Board, rows: Iterable[Any]) -> None:
    """Put rows of CLAIMS, BOARD or BEATS on the board."""
    claims, holders = board.claims, board.holders
    for row in rows:
        resource, agent = row[0], row[CLAIM_COLUMNS]
        who = None
        if agent is not None:
            _, session, principal, expires, seen, lease, idle, beats, host, process, left, calls, lost = row[
                CLAIM_COLUMNS:
            ]
            who = Who(agent, session, principal or None)
            if who not in holders:
                open_calls = tuple(json.loads(calls).items()) if calls else ()
                losses = tuple(Loss(*it) for it in json.loads(lost)) if lost else ()
                times = (expires, seen, lease, idle, bool(beats))
                holders[who] = Holder(who, *times, host, process, bool(left), open_calls, losses)
        if resource is None or (resource, row[1]) in claims:
            continue
        _, version, is_ticket, mode, agent, session, principal, position, since, also, *rest = row[:CLAIM_COLUMNS]
        if who is None:
            who = Who(agent, session, principal or None)
            board.adopt(who)
        deadline, waits_until, is_offered, note = rest
        others = tuple(json.loads(also)) if also else ()
        event = (resource, version, bool(is_ticket), mode, who, position, since, others)
        claims[resource, version] = Claim(*event, deadline, waits_until, bool(is_offered), note)


def has_due(board: Board) -> bool:
    """Whether a holder may have ended, so that it matters whether there was a silence."""
    return any(holder.expires_at <= board.now for holder in board.holders.values())


def read_silence(rows: Iterable[Any]) -> tuple[int, int]:
    for committed_at, ended_at in rows:
        return committed_at, ended_at
    raise AssertionError


def needs_whole(board: Board, reads: Sequence[tuple[Reads, Caller]]) -> bool:
    """Whether commands need all of the board: somebody waits, so that what they change may grant something; a holder
    of their session has ended, so that all that it held must end; or has lost something, so that they must say who
    holds it now."""
    if any(claim.is_ticket for claim in board.claims.values()):
        return True
    if any(read.board for read, _ in reads):
        return True
    beats = any(read.beats for read, _ in reads)
    sessions = {(caller.session, caller.principal) for read, caller in reads if read.session}
    for who, holder in board.holders.items():
        if (beats or who[1:] in sessions) and (holder.lost or board.find_end_of(holder) <= board.now):
            return True
    return beats and any(board.find_end(claim) <= board.now for claim in board.claims.values())


def list_resources(reads: Sequence[tuple[Reads, Caller]]) -> tuple[str, ...]:
    return tuple(resource for read, _ in reads for resource in read.resources)


def list_streams(board: Board, reads: Sequence[tuple[Reads, Caller]]) -> str:
    """The parameter of STREAMS: of all that may get events, and of what covers what is claimed."""
    resources = list_resources(reads)
    own = name_overlapping(resources)[2]
    if all(claim.resource in resources and not claim.also for claim in board.claims.values()):
        return own
    names = {f"claim:{name}" for claim in board.claims.values() for name in claim.resources}
    return json.dumps([*{*json.loads(own), *names}])


def add_streams(board: Board, records: dict[str, Record], rows: Iterable[Any]) -> None:
    """Put rows of STREAMS on the board."""
    for stream, version, position, *end in rows:
        records[stream] = Record(stream, version or 0, 0)
        if position is not None:
            board.ends[stream.removeprefix("claim:")] = (position, *end)


def make_board(now: int) -> Board:
    return Board(now, is_alive)


def read_board(reader: Reader, read: Reads) -> Board:
    """What a query reads: what overlaps `resources`, or all of the board."""
    with reader.snapshot() as view:
        board = make_board(view.steady())
        query = sql.BOARD if read.board else sql.CLAIMS
        add_rows(board, view.read(query, select(read, Caller(), board.now)))
        if has_due(board):
            board.note_silence(*read_silence(view.read(sql.SILENCE, {})))
        if read.resources:
            add_streams(board, {}, view.read(sql.STREAMS, {"streams": name_overlapping(read.resources)[2]}))
        board.start({}, Moment(view.now(), 0, Caller(), 0, board.now))
    return board


def list_changed_claims(board: Board) -> tuple[list[Any], list[tuple[str, int]]]:
    """Rows to write, and keys of rows to delete."""
    rows, ended = [], []
    for key in board.changed_claims:
        claim = board.claims.get(key)
        if claim is None:
            ended.append(key)
            continue
        who = claim.who
        also = json.dumps(claim.also) if claim.also else None
        place = (*key, int(claim.is_ticket), claim.mode, who.agent, who.session, who.principal or "")
        facts = (claim.position, claim.since, also, claim.deadline, claim.waits_until, int(claim.is_offered))
        rows.append((*place, *facts, claim.note))
    return rows, ended


def list_changed_holders(board: Board) -> list[Any]:
    """Rows to write."""
    rows = []
    for who in board.changed_holders:
        _, expires, seen, lease, idle, beats, host, process, left, calls, lost = board.holders[who]
        texts = (json.dumps(dict(calls)) if calls else None, json.dumps(lost) if lost else None)
        facts = (expires, seen, lease, idle, int(beats), host, process, int(left), *texts)
        rows.append((who.session, who.principal or "", who.agent, *facts))
    return rows
