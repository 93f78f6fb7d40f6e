"""Load the board for a command from a transaction, and save what was decided."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdlog.domain.claims.board import ClaimBoard, Key
from holdlog.domain.claims.claim import Claim, Grant, Ticket
from holdlog.domain.claims.draft import Decision
from holdlog.domain.claims.lease import GRACE, Lease
from holdlog.domain.claims.queue import expire_due
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Change, Reader, Transaction

NOT_RECORDED: Final = "not-recorded"
"""The session of a lease whose session is unknown. It counts as ended, so a caller with its holder's name may resume
the claim."""
MAX_DUE: Final = 500
"""Leases or values that expire in one step."""


def load_board(reader: Reader, resources: Iterable[str], now: int, at: int) -> ClaimBoard:
    """Load the board of these resources: all that overlaps them, all tickets, and the resources those request.

    Grants and tickets with unknown leases, as in a copy of the log, last for the grace period. `now`: steady clock;
    `at`: UTC; both in microseconds.
    """
    claims = {claim.resource: claim for claim in reader.overlapping(list(resources))}
    queued = reader.queued()
    if queued:
        wanted = {
            resource
            for claim in queued
            for ticket in claim.line
            for resource in (claim.resource, *ticket.also, *ticket.alternatives)
        }
        claims |= {claim.resource: claim for claim in reader.overlapping(sorted(wanted))}
    active = [claim for claim in claims.values() if claim.grants or claim.line]
    if not active:
        return ClaimBoard(claims.values(), (), now, at)
    leases = reader.leases.of([claim.resource for claim in active])
    known = {(lease.resource, lease.version) for lease in leases}
    restored = [
        _lease_of(claim.resource, part, now, at)
        for claim in active
        for part in _parts(claim)
        if (claim.resource, part.version) not in known
    ]
    return ClaimBoard(claims.values(), leases, now, at, restored)


def load_board_to_write(transaction: Transaction, resources: Sequence[str]) -> ClaimBoard:
    """Expire what is due on the board of these resources, then load it like `load_board`. The expiry is stored even if
    the command is refused."""
    board = load_board(transaction, resources, transaction.steady, transaction.at)
    if board.restored or any(lease.deadline <= board.now for lease in board.leases.values()):
        save(expire_due(board), transaction, NOBODY)
        board = load_board(transaction, resources, transaction.steady, transaction.at)
    return board


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
            else lease._replace(position=positions.get(lease.key, 0))
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
        board = load_board(transaction, {lease.resource for lease in due}, transaction.steady, transaction.at)
        save(expire_due(board), transaction, NOBODY)
    return bool(due)


def _parts(claim: Claim) -> list[Grant | Ticket]:
    return [*claim.grants, *claim.line]


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
