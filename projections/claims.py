"""View `claims`: the current state of every claim. Free claims keep their rows: their versions continue.

The columns are a documented contract (docs/store.md): hooks read them with plain SQLite. `held` and `waiting`
count grants and tickets; `grants`, `line` (the queue) and `past` (how the last hold ended) contain JSON lists.
"""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json, to_json

from holdlog.domain.claims.claim import Claim, Grant, PastHold, Ticket
from holdlog.projections.projection import Row, Table

CLAIMS = Table(
    "claims",
    {
        "resource": str,
        "version": int,
        "held": int,
        "waiting": int,
        "grants": str,
        "line": str,
        "past": str,
        "digest": bytes,
    },
    key=1,
)


def row_of_claim(claim: Claim, digest: bytes) -> Row:
    resource, version, grants, line, past = claim
    return (resource, version, len(grants), len(line), _text(grants), _text(line), _text(past or ()), digest)


def claim_of(row: Row) -> Claim:
    resource, version, _, _, grants, line, past, _ = row
    return Claim(
        resource,
        version,
        tuple([Grant(*grant) for grant in from_json(grants)]) if grants else (),
        tuple([_ticket(ticket) for ticket in from_json(line)]) if line else (),
        PastHold(*from_json(past)) if past else None,
    )


def _ticket(row: list[Any]) -> Ticket:
    row[-2:] = map(tuple, row[-2:])  # `also` and `alternatives`
    return Ticket(*row)


def _text(parts: Sequence[Any]) -> str:
    """The JSON list, empty if there are no parts: most claims have no queue, and parsing costs time."""
    return to_json(parts).decode() if parts else ""
