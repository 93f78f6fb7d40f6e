"""Release claims and tickets: by their holder, by name where that is allowed, or by force."""

from typing import Literal, NamedTuple, TypeVar

from holdlog.domain.claims.board import ClaimBoard, LiveHold, Waiting
from holdlog.domain.claims.claim import ClaimReleased, ClaimUnqueued
from holdlog.domain.claims.commands import ReleaseClaim, ReleaseOutcome, StopWaiting
from holdlog.domain.claims.draft import BoardDraft, Decision
from holdlog.domain.claims.lease import ABSENCE, Who
from holdlog.domain.claims.queue import grant_waiting, release_by_name
from holdlog.domain.claims.resource import overlap
from holdlog.domain.refusals import ExpiredError, InvalidError, NotFoundError, NotHolderError

Part = TypeVar("Part", LiveHold, Waiting)


def release(command: ReleaseClaim, who: Who, server: str, board: ClaimBoard) -> Decision[ReleaseOutcome]:
    """Release all or nothing. `server`: what keeps the caller's session alive.

    Raises InvalidError, NotFoundError, ExpiredError, NotHolderError."""
    draft = BoardDraft(board)
    draft.revive(who, server)
    if command.forced:
        return draft.decide(_forced(command, draft))
    if command.resource is None:
        if not who.is_known:
            raise InvalidError(
                "receipt: is required to release everything without a session; pass the one returned with your claim,"
                " or pass resource"
            )
        live = (it for it in draft.leases.values() if it.deadline > draft.now)
        wanted = sorted({lease.resource for lease in live if lease.is_of(who)})
    else:
        wanted = list(dict.fromkeys((command.resource, *command.also)))
    found = [_releasable(resource, who, draft) for resource in wanted]
    if command.resource is not None:
        for each in found:
            _require_releasable(each, command.version, who, draft)
    released = []
    for resource, hold, tickets in found:
        if hold is not None:
            released.append((resource, _end(hold, command, who, draft)))
        for waiting in tickets:
            version = _leave(waiting, draft)
            if hold is None:
                released.append((resource, version))
    heir = _granted_to(grant_waiting(draft), wanted) if draft.queue else (None, None)
    return draft.decide(ReleaseOutcome(tuple(released), not released, command.outcome, *heir))


def stop_waiting(command: StopWaiting, who: Who, board: ClaimBoard) -> Decision[None]:
    draft = BoardDraft(board)
    lease = draft.lease(command.resource, command.ticket)
    if lease is not None and lease.kind == "waits" and lease.is_of(who):
        draft.keep(lease._replace(waiting_until=0, deadline=draft.now + ABSENCE))
        grant_waiting(draft)
    return draft.decide(None)


def _leave(waiting: Waiting, draft: BoardDraft) -> int:
    ticket = waiting.ticket
    draft.drop(waiting.lease.key)
    left = ClaimUnqueued(agent=ticket.agent, principal=ticket.principal, ticket=ticket.version, why="left")
    return draft.record(waiting.resource, left)


def _end(hold: LiveHold, command: ReleaseClaim, who: Who, draft: BoardDraft) -> int:
    """Record the end of the hold. Returns the version of the event."""
    is_target = hold.resource == command.moved_to  # the new name in a rename whose agent claimed both
    facts = {
        "outcome": "created" if is_target else command.outcome or "released",
        "moved_to": None if is_target else command.moved_to,
        "note": command.note,
    }
    if hold.lease.is_of(who):
        ending = ClaimReleased(agent=hold.grant.agent, grant=hold.grant.version, **facts)  # type: ignore[arg-type]
        draft.drop((hold.resource, hold.grant.version))
        return draft.record(hold.resource, ending)
    draft.lose(hold, "released_by_name")
    return draft.record(hold.resource, release_by_name(hold, **facts))


class _Releasable(NamedTuple):
    """What a caller may release of one resource."""

    resource: str
    hold: LiveHold | None
    tickets: list[Waiting]


def _releasable(resource: str, who: Who, board: ClaimBoard) -> _Releasable:
    """The caller's own, what an ended session of its name left, or, for a caller without session and receipt, the only
    hold and the only ticket of its name that were made without a session."""
    hold, tickets = board.hold_of(resource, who), board.tickets_of(resource, who) if board.queue else []
    if hold is None:
        hold = next(iter(board.former_holds(resource, who)), None)
    if who.is_known:
        return _Releasable(resource, hold, tickets)
    if hold is None:
        hold = _only([it for it in board.holds(resource) if it.lease.is_by_name(who)])
    if not tickets:
        only = _only([it for it in board.waiting() if it.resource == resource and it.lease.is_by_name(who)])
        tickets = [only] if only is not None else []
    return _Releasable(resource, hold, tickets)


def _only(found: list[Part]) -> Part | None:
    return found[0] if len(found) == 1 else None


def _require_releasable(found: _Releasable, version: int | None, who: Who, board: ClaimBoard) -> None:
    resource, hold, tickets = found
    if hold is not None and version in (None, hold.grant.version):
        return
    if version is None and tickets:
        return
    claim = board.claim(resource)
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


def _forced(command: ReleaseClaim, draft: BoardDraft) -> ReleaseOutcome:
    assert command.resource is not None
    wanted = list(dict.fromkeys((command.resource, *command.also)))
    released: dict[str, int] = {}
    for resource in wanted:
        holds = draft.holds(resource)
        if not holds and any(draft.conflicting_holds(resource, "exclusive", None)):
            raise InvalidError(
                "resource: nobody holds this exact one; call status with it and release the resource in covered_by"
            )
        if draft.claim(resource).version == 0:
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
            released[resource] = draft.record(resource, ending)
            draft.lose(hold, "forced", command.note)
    granted = grant_waiting(draft)
    return ReleaseOutcome(tuple(released.items()), not released, None, *_granted_to(granted, wanted))


def _granted_to(grants: list[tuple[str, Who]], released: list[str]) -> tuple[str | None, str | None]:
    """Agent and principal of the waiter that was granted the first of these; None if there was none."""
    heirs = (who for resource in released for granted, who in grants if overlap(granted, resource))
    heir = next(heirs, None)
    return (heir.agent, heir.principal) if heir is not None else (None, None)
