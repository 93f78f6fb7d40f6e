"""The queue: grant to waiters in the transaction that frees what they want, record expiries, refuse deadlocks."""

from typing import Final

from holdlog.domain.claims.board import Board, Request, make_request
from holdlog.domain.claims.claim import (
    ABSENCE,
    OFFER,
    Claim,
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimUnqueued,
    OfferExpired,
    wants,
)
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import overlap
from holdlog.domain.claims.results import Link

MAX_EXPIRED: Final = 500
"""Claims that one transaction ends, besides those that overlap what it wants."""


def settle(board: Board, resources: tuple[str, ...] = ()) -> None:
    """Record what has expired, and grant what is free. The first thing in each transaction that reads the board: what
    was noticed is recorded, also if all its commands are refused."""
    record_ends(board, resources)
    grant_waiting(board)


def record_ends(board: Board, resources: tuple[str, ...]) -> None:
    """Record the end of grants and tickets that have expired: of all for these resources, and of up to MAX_EXPIRED
    others. A waiter whose call has ended keeps its place for ABSENCE, unless its holder has ended."""
    remaining = MAX_EXPIRED
    for claim in sorted(board.claims.values(), key=lambda claim: (claim.position, claim.resource)):
        if claim.is_ticket:
            _expire_ticket(claim, board)
            continue
        if board.find_claim_end(claim) > board.now:
            continue
        if remaining or any(overlap(claim.resource, resource) for resource in resources):
            remaining = max(0, remaining - 1)
            _expire_grant(claim, board)


def _expire_grant(claim: Claim, board: Board) -> None:
    stream, who = f"claim:{claim.resource}", claim.who
    if claim.is_offered:
        board.record(OfferExpired(stream, who.agent, claim.version))
        return
    due = board.note_expiry(claim)
    board.record(ClaimExpired(stream, who.agent, who.session, claim.version, due))
    if who in board.holders:
        board.record_loss(claim, "expired")


def _expire_ticket(ticket: Claim, board: Board) -> None:
    if board.find_ticket_end(ticket) <= board.now:
        remove_ticket(ticket, "absent", board)
    elif ticket.waits_until and ticket.waits_until <= board.now:
        board.keep(ticket._replace(waits_until=0, deadline=ticket.waits_until + ABSENCE))


def grant_waiting(board: Board) -> list[tuple[str, HolderId]]:
    """Grant what is free to the waiters that are in a call, in queue order. Returns the resources with their new
    holders. It repeats, because a grant may free something for an earlier waiter: its agent may now share a resource
    that it held exclusively."""
    granted: list[tuple[str, HolderId]] = []
    before = -1
    while before < len(board.events):
        before = len(board.events)
        for ticket in board.list_waiters():
            if ticket.key not in board.claims:
                continue  # an earlier grant of this round removed it
            request = make_request(ticket)
            if is_satisfied(request, board):
                remove_ticket(ticket, "granted", board)
            elif board.is_free(request) and not find_cycle_of_grant(request, ticket, board):
                grant(request, ticket, board)
                granted += [(resource, ticket.who) for resource in ticket.resources]
    return granted


def grant(request: Request, ticket: Claim | None, board: Board, note: str | None = None) -> list[Claim]:
    """Grant all resources that the agent does not hold yet. A grant to a waiter is an offer until its call collects it.
    Returns the claims of all resources."""
    who, mode, granted = request.who, request.mode, []
    for resource in request.resources:
        own = board.find_own(resource, who) if board.claims else None
        if own is not None and own.mode == mode:
            granted.append(own)
            continue
        for claim in list(board.list_grants(resource)) if board.claims else ():
            if board.is_abandoned_to(claim, who) and not mode == "shared" == claim.mode:
                board.record(ClaimReleased(f"claim:{claim.resource}", claim.who.agent, claim.version))
        fulfilled = ticket.version if ticket is not None and resource == ticket.resource else None
        replaced = own.version if own is not None else None
        note = ticket.note if ticket is not None else note
        event = ClaimGranted(
            f"claim:{resource}", who.agent, who.session, who.principal, mode, fulfilled, replaced, note
        )
        granted.append(board.claims[resource, board.record(event)])
        if ticket is not None and (own is None or own.is_offered):
            board.keep(granted[-1]._replace(is_offered=True, deadline=board.now + OFFER))
    for other in board.list_tickets(*request.resources) if len(board.claims) > len(granted) else ():
        if other.who == who and is_satisfied(make_request(other), board):
            remove_ticket(other, "granted", board)
    return granted


def is_satisfied(request: Request, board: Board) -> bool:
    """Whether a waiter holds what it requests, or has got more since: exclusively what it would share."""
    own = [board.find_own(resource, request.who) for resource in request.resources]
    return all(
        claim is not None
        and (claim.mode == request.mode or (claim.mode == "exclusive" and claim.position > request.position))
        for claim in own
    )


def take_over(who: HolderId, host: str | None, resources: tuple[str, ...], board: Board) -> bool:
    """Hand over to an agent below a host the claims that agents of the same name left and that overlap the resources,
    unless agents would then wait for each other. Returns whether anything was handed over."""
    is_taken = False
    for left in [holder.who for holder in board.holders.values() if holder.is_left_to(who, host)]:
        holds = any(claim.who == left and wants(claim, resources) for claim in board.claims.values())
        if holds and board.has_family_left(left):
            trial = board.copy()
            trial.hand_over(left, who)
            if not find_cycle(trial):
                board.hand_over(left, who)
                is_taken = True
    return is_taken


def remove_ticket(ticket: Claim, why: str, board: Board) -> int:
    event = ClaimUnqueued(f"claim:{ticket.resource}", ticket.who.agent, ticket.version, why)  # type: ignore[arg-type]
    return board.record(event)


# --- deadlocks


def find_cycle(board: Board, also: Request | None = None) -> list[Link]:
    """The agents that wait for each other, so that none of them would ever get what it wants; empty if there are none.
    With `also`: those that would, if this request waited, too. The order of the queue does not matter: the agent that a
    waiter waits for may overtake it."""
    requests = [*([also] if also is not None else ()), *map(make_request, board.list_waiters())]
    blockers = {request: {claim.who for claim in board.list_obstacles(request)} for request in requests}
    stuck = {request.who for request in requests}
    while True:
        still = {request.who for request, others in blockers.items() if others & stuck}
        if still == stuck:
            break
        stuck = still
    starts = [also] if also is not None else requests
    first = next((request for request in starts if blockers[request] & stuck), None)
    return [] if first is None else _describe_cycle(first, stuck, blockers, board)


def _describe_cycle(
    request: Request, stuck: set[HolderId], blockers: dict[Request, set[HolderId]], board: Board
) -> list[Link]:
    path: list[tuple[HolderId, str]] = []  # an agent, and what it waits for
    while request.who not in (who for who, _ in path):
        obstacle = next(claim for claim in board.list_obstacles(request) if claim.who in stuck)
        path.append((request.who, obstacle.resource))
        request = next(it for it, others in blockers.items() if it.who == obstacle.who and others & stuck)
    cycle = path[[who for who, _ in path].index(request.who) :]
    return [Link(who.agent, cycle[number - 1][1], waited) for number, (who, waited) in enumerate(cycle)]


def find_cycle_of_grant(request: Request, ticket: Claim | None, board: Board) -> list[Link]:
    """The cycle that a grant would close, because its agent also waits for something else."""
    waiters = [waiter for waiter in board.list_waiters() if waiter.who == request.who]
    if all(ticket is not None and waiter.key == ticket.key for waiter in waiters):
        return []
    trial = board.copy()
    grant(request, ticket, trial)
    return find_cycle(trial)
