"""The queue: grant to waiters in the transaction that frees what they want, expire what is due, refuse deadlocks."""

from holdlog.domain.claims.board import Board, Loss, Wanted, want
from holdlog.domain.claims.claim import (
    ABSENCE,
    OFFER,
    Claim,
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimUnqueued,
    Who,
)
from holdlog.domain.claims.resource import claim_stream
from holdlog.domain.claims.results import Link


def expire_due(board: Board) -> None:
    """Record the end of grants and tickets whose time is over. A waiter whose call has ended keeps its place for two
    minutes."""
    for claim in sorted(board.claims.values(), key=lambda claim: (claim.position, claim.resource)):
        if claim.is_ticket:
            _expire_ticket(claim, board)
        elif (end := board.find_end(claim)) <= board.now:
            due = board.moment.at - (board.now - end)
            board.record(
                ClaimExpired(claim_stream(claim.resource), claim.who.agent, claim.version, due, claim.is_offered)
            )
            if not claim.is_offered:
                board.losses.append(Loss(claim.who, claim.resource, claim.version, "expired", due))


def _expire_ticket(ticket: Claim, board: Board) -> None:
    if ticket.waits_until > board.now:
        return
    if ticket.waits_until:
        board.keep(ticket._replace(waits_until=0, deadline=ticket.waits_until + ABSENCE))
        ticket = board.claims[ticket.key]
    if ticket.deadline is not None and ticket.deadline <= board.now:
        remove_ticket(ticket, "absent", board)


def grant_waiting(board: Board) -> list[tuple[str, Who]]:
    """Grant what is free to the waiters that are in a call, in queue order. Returns the resources with their new
    holders. Repeats, as a grant may free something for an earlier waiter: its agent shares what it held alone."""
    granted: list[tuple[str, Who]] = []
    before = -1
    while before < len(board.events):
        before = len(board.events)
        for ticket in board.list_waiters():
            if ticket.key not in board.claims:
                continue  # another grant of this round made it needless
            wanted = want(ticket)
            if is_content(wanted, board):
                remove_ticket(ticket, "granted", board)
            elif board.is_free(wanted) and not _would_deadlock(ticket, board):
                grant(wanted, ticket, board)
                granted += [(resource, ticket.who) for resource in ticket.resources]
    return granted


def grant(wanted: Wanted, ticket: Claim | None, board: Board) -> None:
    """Grant all resources. To a waiter it is an offer, until its call collects it."""
    for resource in wanted.resources:
        own = board.find_own(resource, wanted.who)
        if own is not None and own.mode == wanted.mode:
            continue
        for claim in list(board.list_grants(resource)):
            if board.is_abandoned_to(claim, wanted.who) and not wanted.mode == "shared" == claim.mode:
                board.record(ClaimReleased(claim_stream(claim.resource), claim.who.agent, claim.version))
        is_of_ticket = ticket is not None and resource == ticket.resource
        who, note = wanted.who, ticket.note if ticket is not None else None
        event = ClaimGranted(
            claim_stream(resource),
            who.agent,
            who.session,
            who.principal,
            wanted.mode,
            ticket.version if ticket is not None and is_of_ticket else None,
            own.version if own is not None else None,
            note,
        )
        version = board.record(event)
        if ticket is not None:
            claim = board.claims[resource, version]
            board.keep(claim._replace(is_offered=True, deadline=board.now + OFFER))
    for other in board.list_tickets(*wanted.resources):
        if board.is_own(other, wanted.who) and is_content(want(other), board):
            remove_ticket(other, "granted", board)


def is_content(wanted: Wanted, board: Board) -> bool:
    """Whether a waiter holds what it wants, or more: alone what it would share."""
    own = [board.find_own(resource, wanted.who) for resource in wanted.resources]
    return all(claim is not None and claim.mode in (wanted.mode, "exclusive") for claim in own)


def remove_ticket(ticket: Claim, why: str, board: Board) -> int:
    event = ClaimUnqueued(claim_stream(ticket.resource), ticket.who.agent, ticket.version, why)  # type: ignore[arg-type]
    return board.record(event)


# --- deadlocks


def find_cycle(board: Board, also: Wanted | None = None) -> list[Link]:
    """The agents that wait for each other, so that none of them would ever get what it wants; with `also`, if that
    claim waited, too. Empty if there is none. The order of the queue does not matter: a waiter is overtaken by the
    agent that it waits for."""
    wishes = [*([also] if also is not None else ()), *map(want, board.list_waiters())]
    blockers = {wanted: {claim.who for claim in board.list_obstacles(wanted)} for wanted in wishes}
    stuck = {wanted.who for wanted in wishes}
    while True:
        still = {wanted.who for wanted, others in blockers.items() if others & stuck}
        if still == stuck:
            break
        stuck = still
    starts = [also] if also is not None else wishes
    first = next((wanted for wanted in starts if blockers[wanted] & stuck), None)
    return [] if first is None else _describe_cycle(first, stuck, blockers, board)


def _describe_cycle(wanted: Wanted, stuck: set[Who], blockers: dict[Wanted, set[Who]], board: Board) -> list[Link]:
    path: list[tuple[Who, str]] = []  # an agent, and what it waits for
    while wanted.who not in (who for who, _ in path):
        obstacle = next(claim for claim in board.list_obstacles(wanted) if claim.who in stuck)
        path.append((wanted.who, obstacle.resource))
        wanted = next(it for it, others in blockers.items() if it.who == obstacle.who and others & stuck)
    cycle = path[[who for who, _ in path].index(wanted.who) :]
    return [Link(who.agent, cycle[number - 1][1], waited) for number, (who, waited) in enumerate(cycle)]


def _would_deadlock(ticket: Claim, board: Board) -> bool:
    """Whether a grant to a waiter that also waits elsewhere would close a cycle."""
    if sum(board.is_own(waiter, ticket.who) for waiter in board.list_waiters()) < 2:
        return False
    trial = board.copy()
    grant(want(ticket), ticket, trial)
    return bool(find_cycle(trial))
