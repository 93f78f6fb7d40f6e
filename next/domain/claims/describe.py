"""What callers see of the board."""

from typing import Any

from holdlog.domain.claims.board import Board, Wanted
from holdlog.domain.claims.claim import Claim, Ended
from holdlog.domain.claims.holder import Who
from holdlog.domain.claims.resource import list_covering, overlap
from holdlog.domain.claims.results import (
    AlreadyClaimed,
    Available,
    BoardAgent,
    BoardClaim,
    BoardPage,
    BoardWaiter,
    Busy,
    Claimed,
    Expired,
    Granted,
    Held,
    NeverClaimed,
    NotHolder,
    Queue,
    Waiter,
)
from holdlog.domain.moment import SECOND
from holdlog.domain.results import utc


def describe_grant(claims: list[Claim], resources: tuple[str, ...], board: Board) -> Claimed:
    first, caller = claims[0], board.moment.caller
    left = board.find_end(first) - board.now
    also = [Granted(claim.resource, claim.version) for claim in claims[1:]] if len(claims) > 1 else None
    holder = board.holders[first.who]
    end = board.find_last_end(list_covering(*resources))
    return Claimed(
        first.resource,
        first.version,
        first.position,
        utc(board.moment.at + left),
        left / SECOND,
        also,
        holder.who.session if caller.is_anonymous else None,
        None if holder.beats else "by your calls only",
        *(() if end is None else _list_previous(end, first.resource)),
    )


def describe_renewal(claims: list[Claim], board: Board) -> AlreadyClaimed:
    claim = claims[0]
    also = [Granted(it.resource, it.version) for it in claims[1:]]
    waiters = [
        Waiter(ticket.who.agent, (board.moment.at - ticket.since) / SECOND, ticket.note)
        for ticket in board.list_tickets(claim.resource)
    ]
    left = board.find_end(claim) - board.now
    facts = (utc(claim.since), utc(board.moment.at + left), left / SECOND)
    return AlreadyClaimed(claim.resource, claim.version, *facts, also or None, waiters or None)


def describe_busy(wanted: Wanted, ticket: Claim | None, board: Board) -> Busy:
    obstacles = list(board.list_obstacles(wanted))
    # With neither, it would close a cycle with what its agent waits for elsewhere.
    claim = (obstacles or board.list_earlier(wanted) or board.list_waiters())[0]
    overlapping = (name for name in wanted.resources if any(overlap(name, other) for other in claim.resources))
    resource = next(overlapping, wanted.resources[0])
    queue = board.list_tickets(resource)
    end = claim.waits_until if claim.is_ticket else board.find_end(claim)
    holders = [obstacle.who.agent for obstacle in obstacles if overlap(obstacle.resource, resource)]
    return Busy(
        resource,
        claim.who.agent,
        utc(claim.since),
        (board.moment.at - claim.since) / SECOND,
        max(0, end - board.now) / SECOND,
        claim.version,
        len(queue),
        claim.who.agent == wanted.who.agent or None,
        board.is_connected(claim.who),
        board.count_idle_seconds(claim.who),
        claim.resource if claim.resource != resource and not claim.is_ticket else None,
        holders if len(holders) > 1 else None,
        None if claim.is_ticket else claim.note,
        ticket.version if ticket is not None else None,
        1 + [it.key for it in queue].index(ticket.key) if ticket is not None else None,
    )


def describe_resource(resource: str, version: int | None, board: Board) -> Held | Available:
    """What `status` returns of one resource."""
    claims = list(board.list_grants(resource))
    if not claims:
        end = board.find_last_end(list_covering(resource))
        return Available(resource, None, *(() if end is None else _list_previous(end, resource)))
    claim = next((claim for claim in claims if claim.resource == resource), claims[0])
    left = board.find_end(claim) - board.now
    return Held(
        resource,
        claim.who.agent,
        utc(claim.since),
        (board.moment.at - claim.since) / SECOND,
        utc(board.moment.at + left),
        left / SECOND,
        claim.version,
        claim.mode,
        len(board.list_tickets(resource)),
        board.is_connected(claim.who),
        board.count_idle_seconds(claim.who),
        claim.resource if claim.resource != resource else None,
        [it.who.agent for it in claims] if len(claims) > 1 else None,
        claim.note,
        None if version is None else any(it.version == version and it.resource == resource for it in claims),
    )


def refuse_release(resource: str, who: Who, board: Board) -> Any:
    """Why the caller, which does not hold it, may not release it; None if it may: it waits for it, or it is free."""
    if any(ticket.resource == resource and board.is_own(ticket, who) for ticket in board.list_tickets(resource)):
        return None
    holder = next((claim for claim in board.list_grants(resource) if claim.resource == resource), None)
    held_by = None if holder is None else holder.who.agent
    end = board.find_last_end((resource,))
    if end is not None and end.outcome == "expired" and (end.holder, end.of_session) == (who.agent, who.session):
        return Expired(resource, held_by)
    if held_by is not None:
        return NotHolder(resource, held_by, end.note if end is not None and end.forced_by is not None else None)
    return None if end is not None else NeverClaimed(resource)


def _list_previous(end: Ended, resource: str) -> tuple[Any, ...]:
    """The fields about the last hold."""
    covering = end.resource if end.resource != resource else None
    return covering, end.outcome, end.holder, utc(end.at), end.note, end.moved_to


def describe_board(board: Board, agent: str | None, after: str, limit: int) -> BoardPage:
    """What is held and waited for, in order of resources after one; with `agent`, by it and its sub-agents. A page has
    whole resources."""
    ends = {True: board.find_ticket_end, False: board.find_end}
    rows = [
        claim
        for claim in sorted(board.claims.values(), key=lambda claim: (claim.resource, claim.position))
        if ends[claim.is_ticket](claim) > board.now and (agent is None or f"{claim.who.agent}/".startswith(f"{agent}/"))
    ]
    counts: dict[str, int] = {}
    for claim in rows:
        counts[claim.who.agent] = counts.get(claim.who.agent, 0) + (not claim.is_ticket)
    rows = [claim for claim in rows if claim.resource > after]
    page = rows[:limit]
    if len(rows) > limit and page[0].resource != rows[limit].resource:
        page = [claim for claim in page if claim.resource != rows[limit].resource]
    elif len(rows) > limit:
        page = [claim for claim in rows if claim.resource == page[0].resource]
    queues: dict[str, list[BoardWaiter]] = {}
    for ticket in sorted((claim for claim in page if claim.is_ticket), key=lambda claim: claim.position):
        queues.setdefault(ticket.resource, []).append(_describe_waiter(ticket, board))
    return BoardPage(
        [_describe_claim(claim, board) for claim in page if not claim.is_ticket],
        [Queue(resource, len(line), line) for resource, line in sorted(queues.items())],
        [BoardAgent(name, counts[name]) for name in sorted({claim.who.agent for claim in page})],
        page[-1].resource if len(page) < len(rows) else None,
    )


def _describe_claim(claim: Claim, board: Board) -> BoardClaim:
    left, who = board.find_end(claim) - board.now, claim.who
    return BoardClaim(
        claim.resource,
        who.agent,
        utc(claim.since),
        (board.moment.at - claim.since) / SECOND,
        utc(board.moment.at + left),
        left / SECOND,
        claim.version,
        claim.mode,
        len(board.list_tickets(claim.resource)),
        board.is_connected(who),
        board.count_idle_seconds(who),
        claim.note,
        who.principal,
    )


def _describe_waiter(ticket: Claim, board: Board) -> BoardWaiter:
    since, present = (board.moment.at - ticket.since) / SECOND, ticket.waits_until > board.now
    also = list(ticket.also) or None
    return BoardWaiter(ticket.who.agent, ticket.mode, since, present, ticket.note, also, ticket.who.principal)
