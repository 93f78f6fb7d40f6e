"""Load the board for a command from a transaction, and save what was decided."""

from collections.abc import Sequence
from typing import Any, Final

from holdlog.domain.claims.acquire import most_of
from holdlog.domain.claims.board import ClaimBoard, Key
from holdlog.domain.claims.claim import Grant, Ticket
from holdlog.domain.claims.draft import Decision
from holdlog.domain.claims.lease import GRACE, HeldCounts, Lease, Who
from holdlog.domain.claims.queue import expire_due
from holdlog.domain.claims.reach import reach
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Change, Reader, Transaction

NOT_RECORDED: Final = "not-recorded"
"""The session of a lease whose session is unknown. It counts as ended, so a caller with its holder's name may resume
the claim."""
MAX_DUE: Final = 500
"""Leases or values that expire in one step."""


def load_board(reader: Reader, resources: Sequence[str], now: int, at: int, who: Who | None = None) -> ClaimBoard:
    """Load the board of these resources: what overlaps them, and what can be reached from there (see reach.py). `who`:
    the caller; also what its session waits for.

    Grants and tickets with unknown leases, as in a copy of the log, last for the grace period. `now`: steady clock;
    `at`: UTC; both in microseconds.
    """
    tickets: list[Ticket] = []
    if ticket_count := reader.ticket_count():
        claims, tickets = reach(reader, resources, ticket_count, who)
    else:
        claims = reader.overlapping(resources)
    active = [claim.resource for claim in claims if claim.grants or claim.waiting]
    if not active:
        return ClaimBoard(claims, (), {}, now, at, ticket_count=ticket_count)
    leases = {lease[:2]: lease for lease in reader.leases.of(active)}
    restored: dict[Key, Lease] = {}
    for ticket in tickets:
        if ticket[:2] not in leases:
            restored[ticket[:2]] = _lease_of(ticket.resource, ticket, now, at)
    for claim in claims:
        for grant in claim.grants:
            if (key := (claim.resource, grant.version)) not in leases:
                restored[key] = _lease_of(claim.resource, grant, now, at)
    return ClaimBoard(claims, tickets, leases, now, at, restored, ticket_count)


def load_board_to_write(transaction: Transaction, resources: Sequence[str], who: Who | None = None) -> ClaimBoard:
    """Expire what is due on the board of these resources, then load it like `load_board`. The expiry is stored even if
    the command is refused."""
    board = load_board(transaction, resources, transaction.steady, transaction.at, who)
    if board.restored or [lease for lease in board.leases.values() if lease.deadline <= board.now]:
        save(expire_due(board), transaction, NOBODY)
        board = load_board(transaction, resources, transaction.steady, transaction.at, who)
    return board


def count_held(transaction: Transaction, who: Who, board: ClaimBoard) -> HeldCounts:
    """What the session and the principal of a caller hold and wait for; a ticket may request several resources.
    `board`: loaded for this caller, so it has all tickets of its session."""
    held = transaction.leases.held(who, transaction.steady)
    if not held.awaited_by_principal:
        return held
    joint = [ticket for ticket in transaction.joint_tickets() if ticket.principal == who.principal]
    leases = {it.key: it for it in transaction.leases.of(list({ticket.resource for ticket in joint}))}
    live = [it for it in joint if (lease := leases.get(it[:2])) is not None and lease.deadline > transaction.steady]
    mine = [it for it in board.queue.values() if it.lease.session == who.session and it.lease.is_counted_for(who)]
    return held._replace(
        awaited_by_session=sum([most_of(it.ticket) for it in mine]),
        awaited_by_principal=held.awaited_by_principal + sum([most_of(it) - 1 for it in live]),
    )


def save(decision: Decision[Any], transaction: Transaction, caller: Caller) -> dict[Key, int]:
    """Append the events of a decision and save its leases and losses; leases of new grants get their positions.

    Returns the positions of the events, by resource and version."""
    positions: dict[Key, int] = {}
    if decision.events:
        appended = transaction.append([Change(*event) for event in decision.events], caller)
        for (_, _, after), position in zip(decision.events, appended, strict=True):
            positions[after.resource, after.version] = position
    if decision.dropped:
        transaction.leases.drop(decision.dropped)
    if decision.kept:
        placed = [
            lease
            if lease.position or lease.kind == "waits"  # or a queued grant would have its ticket's position
            else lease._replace(position=positions.get((lease.resource, lease.version), 0))
            for lease in decision.kept
        ]
        transaction.leases.put(placed)
    if decision.losses:
        transaction.leases.lose(decision.losses, transaction.at)
    return positions


def end_due_leases(transaction: Transaction, gone: bool = False) -> bool:
    """Expire leases and end blocking calls that are due. Returns whether there were any.

    `gone`: sessions ended, so waiters may now resume what ended sessions of the same names held."""
    due = transaction.leases.due(transaction.steady, MAX_DUE)
    if due or gone:
        resources = {lease.resource for lease in due} | {
            claim.resource for claim in (transaction.queued() if gone else ())
        }
        board = load_board(transaction, list(resources), transaction.steady, transaction.at)
        save(expire_due(board), transaction, NOBODY)
    return bool(due)


def _lease_of(resource: str, part: Grant | Ticket, now: int, at: int) -> Lease:
    """The lease that a grant or ticket gets if its own is unknown."""
    return Lease(
        resource=resource,
        version=part.version,
        kind="held" if isinstance(part, Grant) else "waits",
        agent=part.agent,
        principal=part.principal,
        session=(part.session if isinstance(part, Grant) else None) or NOT_RECORDED,
        server="",
        deadline=now + GRACE,
        duration=GRACE,
        last_call_at=now,
        last_seen_at=now,
        ended_at=at,
    )
