"""Fencing: refuse a write whose writer no longer holds the claim that it relies on."""

from typing import Literal

from holdlog.domain.claims.board import ClaimBoard
from holdlog.domain.claims.claim import PastHold
from holdlog.domain.claims.lease import Who
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import FencedError

Ended = Literal["released", "expired", "forced"]


def fence(guard: FencingCondition, who: Who, board: ClaimBoard) -> FencedError | None:
    """The refusal of a write that relies on this claim; None: it is current, and the writer holds it."""
    if guard.receipt is not None:
        who = who._replace(session=None, receipt=guard.receipt)
    lease = board.lease(guard.resource, guard.version)
    is_grant = lease is not None and lease.kind != "waits" and board.claim(guard.resource).grant(guard.version)
    if lease is not None and is_grant and (lease.is_of(who) or lease.is_left_to(who, board.now)):
        return None
    own = board.hold_of(guard.resource, who)
    holds = [hold for hold in board.holds(guard.resource) if not hold.lease.lets_in(who)]
    shown = own or next(iter(holds), None)
    past = board.claim(guard.resource).past
    ended = _ended(past, guard.version, who)
    return FencedError(
        guard.resource,
        guard.version,
        current_version=shown.grant.version if shown else None,
        held_by=shown.grant.agent if shown else None,
        held_by_principal=shown.grant.principal if shown else None,
        reason=past.note if past and ended == "forced" else None,
        ended=ended,
        is_own=own is not None,
        needs_receipt=not who.is_known and any(hold.lease.is_by_name(who) for hold in holds),
        servers=tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent),
    )


def former_session(guard: FencingCondition, who: Who, board: ClaimBoard) -> str | None:
    """The ended session whose claim a write relies on; None: it is the writer's own."""
    lease = board.lease(guard.resource, guard.version)
    return lease.session if lease is not None and not lease.is_of(who) and lease.is_left_to(who, board.now) else None


def _ended(past: PastHold | None, version: int, who: Who) -> Ended | None:
    """How the grant of this version ended, if it was the last and the writer's own."""
    if past is None or (past.version, past.holder, past.principal) != (version, who.agent, who.principal):
        return None
    return past.outcome if past.outcome in ("expired", "forced") else "released"
