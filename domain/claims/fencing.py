"""Fencing: a write that names the claim it relies on is refused once that claim is another's."""

from holdlog.domain.claims.board import Board
from holdlog.domain.claims.lease import Who
from holdlog.domain.record import Guard
from holdlog.domain.refusals import FencedError


def fence(guard: Guard, who: Who, board: Board) -> FencedError | None:
    """Why a write that relies on this claim must not happen; None: it is current, and the writer holds it."""
    lease = board.lease(guard.resource, guard.version)
    claim = board.claim(guard.resource)
    if lease is not None and lease.kind != "waits" and lease.is_of(who) and claim.grant(guard.version) is not None:
        return None
    holds = board.holds(guard.resource)
    past = claim.past
    return FencedError(
        guard.resource,
        guard.version,
        current_version=holds[0].grant.version if holds else None,
        held_by=holds[0].grant.agent if holds else None,
        reason=past.note if past and past.outcome == "forced" and past.holder == who.agent else None,
        held_by_principal=holds[0].grant.principal if holds else None,
        servers=tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent),
    )
