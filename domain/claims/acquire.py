"""Claim a resource, and release it. Refusals are returned, not raised, because the transaction commits the events of
a refused command, too: an expiry that it noticed."""

from typing import Any

from holdlog.domain.claims.board import Board, Request
from holdlog.domain.claims.claim import ABSENCE, Claim, ClaimQueued, ClaimReleased, OfferExpired, Outcome
from holdlog.domain.claims.describe import describe_busy, describe_grant, describe_renewal, refuse_release
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.queue import find_cycle, find_cycle_of_grant, grant, grant_waiting, remove_ticket, take_over
from holdlog.domain.claims.resource import overlap
from holdlog.domain.claims.results import AlreadyFree, Deadlock, Granted, NotHolder, Released
from holdlog.domain.moment import SECOND, Moment
from holdlog.domain.state import Decision, Reads, State


def declare_claim(command: Any) -> Reads:
    resources, queues = (command.resource, *(command.also or ())), command.wait_seconds > 0
    return Reads(resources=resources, agent=command.agent, queues=queues, receipt=command.receipt)


def declare_release(command: Any) -> Reads:
    if command.resource is None:
        return Reads(claims="all", receipt=command.receipt)
    resources = (command.resource, *(command.also or ()))
    return Reads(resources=resources, agent=command.agent, receipt=command.receipt)


def acquire(command: Any, state: State, moment: Moment) -> Decision:
    """Claim the resource with all of `also`, or take a place in the queue if `wait_seconds` is positive. A call that
    `continues` to wait keeps its place, and does not queue again if that was released."""
    board: Board = state.board
    resources: tuple[str, ...] = (command.resource,)
    if command.also:
        resources = tuple(dict.fromkeys((command.resource, *command.also)))
    who = board.start(moment, command.agent)
    took_over = not board.is_quiet and take_over(who, moment.caller.host, resources, board)
    request = Request(who, command.mode, resources)
    ticket = _find_ticket(request, board) if board.claims else None
    if ticket is not None:
        request = request._replace(position=ticket.position)
    if took_over and not _is_grantable(request, ticket, board):  # claims that it took over may have blocked others
        grant_waiting(board)
        ticket = _find_ticket(request, board)
    if board.claims and _holds_all(request, board):
        return board.events, _renew(command, request, board)
    is_free = not board.claims or board.is_free(request)
    cycle = find_cycle_of_grant(request, ticket, board) if board.claims and is_free else []
    if cycle and not (ticket is not None and command.wait_seconds):
        return board.events, Deadlock(command.resource, cycle)
    if cycle or not is_free:  # a waiter continues to wait: the cycle may end
        return board.events, _queue_or_refuse(command, request, ticket, board)
    board.entered.append(who)
    if (holder := board.holders.get(who)) is None or holder.expires_at <= board.now:
        board.enter(who)
    claims = grant(request, None, board, command.note)
    if ticket is not None and ticket.key in board.claims:
        remove_ticket(ticket, "granted", board)
    for number, claim in enumerate(claims):
        if claim.is_offered or command.lease_seconds is not None or command.note is not None:
            claims[number] = _set_facts(command, claim, board)
    if len(board.claims) > len(resources):
        grant_waiting(board)
    return board.events, describe_grant(claims, resources, board)


def release(command: Any, state: State, moment: Moment) -> Decision:
    """Release the resource and `also`, or without a resource all that the agent holds or waits for in this session."""
    board: Board = state.board
    resources: tuple[str, ...] = (command.resource, *(command.also or ()))
    if command.resource is None:
        resources = tuple(claim.resource for claim in board.claims.values())
    who = board.start(moment, command.agent)
    if not board.is_quiet and take_over(who, moment.caller.host, resources, board):
        grant_waiting(board)
    if command.resource is None:
        resources = tuple(sorted({claim.resource for claim in board.claims.values() if claim.who == who}))
    own = {}
    for resource in resources:
        claim = board.find_own(resource, who)
        if claim is None and moment.caller.is_anonymous:
            claim = board.find_receipt(resource, who)
        own[resource] = claim
        if claim is None and (refusal := refuse_release(resource, who, board)) is not None:
            return board.events, refusal
    ended: list[Granted] = []
    for resource, claim in own.items():
        ended += _end(resource, claim, command, who, board)
    if not ended:
        return board.events, AlreadyFree(command.resource)
    granted_to = None
    for resource, holder in grant_waiting(board) if board.claims else ():
        if granted_to is None and any(overlap(resource, name) for name in resources):
            granted_to = holder.agent
    several = ended if command.resource is None or len(ended) > 1 else None
    return board.events, Released(ended[0].resource, ended[0].version, command.outcome, granted_to, several)


def end_claims(command: Any, state: State, moment: Moment) -> Decision:
    """End all grants of the resource, because a person decided so. Its queue is not changed."""
    board: Board = state.board
    board.start(moment)
    overlapping = list(board.list_grants(command.resource))
    held = [claim for claim in overlapping if claim.resource == command.resource]
    if not held:
        refusals = [NotHolder(claim.resource, claim.who.agent) for claim in overlapping]
        return board.events, refusals[0] if refusals else AlreadyFree(command.resource)
    ended = []
    for claim in held:
        stream, facts = f"claim:{claim.resource}", {"forced_by": command.agent, "note": command.reason}
        forced = ClaimReleased(stream, claim.who.agent, claim.version, **facts)
        ended.append(Granted(claim.resource, board.record(forced)))
        board.record_loss(claim, "forced", command.reason)
    granted = [holder.agent for resource, holder in grant_waiting(board) if overlap(resource, command.resource)]
    return board.events, Released(*ended[0], None, next(iter(granted), None), ended if len(ended) > 1 else None)


def give_up(command: Any, state: State, moment: Moment) -> Decision:
    """End a call that waited for a claim. Its ticket stays in the queue for ABSENCE, or is removed if it `leaves`. A
    grant that it did not collect goes to the next waiter."""
    board: Board = state.board
    who = board.start(moment, command.agent)
    resources = tuple(dict.fromkeys((command.resource, *(command.also or ()))))
    for claim in list(board.claims.values()):
        if claim.who != who:
            continue
        if claim.is_ticket and (claim.resources, claim.mode) == (resources, command.mode):
            if command.leaves and len(board.holders[who].handles) < 2:  # others of its session may wait here, too
                remove_ticket(claim, "left", board)
            else:
                _end_wait(claim, board)
        elif claim.is_offered and claim.resource in resources:
            _end_wait(claim, board)
    grant_waiting(board)
    return board.events, None


def leave(command: Any, state: State, moment: Moment) -> Decision:
    """Close a handle of a session's holders. Those that have no other handle leave, and calls that waited there end.
    Waiters of the same name take over what those holders held."""
    board: Board = state.board
    board.start(moment)
    for holder in list(board.holders.values()):
        if holder.who[1:] != moment.caller[:2] or moment.caller.handle not in holder.handles:
            continue
        others = [it for it in holder.handles if it != moment.caller.handle and board.is_alive(it) is not False]
        board.keep_holder(holder.leave(tuple(others), board.now, holder.who in command.in_conversations))
        for claim in list(board.claims.values()) if holder.who in command.open_calls else ():
            if claim.who == holder.who:
                _end_wait(claim, board)
    for ticket in board.list_waiters():
        take_over(ticket.who, board.holders[ticket.who].host, ticket.resources, board)
    grant_waiting(board)
    return board.events, None


def finish(command: Any, state: State, moment: Moment) -> Decision:
    """End a block: release those of its `grants` that it still holds. Returns the others."""
    board: Board = state.board
    who = board.start(moment, command.agent)
    missing = []
    for resource, version in command.grants:
        claim = board.find_own(resource, who)
        if claim is None or claim.hold != version:
            missing.append((resource, version))
        elif (resource, version) in command.ends:
            _end(resource, claim, command, who, board)
    grant_waiting(board)
    return board.events, tuple(missing)


# --- parts


def _end_wait(claim: Claim, board: Board) -> None:
    """End the wait for a ticket, or for a grant that its waiter has not collected."""
    if claim.is_ticket:
        board.keep(claim._replace(waits_until=0, deadline=claim.deadline or board.now + ABSENCE))
    elif claim.is_offered:
        board.record(OfferExpired(f"claim:{claim.resource}", claim.who.agent, claim.version))


def _find_ticket(request: Request, board: Board) -> Claim | None:
    """The caller's ticket for the same request."""
    tickets = (it for it in board.list_tickets(request.resources[0]) if it.who == request.who)
    return next((it for it in tickets if (it.resources, it.mode) == (request.resources, request.mode)), None)


def _holds_all(request: Request, board: Board) -> bool:
    own = [board.find_own(resource, request.who) for resource in request.resources]
    return all(claim is not None and claim.mode == request.mode for claim in own)


def _is_grantable(request: Request, ticket: Claim | None, board: Board) -> bool:
    is_new = board.is_free(request) and not _holds_all(request, board)
    return is_new and not find_cycle_of_grant(request, ticket, board)


def _set_facts(command: Any, claim: Claim, board: Board) -> Claim:
    """Set the deadline and the note of one of the caller's grants. A deadline never becomes earlier. An offer counts as
    collected."""
    deadline = claim.deadline if not claim.is_offered else None
    if command.lease_seconds is not None:
        deadline = max(deadline or 0, board.now + round(command.lease_seconds * SECOND))
    claim = claim._replace(deadline=deadline, is_offered=False, note=command.note or claim.note)
    board.keep(claim)
    return claim


def _renew(command: Any, request: Request, board: Board) -> Any:
    """Renew what the caller already holds. An offer is collected: then the result is a grant."""
    own = [claim for resource in request.resources if (claim := board.find_own(resource, request.who)) is not None]
    claims = [_set_facts(command, claim, board) for claim in own]
    board.enter(request.who)
    if any(claim.is_offered for claim in own):
        return describe_grant(claims, request.resources, board)
    return describe_renewal(claims, board)


def _queue_or_refuse(command: Any, request: Request, ticket: Claim | None, board: Board) -> Any:
    own = board.find_own(request.resources[0], request.who)
    waits = command.wait_seconds > 0 and (own is None or request.mode in (own.mode, "shared"))  # else for itself
    waits = waits and not (command.continues and ticket is None)
    cycle = find_cycle(board, request) if waits else []
    is_back = False
    if waits and not cycle:
        until, who = board.now + round(command.wait_seconds * SECOND), request.who
        board.enter(who)
        if ticket is None:
            for other in board.list_tickets(request.resources[0]):  # a place for another request here is given up
                if other.resource == request.resources[0] and other.who == who:
                    remove_ticket(other, "left", board)
            facts = (request.mode, request.resources[1:], command.note)
            stream = f"claim:{request.resources[0]}"
            version = board.record(ClaimQueued(stream, who.agent, who.session, who.principal, *facts))
            ticket = board.claims[request.resources[0], version]
        is_back = ticket.waits_until <= board.now
        if until - ticket.waits_until > SECOND // 10:  # one that looks again, or waits less, changes nothing
            ticket = ticket._replace(waits_until=until, deadline=None, note=command.note or ticket.note)
            board.keep(ticket)
    if board.events or is_back:  # a ticket that ends or begins may let other waiters overtake
        grant_waiting(board)
    if ticket is not None and ticket.key not in board.claims:
        return _renew(command, request, board)
    if cycle:
        return Deadlock(request.resources[0], cycle)
    if command.wait_seconds and (command.continues or (ticket is not None and ticket.waits_until > board.now)):
        return describe_busy(request, ticket, board)._replace(lost=[])  # losses are reported when its call ends
    return describe_busy(request, None if command.wait_seconds else ticket, board)


def _end(resource: str, claim: Claim | None, command: Any, who: HolderId, board: Board) -> list[Granted]:
    """End the caller's grant and tickets of a resource."""
    ended = []
    if claim is not None:
        is_target = resource == command.moved_to  # the new name of a move whose agent claimed both
        outcome: Outcome = "created" if is_target else command.outcome or "released"
        moved_to = None if is_target else command.moved_to
        facts = (claim.who.agent, claim.version, outcome, moved_to, None, command.note)
        ended.append(Granted(resource, board.record(ClaimReleased(f"claim:{resource}", *facts))))
    for ticket in board.list_tickets(resource) if board.claims else ():
        if ticket.resource == resource and ticket.who == who:
            version = remove_ticket(ticket, "left", board)
            if claim is None:
                ended.append(Granted(resource, version))
    return ended
