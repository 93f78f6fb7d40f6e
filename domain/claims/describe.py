"""What the results of commands say of the board."""

from itertools import chain
from typing import Any

from holdlog.domain.claims.board import Board, Request
from holdlog.domain.claims.claim import Claim, Ended
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import list_covering, overlap
from holdlog.domain.claims.results import (
    SAME_NAME,
    AlreadyClaimed,
    Busy,
    Claimed,
    Expired,
    Granted,
    NeverClaimed,
    NotHolder,
    Waiter,
)
from holdlog.domain.moment import SECOND
from holdlog.domain.results import utc


def describe_grant(claims: list[Claim], resources: tuple[str, ...], board: Board) -> Claimed:
    first, caller = claims[0], board.moment.caller
    left = board.find_claim_end(first) - board.now
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
        None if holder.handles else "by your calls only",
        *(() if end is None else list_previous(end, first.resource)),
    )


def describe_renewal(claims: list[Claim], board: Board) -> AlreadyClaimed:
    claim = claims[0]
    also = [Granted(it.resource, it.version) for it in claims[1:]]
    waiters = [
        Waiter(ticket.who.agent, (board.moment.at - ticket.since) / SECOND, ticket.note)
        for ticket in board.list_tickets(claim.resource)
    ]
    left = board.find_claim_end(claim) - board.now
    facts = (utc(claim.since), utc(board.moment.at + left), left / SECOND)
    return AlreadyClaimed(claim.resource, claim.version, *facts, also or None, waiters or None)


def describe_busy(request: Request, ticket: Claim | None, board: Board) -> Busy:
    obstacles = list(board.list_obstacles(request))
    # With neither, it would close a cycle with what its agent waits for elsewhere.
    claim = next(chain(obstacles, board.list_earlier(request), board.list_waiters()))
    overlapping = (name for name in request.resources if any(overlap(name, other) for other in claim.resources))
    resource = next(overlapping, request.resources[0])
    queue = board.list_tickets(resource)
    end = claim.waits_until if claim.is_ticket else board.find_claim_end(claim)
    holders = [obstacle.who.agent for obstacle in obstacles if overlap(obstacle.resource, resource)]
    return Busy(
        resource,
        claim.who.agent,
        utc(claim.since),
        (board.moment.at - claim.since) / SECOND,
        max(0, end - board.now) / SECOND,
        claim.version,
        len(queue),
        claim.who.agent == request.who.agent or None,
        board.is_connected(claim.who),
        board.count_idle_seconds(claim.who),
        claim.resource if claim.resource != resource and not claim.is_ticket else None,
        holders if len(holders) > 1 else None,
        None if claim.is_ticket else claim.note,
        claim.who.principal,
        ticket.version if ticket is not None else None,
        1 + [it.key for it in queue].index(ticket.key) if ticket is not None else None,
        ticket.who.session if ticket is not None and board.moment.caller.is_anonymous else None,
    )


def refuse_release(resource: str, who: HolderId, board: Board) -> Any:
    """Why a caller that does not hold the resource may not release it; None if it waits for it, or if it is free."""
    if any(ticket.resource == resource and ticket.who == who for ticket in board.list_tickets(resource)):
        return None
    holder = next((claim for claim in board.list_grants(resource) if claim.resource == resource), None)
    held_by = None if holder is None else holder.who.agent
    end = board.find_last_end((resource,))
    if end is not None and end.outcome == "expired" and (end.holder, end.of_session) == (who.agent, who.session):
        return Expired(resource, held_by)
    if held_by is not None:
        hint = SAME_NAME if held_by == who.agent else NotHolder._field_defaults["hint"]
        return NotHolder(resource, held_by, end.note if end is not None and end.forced_by is not None else None, hint)
    return None if end is not None else NeverClaimed(resource)


def list_previous(end: Ended, resource: str) -> tuple[Any, ...]:
    """The fields about the last hold."""
    covering = end.resource if end.resource != resource else None
    return covering, end.outcome, end.holder, utc(end.at), end.note, end.moved_to
