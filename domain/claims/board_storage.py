"""Load the board for a command from a transaction, and save what was decided."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdlog.domain.claims.board import ClaimBoard
from holdlog.domain.claims.claim import Claim, Grant, Ticket
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
    active = [claim.resource for claim in claims.values() if claim.grants or claim.line]
    board = ClaimBoard(claims.values(), reader.leases.of(active) if active else (), now, at)
    for lease in [lease for claim in claims.values() for lease in _unknown(claim, board)]:
        board.keep(lease)
    return board


def load_board_to_write(transaction: Transaction, resources: Sequence[str]) -> ClaimBoard:
    """Expire what is due on the board of these resources, then load it like `load_board`. The expiry is stored even if
    the command is refused."""
    board = load_board(transaction, resources, transaction.steady, transaction.at)
    due = [lease for lease in board.leases.values() if lease.deadline <= board.now]
    if due or board.kept:
        expire_due(due, board)
        save_board(board, transaction, NOBODY)
        board = load_board(transaction, resources, transaction.steady, transaction.at)
    return board


def save_board(board: ClaimBoard, transaction: Transaction, caller: Caller) -> dict[tuple[str, int], int]:
    """Append the events of a board and save its leases and losses; leases of new grants get their positions.

    Returns the positions of the events, by resource and version."""
    positions: dict[tuple[str, int], int] = {}
    if board.changes:
        appended = transaction.append([Change(*change) for change in board.changes], caller)
        for (_, _, after), position in zip(board.changes, appended, strict=True):
            positions[after.resource, after.version] = position
    if board.dropped:
        transaction.leases.drop(board.dropped)
    if board.kept:
        placed = [
            lease
            if lease.position or lease.kind == "waits"  # or a queued grant would have its ticket's position
            else lease._replace(position=positions.get(lease.key, 0))
            for lease in board.kept.values()
        ]
        transaction.leases.put(placed)
    if board.losses:
        transaction.leases.lose(board.losses, transaction.at)
    return positions


def end_due_leases(transaction: Transaction, gone: bool = False) -> bool:
    """Expire leases and end blocking calls that are due. Returns whether there were any.

    `gone`: sessions ended, so waiters may now resume what ended sessions of the same names held."""
    due = transaction.leases.due(transaction.steady, MAX_DUE)
    if due or gone:
        board = load_board(transaction, {lease.resource for lease in due}, transaction.steady, transaction.at)
        expire_due(due, board)
        save_board(board, transaction, NOBODY)
    return bool(due)


def _unknown(claim: Claim, board: ClaimBoard) -> Iterator[Lease]:
    parts: list[Grant | Ticket] = [*claim.grants, *claim.line]
    for part in parts:
        if (claim.resource, part.version) not in board.leases:
            yield Lease(
                resource=claim.resource,
                version=part.version,
                kind="held" if isinstance(part, Grant) else "waits",
                agent=part.agent,
                principal=part.principal,
                session=(part.session if isinstance(part, Grant) else None) or NOT_RECORDED,
                server="",
                deadline=board.now + GRACE,
                duration=GRACE,
                last_call_at=board.now,
                last_seen_at=board.now,
                ended_at=board.at,
            )
