"""View `claims`: the current state of every claim. Free claims keep their rows: their versions continue. View
`tickets`: who waits for which claim.

The columns are a documented contract (docs/store.md): hooks read them with plain SQLite. `held` and `waiting`
count grants and tickets; `grants` and `past` (how the last hold ended) contain JSON lists, and so do `also` and
`alternatives`.
"""

from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

from holdlog.domain.claims.claim import Claim, ClaimEvent, Grant, PastHold, Ticket, ended_ticket, new_ticket
from holdlog.projections.projection import Drop, Put, Row, RowChange, Table

CLAIMS = Table(
    "claims",
    {
        "resource": str,
        "version": int,
        "held": int,
        "waiting": int,
        "grants": str,
        "past": str,
        "digest": bytes,
    },
    key=1,
)
TICKETS = Table(
    "tickets",
    {
        "resource": str,
        "version": int,
        "agent": str,
        "principal": str,
        "mode": str,
        "since": int,
        "turn": int,
        "also": str,
        "alternatives": str,
    },
    key=2,
)

SNAPSHOTS = Table("snapshots", {"position": int}, key=1)
"""The positions at which the board was copied: soon after each multiple of `SNAPSHOT_EVERY`. To read the board of an
earlier position, the log is folded from the snapshot before it. The log can replace every snapshot."""
PAST_CLAIMS = Table(
    "past_claims", {"position": int, **{name: kind for name, kind in CLAIMS.columns.items() if name != "digest"}}, key=2
)
"""The rows of `claims` that were held or waited for at the position of a snapshot."""
PAST_TICKETS = Table("past_tickets", {"position": int, **TICKETS.columns}, key=3)
"""The rows of `tickets` at the position of a snapshot."""
SNAPSHOT_TABLES = (SNAPSHOTS, PAST_CLAIMS, PAST_TICKETS)
SNAPSHOT_EVERY: Final = 4_000
"""Positions."""


def row_of_claim(claim: Claim, digest: bytes) -> Row:
    resource, version, grants, waiting, past = claim
    return (resource, version, len(grants), waiting, _text(grants), _text(past or ()), digest)


def claim_of(row: Row) -> Claim:
    resource, version, _, waiting, grants, past, _ = row
    return Claim(
        resource,
        version,
        tuple([Grant(*grant) for grant in from_json(grants)]) if grants else (),
        waiting,
        PastHold(*from_json(past)) if past else None,
    )


def row_of_past_claim(position: int, claim: Claim) -> Row:
    return (position, *row_of_claim(claim, b"")[:-1])


def row_of_past_ticket(position: int, ticket: Ticket) -> Row:
    return (position, *_row_of_ticket(ticket))


def past_claim_of(row: Row) -> Claim:
    """The claim of a row of `PAST_CLAIMS`."""
    return claim_of((*row[1:], b""))


def details(claim: Claim, event: ClaimEvent, at: int) -> Sequence[RowChange]:
    """What an event changes in the queue of its claim. `claim`: after the event."""
    if (ended := ended_ticket(event)) is not None:
        return (Drop(TICKETS, (claim.resource, ended)),)
    if (ticket := new_ticket(claim, event, at)) is not None:
        return (Put(TICKETS, _row_of_ticket(ticket)),)
    return ()


def ticket_of(row: Row) -> Ticket:
    """The ticket of a row of `TICKETS`."""
    also, alternatives = row[7:]
    return Ticket._make(
        (*row[:7], tuple(from_json(also)) if also else (), tuple(from_json(alternatives)) if alternatives else ())
    )


def _row_of_ticket(ticket: Ticket) -> Row:
    return (*ticket[:7], _text(ticket.also), _text(ticket.alternatives))


def _text(parts: Sequence[Any]) -> str:
    """The JSON list, empty if there are no parts: parsing costs time."""
    return to_json(parts).decode() if parts else ""
