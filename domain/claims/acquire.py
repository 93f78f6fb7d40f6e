"""Acquire claims, immediately or from the queue."""

from typing import Final, Literal, NamedTuple

from holdlog.domain.claims.board import ClaimBoard, LiveHold, ResourceSet, Waiting, WantedClaim
from holdlog.domain.claims.claim import ClaimQueued, ClaimUnqueued, PastHold, Ticket
from holdlog.domain.claims.commands import MAX_OF_PRINCIPAL, AcquireClaim, ClaimAcquired, Queued, QueuedTicket
from holdlog.domain.claims.deadlock import closed_cycle, cycle
from holdlog.domain.claims.draft import BoardDraft, Decision
from holdlog.domain.claims.lease import ABSENCE, HeldCounts, Lease, Who
from holdlog.domain.claims.queue import grant, grant_waiting
from holdlog.domain.refusals import BusyError, DeadlockError, Hold, InvalidError, Link, UnavailableError

MAX_TICKETS: Final = 1_000
"""Maximum tickets in the queues of all resources together."""
MAX_WAITERS_SHOWN: Final = 20
"""Waiters that a holder's response lists: the first ones."""


class Claimant(NamedTuple):
    """Who claims, identified by a session or a receipt. `server`: what keeps its session alive. `held`: how much its
    session and principal hold and wait for. `turn`: its place if it must queue, behind all tickets."""

    who: Who
    server: str
    held: HeldCounts
    turn: int


class _Attempt(NamedTuple):
    """A call that claims. `queued`: the caller's ticket of an earlier, identical call."""

    command: AcquireClaim
    claimant: Claimant
    queued: Waiting | None
    wanted: WantedClaim


def acquire(command: AcquireClaim, claimant: Claimant, board: ClaimBoard) -> Decision[ClaimAcquired | Queued]:
    """Acquire the claim, or queue for it.

    Raises BusyError, DeadlockError; InvalidError beyond `most` claims."""
    who = claimant.who
    draft = BoardDraft(board)
    if draft.revive(who, claimant.server):
        grant_waiting(draft)
    options: tuple[ResourceSet, ...] = (tuple(dict.fromkeys((command.resource, *command.also))),)
    if command.alternatives:
        options = (*options, *((other,) for other in command.alternatives))
    queued = _former_ticket(command, who, draft) if draft.queue else None
    wanted = WantedClaim(who, command.mode, options, queued.ticket.turn if queued else float("inf"))
    return draft.decide(_acquire(_Attempt(command, claimant, queued, wanted), draft))


def _acquire(attempt: _Attempt, draft: BoardDraft) -> ClaimAcquired | Queued:
    command, wanted = attempt.command, attempt.wanted
    found: list[Link] = []
    for option in _offered_first(wanted, draft) if len(wanted.options) > 1 else wanted.options:
        if draft.leases and draft.holds_all(option, wanted.who, wanted.mode):
            return _renewed(attempt, option, draft)
        if not draft.is_free(wanted, option):
            continue
        found = _cycle_through(attempt, option, draft)
        if not found:
            _require_quota(attempt, (option,), draft)
            return _granted(attempt, option, draft)
    if found:
        raise DeadlockError(command.resource, tuple(found))
    return _queue_or_refuse(attempt, draft)


def _former_ticket(command: AcquireClaim, who: Who, board: ClaimBoard) -> Waiting | None:
    """The caller's ticket of an earlier, identical call; None if there is none."""
    for waiting in board.tickets_of(command.resource, who):
        ticket = waiting.ticket
        if (ticket.mode, ticket.also, ticket.alternatives) == (command.mode, command.also, command.alternatives):
            return waiting
    return None


def _offered_first(wanted: WantedClaim, board: ClaimBoard) -> tuple[ResourceSet, ...]:
    """The options; first those of which something was offered to the caller when it waited."""
    offered = [option for option in wanted.options if _is_offered(option, wanted.who, board)]
    return (*offered, *(option for option in wanted.options if option not in offered))


def _is_offered(option: ResourceSet, who: Who, board: ClaimBoard) -> bool:
    holds = [board.hold_of(resource, who) for resource in option]
    return any(hold is not None and hold.lease.kind == "offered" for hold in holds)


def _cycle_through(attempt: _Attempt, option: ResourceSet, draft: BoardDraft) -> list[Link]:
    """The agents that would wait for each other forever if a caller that also waits in another call got this; empty
    if there are none."""
    if not draft.queue or not any(waiting.lease.who == attempt.wanted.who for waiting in draft.present()):
        return []
    trial = BoardDraft(draft)
    _granted(attempt._replace(queued=_former_ticket(attempt.command, attempt.wanted.who, trial)), option, trial)
    return closed_cycle(trial)


def _require_quota(attempt: _Attempt, options: tuple[ResourceSet, ...], draft: BoardDraft) -> None:
    """Check the limits. Tickets count, too, because a waiter is granted its claim without another check."""
    who, held, queued = attempt.wanted.who, attempt.claimant.held, attempt.queued
    new = max(
        [
            len([it for it in option if draft.hold_of(it, who) is None]) if draft.leases else len(option)
            for option in options
        ]
    )
    by_session, by_principal = held.awaited_by_session, held.awaited_by_principal
    if queued is not None:  # what the caller waits for counts once
        by_principal -= most_of(queued.ticket)
        by_session -= most_of(queued.ticket) if queued.lease.is_counted_for(who) else 0
    if (total := new + held.by_session + by_session) > attempt.command.most:
        raise _over_the_limit(total, attempt.command.most, "this session", by_session > 0)
    if (total := new + held.by_principal + by_principal) > MAX_OF_PRINCIPAL:
        raise _over_the_limit(total, MAX_OF_PRINCIPAL, "this user or token", by_principal > 0)


def most_of(ticket: Ticket) -> int:
    """The most resources that a ticket could be granted."""
    return 1 + len(ticket.also)


def _over_the_limit(total: int, most: int, holder: str, with_waits: bool) -> InvalidError:
    waits = ", counting those it waits for" if with_waits else ""
    return InvalidError(
        f"agent: {holder} would hold {total} claims{waits}; the limit is {most}. Release some first, or claim fewer"
    )


def _renewed(attempt: _Attempt, option: ResourceSet, draft: BoardDraft) -> ClaimAcquired:
    holds = _own(option, attempt.wanted.who, draft)
    collected = [hold.lease.ended_at for hold in holds if hold.lease.kind == "offered"]
    for hold in holds:
        draft.keep(_renewed_lease(attempt, hold, draft.now))
    return _acquired(option, attempt.wanted.who, draft, already=not collected, ended_at=max(collected, default=0))


def _renewed_lease(attempt: _Attempt, hold: LiveHold, now: int) -> Lease:
    """The renewed lease of the caller's own grant. A duration that the agent chose stays unless it chooses another."""
    command = attempt.command
    chosen = command.explicit or not hold.lease.explicit
    length = command.lease if chosen else hold.lease.duration
    return hold.lease._replace(
        kind="held",
        session=attempt.wanted.who.session,
        server=attempt.claimant.server,
        duration=length,
        explicit=hold.lease.explicit or command.explicit,
        deadline=now + length,
        last_call_at=now,
        last_seen_at=now,
        ended_at=0,
        note=command.note if command.note is not None else hold.lease.note,
    )


def _granted(attempt: _Attempt, option: ResourceSet, draft: BoardDraft) -> ClaimAcquired:
    pattern = _new_lease(attempt, "held", attempt.command.lease, draft.now)
    ended_at = grant(option, attempt.wanted, pattern, attempt.queued, draft)
    grant_waiting(draft)  # a grant that changed from exclusive to shared may unblock waiters
    return _acquired(option, attempt.wanted.who, draft, ended_at=ended_at)


def _new_lease(attempt: _Attempt, kind: Literal["held", "waits"], lasts: int, now: int) -> Lease:
    command, who = attempt.command, attempt.wanted.who
    return Lease(
        resource=command.resource,
        version=0,
        kind=kind,
        agent=who.agent,
        principal=who.principal,
        session=who.session,
        server=attempt.claimant.server,
        deadline=now + lasts,
        duration=command.lease,
        explicit=command.explicit,
        last_call_at=now,
        note=command.note,
        receipt=who.receipt,
        last_seen_at=now,
    )


def _own(option: ResourceSet, who: Who, board: ClaimBoard) -> list[LiveHold]:
    return [hold for resource in option if (hold := board.hold_of(resource, who)) is not None]


def _acquired(
    option: ResourceSet, who: Who, board: ClaimBoard, already: bool = False, ended_at: int = 0
) -> ClaimAcquired:
    main, *others = _own(option, who, board)
    past_of, past = None, None
    if not ended_at:  # a resumed claim has no previous holder: the caller continues the work of its former session
        past_of, past = board.last_end(option) or (None, None)
    others_queued = [it for it in board.queued_for(main.resource) if not it.lease.is_of(who)] if board.queue else []
    return ClaimAcquired(
        resource=main.resource,
        version=main.grant.version,
        position=main.lease.position,
        claimed_at=main.grant.claimed_at,
        expires_in=main.lease.deadline - board.now,
        at=board.at,
        already=already,
        previous_session_ended_at=ended_at or None,
        receipt=who.receipt,
        also=tuple([(hold.resource, hold.grant.version) for hold in others]) if others else (),
        past=past,
        past_of=past_of,
        is_former=past is not None and _is_former(past, who),
        waiting=tuple(map(_shown, others_queued[:MAX_WAITERS_SHOWN])),
    )


def _shown(waiting: Waiting) -> QueuedTicket:
    ticket = waiting.ticket
    return QueuedTicket(ticket.agent, ticket.since, waiting.lease.note, ticket.principal)


def _is_former(past: PastHold, who: Who) -> bool:
    """Whether another session of the same name and principal held it."""
    return (past.holder, past.principal) == (who.agent, who.principal) and (
        past.session is None or past.session != who.session
    )


def _queue_or_refuse(attempt: _Attempt, draft: BoardDraft) -> Queued:
    command, wanted, queued = attempt.command, attempt.wanted, attempt.queued
    hold = _describe(wanted, draft)
    own = draft.hold_of(command.resource, wanted.who)
    if own is not None and own.grant.mode == "shared" != command.mode:
        raise BusyError(hold._replace(shared_by_caller=True))
    if queued is None and not command.wait:
        raise BusyError(hold)
    if command.wait and (found := cycle(wanted, draft)):
        raise DeadlockError(command.resource, tuple(found))
    if queued is None:
        _require_quota(attempt, wanted.options, draft)
    version = queued.ticket.version if queued is not None else _replace_tickets(attempt, draft)
    lease = _new_lease(attempt, "waits", command.wait + ABSENCE, draft.now)
    draft.keep(lease._replace(version=version, waiting_until=draft.now + command.wait if command.wait else 0))
    grant_waiting(draft)
    queue = draft.queued_for(command.resource)
    key = (command.resource, version)
    position = next((number for number, it in enumerate(queue, start=1) if it.ticket[:2] == key), 1)
    return Queued(hold._replace(queue_length=len(queue)), version, position, wanted.who.receipt)


def _replace_tickets(attempt: _Attempt, draft: BoardDraft) -> int:
    command, who = attempt.command, attempt.wanted.who
    if draft.ticket_count >= MAX_TICKETS:
        raise UnavailableError(f"{MAX_TICKETS} calls are already queued", retry_after=5.0)
    for old in draft.tickets_of(command.resource, who):  # for another set of resources; replaced
        left = ClaimUnqueued(agent=who.agent, principal=who.principal, ticket=old.ticket.version, why="left")
        draft.record(command.resource, left)
        draft.drop(old.lease.key)
    return draft.record(
        command.resource,
        ClaimQueued(
            agent=who.agent,
            principal=who.principal,
            mode=command.mode,
            turn=attempt.claimant.turn,
            also=command.also,
            alternatives=command.alternatives,
            note=command.note,
        ),
    )


def _describe(wanted: WantedClaim, board: ClaimBoard) -> Hold:
    """Describe what blocks the first option of a wanted claim."""
    option = wanted.options[0]
    holds = [hold for resource in option for hold in board.conflicting_holds(resource, wanted.mode, wanted.who, option)]
    blocked = next(
        (it for it in option if any(board.conflicting_holds(it, wanted.mode, wanted.who, option))), option[0]
    )
    queue_length = len(board.queued_for(*option))
    if holds:
        return _hold(blocked, holds, queue_length, wanted, board)
    first = board.queued_before(wanted, option)[0]
    return Hold(
        resource=blocked,
        held_by=first.ticket.agent,
        claimed_at=first.ticket.since,
        version=first.ticket.version,
        expires_in=max(0, first.lease.waiting_until - board.now),
        idle=0,
        servers=(first.lease.server,),
        queue_length=queue_length,
        in_line=True,
        principal=first.ticket.principal,
    )


def _hold(
    resource: str, conflicting: list[LiveHold], queue_length: int, wanted: WantedClaim, board: ClaimBoard
) -> Hold:
    first = conflicting[0]
    holders = tuple(dict.fromkeys((hold.grant.agent, hold.grant.principal) for hold in conflicting))
    named = holders if len(holders) > 1 else ()
    return Hold(
        resource=resource,
        held_by=first.grant.agent,
        claimed_at=first.grant.claimed_at,
        version=first.grant.version,
        expires_in=first.lease.deadline - board.now,
        idle=board.now - first.lease.last_call_at,
        servers=tuple(dict.fromkeys(hold.lease.server for hold in conflicting)),
        queue_length=queue_length,
        covered_by=first.resource if first.resource != resource else None,
        holders=tuple(agent for agent, _ in named),
        note=first.lease.note,
        same_name=(first.grant.agent, first.grant.principal) == (wanted.who.agent, wanted.who.principal),
        principal=first.grant.principal,
        holder_principals=tuple(principal for _, principal in named),
        former=first.lease.is_left_to(wanted.who, board.now),
        without_session=first.lease.session is None,
        session_ended=first.lease.has_ended(board.now),
    )
