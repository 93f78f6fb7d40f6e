"""Claim a resource, and release it. All results are returned: what was noticed meanwhile (an expiry) is recorded with
a refusal, too."""

from datetime import timedelta
from typing import Any, NamedTuple

from holdlog.domain.claims.board import LAST, Board, Loss, Wanted
from holdlog.domain.claims.claim import SECOND, Claim, ClaimQueued, ClaimReleased, Outcome, Who
from holdlog.domain.claims.holder import Holder
from holdlog.domain.claims.queue import expire_due, find_cycle, grant, grant_waiting, remove_ticket
from holdlog.domain.claims.resource import claim_stream, overlap
from holdlog.domain.claims.results import (
    AlreadyClaimed,
    AlreadyFree,
    Busy,
    Claimed,
    Deadlock,
    Granted,
    NeverClaimed,
    NotHolder,
    Released,
    Waiter,
)
from holdlog.domain.results import utc
from holdlog.domain.state import Moment, State


class ClaimDecision(NamedTuple):
    """`claims`, `holders`: the rows after the command, which no event says in full; `losses`: new ones."""

    events: list[Any]
    result: Any
    claims: dict[tuple[str, int], Claim]
    holders: dict[Who, Holder]
    losses: list[Loss]


def acquire(command: Any, state: State, moment: Moment) -> ClaimDecision:
    """Claim the resource with all of `also`, or take a place in the queue if `wait_seconds` is positive."""
    board = Board(state, moment)
    who = identify(command, moment)
    board.hear(who)
    expire_due(board)
    grant_waiting(board)
    resources = tuple(dict.fromkeys((command.resource, *(command.also or ()))))
    ticket = _find_ticket(board, who, resources, command.mode)
    wanted = Wanted(who, command.mode, resources, ticket.position if ticket is not None else LAST)
    if _holds_all(wanted, board):
        return _decide(board, _renew(command, wanted, board))
    if board.is_free(wanted):
        before = {claim.key for claim in board.claims.values()}
        grant(wanted, None, board)
        if ticket is not None and ticket.key in board.claims:
            remove_ticket(ticket, "granted", board)
        _set_facts(command, wanted, board)
        grant_waiting(board)
        return _decide(board, _describe_grant(wanted, before, board))
    return _decide(board, _queue_or_refuse(command, wanted, ticket, board))


def release(command: Any, state: State, moment: Moment) -> ClaimDecision:
    """Release the resource and `also`, or without a resource all that the agent holds or waits for in this session."""
    board = Board(state, moment)
    who = identify(command, moment)
    board.hear(who)
    expire_due(board)
    if command.resource is None:
        resources = sorted({claim.resource for claim in board.claims.values() if claim.who == who})
    else:
        resources = list(dict.fromkeys((command.resource, *(command.also or ()))))
        for resource in resources:
            if (refusal := _refuse_release(resource, who, board)) is not None:
                grant_waiting(board)
                return _decide(board, refusal)
    ended = [granted for resource in resources for granted in _end(resource, command, who, board)]
    heirs = [heir for resource, heir in grant_waiting(board) if any(overlap(resource, it) for it in resources)]
    if not ended:
        return _decide(board, AlreadyFree(command.resource))
    several = ended if command.resource is None or len(ended) > 1 else None
    granted_to = heirs[0].agent if heirs else None
    return _decide(board, Released(ended[0].resource, ended[0].version, command.outcome, granted_to, several))


def identify(command: Any, moment: Moment) -> Who:
    """Who calls: the receipt of a caller without a session stands for one."""
    caller = moment.caller
    return Who(command.agent, command.receipt or caller.session, caller.principal)


# --- parts


def _decide(board: Board, result: Any) -> ClaimDecision:
    return ClaimDecision(board.events, result, board.claims, board.holders, board.losses)


def _find_ticket(board: Board, who: Who, resources: tuple[str, ...], mode: str) -> Claim | None:
    """The caller's place for the same request. A place for another request at this resource is given up."""
    for ticket in board.list_tickets(resources[0]):
        if ticket.resource != resources[0] or not board.is_own(ticket, who):
            continue
        if (ticket.resources, ticket.mode) == (resources, mode):
            return ticket
        remove_ticket(ticket, "left", board)
    return None


def _holds_all(wanted: Wanted, board: Board) -> bool:
    own = [board.find_own(resource, wanted.who) for resource in wanted.resources]
    return all(claim is not None and claim.mode == wanted.mode for claim in own)


def _set_facts(command: Any, wanted: Wanted, board: Board) -> None:
    """Deadline and note of the caller's grants, as this call says."""
    for resource in wanted.resources:
        claim = board.find_own(resource, wanted.who)
        assert claim is not None
        deadline = claim.deadline if not claim.is_offered else None
        if command.lease_seconds is not None:
            deadline = board.now + round(command.lease_seconds * SECOND)
        board.keep(claim._replace(deadline=deadline, is_offered=False, note=command.note or claim.note))


def _renew(command: Any, wanted: Wanted, board: Board) -> Claimed | AlreadyClaimed:
    """What the caller holds already. An offer of the queue is collected: that is a grant."""
    own = [board.find_own(resource, wanted.who) for resource in wanted.resources]
    collects = any(claim is not None and claim.is_offered for claim in own)
    _set_facts(command, wanted, board)
    if collects:
        return _describe_grant(wanted, set(), board)
    claim = board.find_own(wanted.resources[0], wanted.who)
    assert claim is not None
    waiters = [
        Waiter(ticket.who.agent, (board.moment.at - ticket.since) / SECOND, ticket.note)
        for ticket in board.list_tickets(claim.resource)
    ]
    left = board.find_end(claim) - board.now
    expires_at = utc(board.moment.at) + timedelta(microseconds=left)
    facts = (utc(claim.since), expires_at, left / SECOND)
    return AlreadyClaimed(claim.resource, claim.version, *facts, waiters or None)


def _describe_grant(wanted: Wanted, before: set[tuple[str, int]], board: Board) -> Claimed:
    own = [claim for resource in wanted.resources if (claim := board.find_own(resource, wanted.who)) is not None]
    first = own[0]
    left = board.find_end(first) - board.now
    also = [Granted(claim.resource, claim.version) for claim in own[1:] if claim.key not in before]
    expires_at = utc(board.moment.at) + timedelta(microseconds=left)
    renewal = None if board.moment.caller.beats else "by your calls only"
    return Claimed(
        first.resource, first.version, first.position, expires_at, left / SECOND, also or None, renewal=renewal
    )


def _queue_or_refuse(command: Any, wanted: Wanted, ticket: Claim | None, board: Board) -> Busy | Deadlock:
    own = board.find_own(wanted.resources[0], wanted.who)
    waits = command.wait_seconds > 0 and (own is None or own.mode == wanted.mode)  # else it would wait for itself
    if waits and (cycle := find_cycle(board, wanted)):
        return Deadlock(wanted.resources[0], cycle)
    if waits:
        until = board.now + round(command.wait_seconds * SECOND)
        if ticket is None:
            who = wanted.who
            request = (wanted.mode, wanted.resources[1:], command.note)
            stream = claim_stream(wanted.resources[0])
            version = board.record(ClaimQueued(stream, who.agent, who.session, who.principal, *request))
            ticket = board.claims[wanted.resources[0], version]
        board.keep(ticket._replace(waits_until=until, deadline=None, note=command.note or ticket.note))
    return _describe_busy(wanted, ticket, board)


def _describe_busy(wanted: Wanted, ticket: Claim | None, board: Board) -> Busy:
    obstacles = list(board.list_obstacles(wanted))
    claim = obstacles[0] if obstacles else board.list_earlier(wanted)[0]
    resource = next(it for it in wanted.resources if any(overlap(it, other) for other in claim.resources))
    queue = board.list_tickets(resource)
    end = claim.waits_until if claim.is_ticket else board.find_end(claim)
    holder = board.holders.get(claim.who)
    holders = [obstacle.who.agent for obstacle in obstacles if overlap(obstacle.resource, resource)]
    return Busy(
        resource,
        claim.who.agent,
        utc(claim.since),
        (board.moment.at - claim.since) / SECOND,
        max(0, end - board.now) / SECOND,
        claim.version,
        len(queue),
        same_name=claim.who.agent == wanted.who.agent or None,
        holder_idle_seconds=None if holder is None else (board.now - holder.seen_at) / SECOND,
        covered_by=claim.resource if claim.resource != resource and not claim.is_ticket else None,
        holders=holders if len(holders) > 1 else None,
        holder_note=None if claim.is_ticket else claim.note,
        ticket=ticket.version if ticket is not None else None,
        queue_position=1 + [it.key for it in queue].index(ticket.key) if ticket is not None else None,
    )


def _refuse_release(resource: str, who: Who, board: Board) -> Any:
    """Why the caller may not release it; None if it may."""
    if board.find_own(resource, who) is not None:
        return None
    if any(ticket.resource == resource and board.is_own(ticket, who) for ticket in board.list_tickets(resource)):
        return None
    if not board.records[claim_stream(resource)].version:
        return NeverClaimed(resource)
    holder = next((claim for claim in board.list_grants(resource) if claim.resource == resource), None)
    return None if holder is None else NotHolder(resource, holder.who.agent)


def _end(resource: str, command: Any, who: Who, board: Board) -> list[Granted]:
    """End the caller's grant and tickets of a resource."""
    ended = []
    claim = board.find_own(resource, who)
    if claim is not None:
        is_target = resource == command.moved_to  # the new name of a move whose agent claimed both
        outcome: Outcome = "created" if is_target else command.outcome or "released"
        moved_to = None if is_target else command.moved_to
        event = ClaimReleased(
            claim_stream(resource), claim.who.agent, claim.version, outcome, moved_to, None, command.note
        )
        ended.append(Granted(resource, board.record(event)))
    for ticket in board.list_tickets(resource):
        if ticket.resource == resource and board.is_own(ticket, who):
            version = remove_ticket(ticket, "left", board)
            if claim is None:
                ended.append(Granted(resource, version))
    return ended
