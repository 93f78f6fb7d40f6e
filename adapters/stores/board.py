"""The board as rows of tables, and which of them a command reads. For both stores, and for queries."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.sql import HOLDER_COLUMNS
from holdlog.domain.claims.board import LAST, Board
from holdlog.domain.claims.claim import Claim, wants
from holdlog.domain.claims.holder import Holder, HolderId, Loss
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.state import Reads


@lru_cache(1024)
def name_overlapping(resources: tuple[str, ...]) -> tuple[str, str, str]:
    """Parameters of the queries, as JSON: names, subtrees, streams."""
    names = list_covering(*resources)
    subtrees = [resource for resource in resources if resource.endswith("/")]
    return json.dumps(names), json.dumps(subtrees), json.dumps([f"claim:{name}" for name in names])


def merge(reads: Sequence[tuple[Reads, Caller]]) -> list[tuple[Reads, Caller]]:
    """Merge the reads of a batch into one for each session, because each read returns all holders of its session."""
    merged: dict[tuple[str, str | None], list[tuple[Reads, Caller]]] = {}
    for read, caller in reads:
        if read.claims or read.resources:
            merged.setdefault((caller.session, caller.principal), []).append((read, caller))
    return [(_join([read for read, _ in group]), group[0][1]) for group in merged.values()]


def _join(reads: list[Reads]) -> Reads:
    resources = tuple(resource for read in reads for resource in read.resources)
    claims = min((read.claims for read in reads), key=("all", "own", "holders", "").index)
    agent = reads[0].agent  # holders that left to the other agents of a batch are heard once these claim something
    return Reads(resources=resources, claims=claims, agent=agent, queues=any(read.queues for read in reads))


def select(read: Reads, caller: Caller, now: int) -> tuple[list[str], dict[str, Any]]:
    """The queries that read the board for a command, and their parameters."""
    names, subtrees, _ = name_overlapping(read.resources)
    who = {"session": caller.session, "principal": caller.principal or "", "host": caller.host or ""}
    parameters = {**who, "agent": read.agent, "now": now, "names": names, "subtrees": subtrees}
    if read.claims == "all":
        return [sql.BOARD], parameters
    queries = [sql.BEATS] if read.claims == "own" else []
    if read.resources:
        queries.append(sql.CLAIMS)
    elif read.claims == "holders":
        queries.append(sql.SESSION)
    if subtrees != "[]":
        queries.append(sql.SUBTREES)
    return queries, parameters


def add_rows(board: Board, rows: Iterable[Any]) -> None:
    """Add rows of CLAIMS, SUBTREES, SESSION, BEATS or BOARD to the board."""
    claims, now = board.claims, board.now
    holders: dict[Any, Holder] = board.holders
    for row in rows:
        agent, session, principal, expires, seen, lease, idle, host, handles, left, calls, lost = row[:HOLDER_COLUMNS]
        holder = holders.get((agent, session, principal or None))
        who = HolderId(agent, session, principal or None) if holder is None else holder.who
        if holder is None and expires is not None:
            open_calls = tuple(json.loads(calls).items()) if calls else ()
            losses = tuple(Loss(*it) for it in json.loads(lost)) if lost else ()
            handles = tuple(handles.split()) if handles else ()
            holders[who] = Holder(who, expires, seen, lease, idle, host, handles, bool(left), open_calls, losses)
            if lost or left or expires <= now:
                board.is_quiet = False
        if row[HOLDER_COLUMNS] is None:
            continue
        resource, version, is_ticket, mode, position, since, hold, also, deadline, *rest = row[HOLDER_COLUMNS:]
        if (resource, version) in claims:
            continue
        waits_until, is_offered, note, board.versions[f"claim:{resource}"] = rest
        if expires is None:
            board.adopt(who)
            board.is_quiet = False
        if is_ticket or (deadline is not None and deadline <= now):
            board.is_quiet = False
        others = tuple(json.loads(also)) if also else ()
        event = (resource, version, bool(is_ticket), mode, who, position, since, hold, others)
        claims[resource, version] = Claim(*event, deadline, waits_until, bool(is_offered), note)


def needs_whole(board: Board, reads: Sequence[tuple[Reads, Caller]]) -> bool:
    """Whether commands need the whole board, because: they concern an agent that waits; a holder has left, and all that
    it holds is handed over together; a holder of their session has ended, so all its claims end; or it has lost a
    claim, and the result must name the new holder. If not, remove the tickets, which concern other agents."""
    is_beat = any(read.claims == "own" for read, _ in reads)
    sessions = {(caller.session, caller.principal) for read, caller in reads if read.claims or read.resources}
    tickets = [claim for claim in board.claims.values() if claim.is_ticket]
    if tickets and (any(read.queues for read, _ in reads) or any(it.who[1:] in sessions for it in tickets)):
        return True
    resources = tuple(resource for read, _ in reads for resource in read.resources)
    if resources:  # claims that overlap them may be taken over
        resources += tuple(claim.resource for claim in board.claims.values() if not claim.is_ticket)
        if any(wants(ticket, resources) for ticket in tickets) or any(it.has_left for it in board.holders.values()):
            return True
    for who, holder in board.holders.items():
        if (is_beat or who[1:] in sessions) and (holder.lost or board.find_holder_end(holder) <= board.now):
            return True
    for ticket in tickets:
        del board.claims[ticket.key]
    expired = (claim for claim in board.claims.values() if board.find_claim_end(claim) <= board.now)
    return any(is_beat or claim.who[1:] in sessions for claim in expired)


def list_streams(board: Board, reads: Sequence[tuple[Reads, Caller]]) -> str | None:
    """The parameter of STREAMS: the streams that may get events, and those of claims that cover the resources. None if
    the callers already hold all resources that they name."""
    also: tuple[str, ...] = ()
    held = set()
    for claim in board.claims.values():
        also += claim.also
        if not (claim.is_ticket or claim.is_offered or claim.mode == "shared"):  # a shared holder sees the last end
            held.add((claim.resource, *claim.who))
    resources: tuple[str, ...] = ()
    for read, caller in reads:
        for resource in read.resources:
            if (resource, read.agent, caller.session, caller.principal) not in held:
                resources = (*resources, *read.resources)
                break
    if not also:
        return name_overlapping(resources)[2] if resources else None
    return json.dumps([*{*json.loads(name_overlapping(resources)[2]), *(f"claim:{name}" for name in also)}])


def list_unread(board: Board) -> list[str]:
    """The streams of further resources (`also`) that waiters want, if they have not been read."""
    streams = {f"claim:{name}" for claim in board.claims.values() for name in claim.also}
    return list(streams - board.versions.keys())


def add_streams(board: Board, rows: Iterable[Any]) -> None:
    """Add rows of STREAMS to the board."""
    for stream, version, *end in rows:
        board.versions[stream] = version or 0
        if end[0] is not None:
            board.ends[stream[len("claim:") :]] = end


def read_silence(board: Board, rows: Iterable[Any]) -> None:
    """Add the row of LAST_COMMIT to the board."""
    for times in rows:
        board.note_silence(*times)


def read_board(reader: Reader, read: Reads) -> Board:
    """Read a board for a query: the claims that overlap `resources`, or all."""
    with reader.snapshot() as snapshot:
        board = Board(snapshot.steady(), is_alive)
        queries, parameters = select(read, Caller(), board.now)
        for query in queries:
            add_rows(board, snapshot.read(query, parameters))
        if not board.is_quiet:
            read_silence(board, snapshot.read(sql.LAST_COMMIT, {}))
        if read.resources:
            add_streams(board, snapshot.read(sql.STREAMS, {"streams": name_overlapping(read.resources)[2]}))
        board.start(Moment(snapshot.now(), LAST, Caller(), 0, board.now))  # unrecorded expiries come last
    return board


def list_changed_claims(board: Board) -> tuple[list[Any], list[tuple[str, int]]]:
    """Rows of `claims` to write, and keys of rows to delete."""
    rows, ended = [], []
    for key in board.changed_claims:
        claim = board.claims.get(key)
        if claim is None:
            ended.append(key)
            continue
        who = claim.who
        also = json.dumps(claim.also) if claim.also else None
        place = (*key, int(claim.is_ticket), claim.mode, who.agent, who.session, who.principal or "")
        facts = (claim.position, claim.since, claim.hold, also, claim.deadline, claim.waits_until)
        rows.append((*place, *facts, int(claim.is_offered), claim.note))
    return rows, ended


def list_changed_holders(board: Board) -> list[Any]:
    """Rows of `holders` to write."""
    rows = []
    for who in board.changed_holders:
        _, expires, seen, lease, idle, host, handles, left, calls, lost = board.holders[who]
        texts = (json.dumps(dict(calls)) if calls else None, json.dumps(lost) if lost else None)
        facts = (expires, seen, lease, idle, host, " ".join(handles), int(left), *texts)
        rows.append((who.session, who.principal or "", who.agent, *facts))
    return rows
