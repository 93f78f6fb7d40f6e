"""View `claims`: every claim as it is now; free ones stay, because their versions count on.

The columns are a documented contract (docs/store.md): hooks read them with nothing but SQLite.
"""

from typing import Any

from holdlog.domain.claim import Claim
from holdlog.projections.projection import Put, Table

CLAIMS = Table(
    "claims",
    {
        "resource": str,
        "version": int,
        "holder": str,
        "granted": int,
        "claimed_at": int,
        "previous_holder": str,
        "ended_at": int,
        "digest": bytes,
    },
    key=1,
)


def put_claim(claim: Claim) -> Put:
    return Put(CLAIMS, tuple(claim))


def claim_of(row: tuple[Any, ...]) -> Claim:
    return Claim(*row)
