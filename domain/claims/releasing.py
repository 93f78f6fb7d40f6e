"""Letting go of claims and of places in line: by whoever has them, or by force."""

from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import ClaimReleased, ClaimUnqueued
from holdlog.domain.claims.commands import Let, Release, StepBack
from holdlog.domain.claims.lease import ABSENCE, Loss, Who
from holdlog.domain.claims.resource import overlap
from holdlog.domain.claims.serving import serve
from holdlog.domain.refusals import ExpiredError, InvalidError, NotFoundError, NotHolderError


def release(command: Release, who: Who, board: Board) -> tuple[Let, list[Loss]]:
    """Raises NotFoundError, ExpiredError, NotHolderError: nothing is released then."""
    if command.forced:
        return _forced(command, board)
    if command.resource is None:
        mine = [lease.key for lease in board.leases.values() if lease.is_of(who) and board.lease(*lease.key)]
        wanted = sorted({resource for resource, _ in mine})
    else:
        wanted = list(dict.fromkeys((command.resource, *command.also)))
        for resource in wanted:
            _require_mine_or_free(resource, who, command.version, board)
    released = []
    for resource in wanted:
        hold = board.hold_of(resource, who)
        if hold is not None:
            ending = ClaimReleased(
                agent=hold.grant.agent,
                grant=hold.grant.version,
                outcome=command.outcome or "released",
                moved_to=command.moved_to,
                note=command.note,
            )
            released.append((resource, board.record(resource, ending)))
            board.drop(hold.lease.key)
        for waiting in board.tickets_of(resource, who):
            version = board.record(
                resource,
                ClaimUnqueued(agent=who.agent, principal=who.principal, ticket=waiting.ticket.version, why="left"),
            )
            board.drop(waiting.lease.key)
            if hold is None:
                released.append((resource, version))
    served = serve(board)
    return Let(tuple(released), not released, command.outcome, *_granted_to(served, wanted)), []


def step_back(command: StepBack, who: Who, board: Board) -> None:
    lease = board.lease(command.resource, command.ticket)
    if lease is not None and lease.kind == "waits" and lease.is_of(who):
        board.keep(lease._replace(present_until=0, deadline=board.now + ABSENCE))
        serve(board)


def _require_mine_or_free(resource: str, who: Who, version: int | None, board: Board) -> None:
    claim = board.claim(resource)
    hold = board.hold_of(resource, who)
    if hold is not None and version in (None, hold.grant.version):
        return
    if version is None and board.tickets_of(resource, who):
        return
    if claim.version == 0:
        raise NotFoundError.of_claim(resource)
    holds = board.holds(resource)
    held_by = holds[0].grant.agent if holds else None
    principal = holds[0].grant.principal if holds else None
    past = claim.past
    if past is not None and past.holder == who.agent and past.outcome in ("expired", "forced"):
        if past.outcome == "expired":
            raise ExpiredError(resource, held_by, held_by_principal=principal)
        raise NotHolderError(resource, held_by, reason=past.note, held_by_principal=principal)
    if held_by is not None:
        same = tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent)
        raise NotHolderError(resource, held_by, same_name=bool(same), servers=same, held_by_principal=principal)


def _forced(command: Release, board: Board) -> tuple[Let, list[Loss]]:
    resource = command.resource
    assert resource is not None
    holds = board.holds(resource)
    if not holds and any(board.rivals(resource, "exclusive", None)):
        raise InvalidError("resource: nobody holds this very one; status names the one that covers it")
    if board.claim(resource).version == 0:
        raise NotFoundError.of_claim(resource)
    losses, released = [], []
    for hold in holds:
        ending = ClaimReleased(
            agent=hold.grant.agent,
            grant=hold.grant.version,
            forced_by=command.agent,
            holder_principal=hold.grant.principal,
            note=command.note,
        )
        released.append((resource, board.record(resource, ending)))
        board.drop(hold.lease.key)
        losses.append(hold.lease.lost("forced", board.at, command.note))
    served = serve(board)
    return Let(tuple(released[-1:]), not released, None, *_granted_to(served, [resource])), losses


def _granted_to(served: list[tuple[str, Who]], released: list[str]) -> tuple[str | None, str | None]:
    """Agent and principal of the waiter that has the first of these now; None where nobody waited."""
    heirs = (who for resource in released for granted, who in served if overlap(granted, resource))
    heir = next(heirs, None)
    return (heir.agent, heir.principal) if heir is not None else (None, None)
