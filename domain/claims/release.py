"""Release claims and tickets: by their holder, by name where that is allowed, or by force."""

from typing import Literal

from holdlog.domain.claims.board import ClaimBoard, LiveHold, Waiting
from holdlog.domain.claims.claim import ClaimReleased, ClaimUnqueued
from holdlog.domain.claims.commands import ReleaseClaim, ReleaseOutcome, StopWaiting
from holdlog.domain.claims.lease import ABSENCE, Who
from holdlog.domain.claims.queue import grant_waiting, lose, release_by_name
from holdlog.domain.claims.resource import overlap
from holdlog.domain.refusals import ExpiredError, InvalidError, NotFoundError, NotHolderError


def release(command: ReleaseClaim, who: Who, board: ClaimBoard) -> ReleaseOutcome:
    """Release all or nothing. Raises InvalidError, NotFoundError, ExpiredError, NotHolderError."""
    if command.forced:
        return _forced(command, board)
    if command.resource is None:
        if not who.is_known:
            raise InvalidError(
                "receipt: is required to release everything without a session; pass the one returned with your claim,"
                " or pass resource"
            )
        mine = [lease.key for lease in board.leases.values() if lease.is_of(who) and board.lease(*lease.key)]
        wanted = sorted({resource for resource, _ in mine})
    else:
        wanted = list(dict.fromkeys((command.resource, *command.also)))
        for resource in wanted:
            _require_releasable(resource, who, command.version, board)
    released = []
    for resource in wanted:
        hold = _releasable(resource, who, board)
        if hold is not None:
            released.append((resource, _end(hold, command, who, board)))
        for waiting in _tickets(resource, who, board):
            agent, principal = waiting.ticket.agent, waiting.ticket.principal
            left = ClaimUnqueued(agent=agent, principal=principal, ticket=waiting.ticket.version, why="left")
            version = board.record(resource, left)
            board.drop(waiting.lease.key)
            if hold is None:
                released.append((resource, version))
    granted = grant_waiting(board)
    return ReleaseOutcome(tuple(released), not released, command.outcome, *_granted_to(granted, wanted))


def stop_waiting(command: StopWaiting, who: Who, board: ClaimBoard) -> None:
    lease = board.lease(command.resource, command.ticket)
    if lease is not None and lease.kind == "waits" and lease.is_of(who):
        board.keep(lease._replace(waiting_until=0, deadline=board.now + ABSENCE))
        grant_waiting(board)


def _end(hold: LiveHold, command: ReleaseClaim, who: Who, board: ClaimBoard) -> int:
    """Record the end of the hold. Returns the version of the event."""
    is_target = hold.resource == command.moved_to  # the new name in a rename whose agent claimed both
    facts = {
        "outcome": "created" if is_target else command.outcome or "released",
        "moved_to": None if is_target else command.moved_to,
        "note": command.note,
    }
    if hold.lease.is_of(who):
        ending = ClaimReleased(agent=hold.grant.agent, grant=hold.grant.version, **facts)  # type: ignore[arg-type]
        board.drop(hold.lease.key)
        return board.record(hold.resource, ending)
    lose(hold, "released_by_name", board)
    return board.record(hold.resource, release_by_name(hold, **facts))


def _releasable(resource: str, who: Who, board: ClaimBoard) -> LiveHold | None:
    """The hold that the caller may release: its own, what an ended session of its name left, or, for a caller without
    session and receipt, the only one of its name that was made without a session."""
    own = board.hold_of(resource, who)
    if own is not None:
        return own
    if former := board.former_holds(resource, who):
        return former[0]
    by_name = [] if who.is_known else [hold for hold in board.holds(resource) if hold.lease.is_by_name(who)]
    return by_name[0] if len(by_name) == 1 else None


def _tickets(resource: str, who: Who, board: ClaimBoard) -> list[Waiting]:
    if tickets := board.tickets_of(resource, who):
        return tickets
    if who.is_known:
        return []
    by_name = [it for it in board.waiting() if it.resource == resource and it.lease.is_by_name(who)]
    return by_name if len(by_name) == 1 else []


def _require_releasable(resource: str, who: Who, version: int | None, board: ClaimBoard) -> None:
    claim = board.claim(resource)
    hold = _releasable(resource, who, board)
    if hold is not None and version in (None, hold.grant.version):
        return
    if version is None and _tickets(resource, who, board):
        return
    if claim.version == 0:
        raise NotFoundError.of_claim(resource)
    holds = board.holds(resource)
    held_by = holds[0].grant.agent if holds else None
    principal = holds[0].grant.principal if holds else None
    past = claim.past
    if past is not None and (past.holder, past.principal) == (who.agent, who.principal):
        if past.outcome == "expired":
            raise ExpiredError(
                resource,
                held_by,
                of_this_session=past.session == who.session,
                held_by_principal=principal,
            )
        if past.outcome == "forced":
            raise NotHolderError(resource, held_by, reason=past.note, held_by_principal=principal)
    if holds:
        servers = tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent)
        raise NotHolderError(resource, held_by, _cause(holds, who), servers=servers, held_by_principal=principal)


def _cause(holds: list[LiveHold], who: Who) -> Literal["agent", "session", "receipt", "token"]:
    """What distinguishes the caller from the holders."""
    named = [hold.lease for hold in holds if hold.grant.agent == who.agent]
    if not named:
        return "agent"
    if all(lease.principal != who.principal for lease in named):
        return "token"
    return "receipt" if any(lease.session is None for lease in named) else "session"


def _forced(command: ReleaseClaim, board: ClaimBoard) -> ReleaseOutcome:
    assert command.resource is not None
    wanted = list(dict.fromkeys((command.resource, *command.also)))
    released: dict[str, int] = {}
    for resource in wanted:
        holds = board.holds(resource)
        if not holds and any(board.conflicting_holds(resource, "exclusive", None)):
            raise InvalidError(
                "resource: nobody holds this exact one; call status with it and release the resource in covered_by"
            )
        if board.claim(resource).version == 0:
            raise NotFoundError.of_claim(resource)
        for hold in holds:
            if command.holder not in (None, hold.grant.agent):
                continue
            ending = ClaimReleased(
                agent=hold.grant.agent,
                grant=hold.grant.version,
                forced_by=command.agent,
                holder_principal=hold.grant.principal,
                note=command.note,
            )
            released[resource] = board.record(resource, ending)
            lose(hold, "forced", board, command.note)
    granted = grant_waiting(board)
    return ReleaseOutcome(tuple(released.items()), not released, None, *_granted_to(granted, wanted))


def _granted_to(grants: list[tuple[str, Who]], released: list[str]) -> tuple[str | None, str | None]:
    """Agent and principal of the waiter that was granted the first of these; None if there was none."""
    heirs = (who for resource in released for granted, who in grants if overlap(granted, resource))
    heir = next(heirs, None)
    return (heir.agent, heir.principal) if heir is not None else (None, None)
