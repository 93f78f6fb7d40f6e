"""Acquire claims, immediately or from the queue."""

from typing import Final

from holdlog.domain.claims.board import ClaimBoard, LiveHold, ResourceSet, Waiting, WantedClaim
from holdlog.domain.claims.claim import ClaimQueued, ClaimUnqueued, PastHold
from holdlog.domain.claims.commands import MAX_OF_PRINCIPAL, AcquireClaim, ClaimAcquired, Queued, QueuedTicket
from holdlog.domain.claims.lease import ABSENCE, HeldCounts, Lease, Who
from holdlog.domain.claims.queue import grant, grant_waiting, holds_all
from holdlog.domain.refusals import BusyError, DeadlockError, Hold, InvalidError, Link, UnavailableError

MAX_TICKETS: Final = 1_000
"""Maximum tickets in the queues of all resources together."""
MAX_WAITERS_SHOWN: Final = 20
"""Waiters that a holder's response lists: the first ones."""


def acquire(
    command: AcquireClaim, who: Who, server: str, held: HeldCounts, board: ClaimBoard
) -> ClaimAcquired | Queued:
    """Acquire the claim, or queue for it. `who`: identified by a session or a receipt. `held`: how many claims the
    caller's session and principal hold.

    Raises BusyError, DeadlockError; InvalidError beyond `most` claims."""
    options: tuple[ResourceSet, ...] = (
        tuple(dict.fromkeys((command.resource, *command.also))),
        *((other,) for other in command.alternatives),
    )
    queued = _former_ticket(command, who, board)
    wanted = WantedClaim(who, command.mode, options, queued.ticket.turn if queued else float("inf"))
    offered = [option for option in options if _is_offered(option, who, board)]
    cycle: list[Link] = []
    for option in (*offered, *(it for it in options if it not in offered)):
        if holds_all(option, who, command.mode, board):
            return _renewed(command, option, who, server, board)
        if not board.is_free(wanted, option):
            continue
        cycle = _cycle_through(command, option, who, server, board)
        if not cycle:
            _require_quota(command, (option,), who, held, queued, board)
            return _granted(command, option, who, server, queued, board)
    if cycle:
        raise DeadlockError(command.resource, tuple(cycle))
    return _queue_or_refuse(command, wanted, server, held, queued, board)


def _former_ticket(command: AcquireClaim, who: Who, board: ClaimBoard) -> Waiting | None:
    """The caller's ticket of an earlier, identical call; None if there is none."""
    requested = (command.mode, command.also, command.alternatives)
    for waiting in board.tickets_of(command.resource, who):
        if (waiting.ticket.mode, waiting.ticket.also, waiting.ticket.alternatives) == requested:
            return waiting
    return None


def _is_offered(option: ResourceSet, who: Who, board: ClaimBoard) -> bool:
    holds = [board.hold_of(resource, who) for resource in option]
    return any(hold is not None and hold.lease.kind == "offered" for hold in holds)


def _cycle_through(command: AcquireClaim, option: ResourceSet, who: Who, server: str, board: ClaimBoard) -> list[Link]:
    """The agents that would wait for each other forever if a caller that also waits in another call got this; empty
    if there are none."""
    if not any(waiting.lease.who == who for waiting in board.present()):
        return []
    trial = board.copy()
    _granted(command, option, who, server, _former_ticket(command, who, trial), trial)
    return trial.closed_cycle()


def _require_quota(
    command: AcquireClaim,
    options: tuple[ResourceSet, ...],
    who: Who,
    held: HeldCounts,
    queued: Waiting | None,
    board: ClaimBoard,
) -> None:
    """Check the limits. Tickets count, too, because a waiter is granted its claim without another check."""
    new = max(sum(1 for resource in option if board.hold_of(resource, who) is None) for option in options)
    waits = [waiting for waiting in board.waiting() if waiting != queued and waiting.lease.principal == who.principal]
    of_session = [
        it for it in waits if it.lease.session == who.session and (who.session or it.lease.agent == who.agent)
    ]
    _require(new + held.by_session + _most_of(of_session), command.most, "this session", bool(of_session))
    _require(new + held.by_principal + _most_of(waits), MAX_OF_PRINCIPAL, "this user or token", bool(waits))


def _most_of(waits: list[Waiting]) -> int:
    """The most resources that these tickets could be granted."""
    return sum(max(map(len, waiting.wanted.options)) for waiting in waits)


def _require(total: int, most: int, holder: str, with_waits: bool) -> None:
    if total > most:
        waits = ", counting those it waits for" if with_waits else ""
        raise InvalidError(
            f"agent: {holder} would hold {total} claims{waits}; the limit is {most}. Release some first, or claim fewer"
        )


def _renewed(command: AcquireClaim, option: ResourceSet, who: Who, server: str, board: ClaimBoard) -> ClaimAcquired:
    holds = [hold for resource in option if (hold := board.hold_of(resource, who)) is not None]
    collected = [hold.lease.ended_at for hold in holds if hold.lease.kind == "offered"]
    for hold in holds:
        board.keep(_lease(command, hold, who, server, board))
    return _acquired(option, who, board, already=not collected, ended_at=max(collected, default=0))


def _lease(command: AcquireClaim, hold: LiveHold, who: Who, server: str, board: ClaimBoard) -> Lease:
    """The renewed lease of the caller's own grant. A duration that the agent chose stays unless it chooses another."""
    chosen = command.explicit or not hold.lease.explicit
    length = command.lease if chosen else hold.lease.duration
    return hold.lease._replace(
        kind="held",
        session=who.session,
        server=server,
        duration=length,
        explicit=hold.lease.explicit or command.explicit,
        deadline=board.now + length,
        last_call_at=board.now,
        last_seen_at=board.now,
        ended_at=0,
        note=command.note if command.note is not None else hold.lease.note,
    )


def _granted(
    command: AcquireClaim, option: ResourceSet, who: Who, server: str, queued: Waiting | None, board: ClaimBoard
) -> ClaimAcquired:
    pattern = Lease(
        resource="",
        version=0,
        kind="held",
        agent=who.agent,
        principal=who.principal,
        session=who.session,
        server=server,
        deadline=board.now + command.lease,
        duration=command.lease,
        explicit=command.explicit,
        last_call_at=board.now,
        note=command.note,
        receipt=who.receipt,
        last_seen_at=board.now,
    )
    ended_at = grant(option, command.mode, pattern, queued, board)
    grant_waiting(board)  # a grant that changed from exclusive to shared may unblock waiters
    return _acquired(option, who, board, ended_at=ended_at)


def _acquired(
    option: ResourceSet, who: Who, board: ClaimBoard, already: bool = False, ended_at: int = 0
) -> ClaimAcquired:
    holds = [hold for resource in option if (hold := board.hold_of(resource, who)) is not None]
    main, *others = holds
    past_of, past = None, None
    if not ended_at:  # a resumed claim has no previous holder: the caller continues the work of its former session
        past_of, past = board.last_end(option) or (None, None)
    others_queued = [waiting for waiting in board.queued_for(main.resource) if not waiting.lease.is_of(who)]
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
        also=tuple((hold.resource, hold.grant.version) for hold in others),
        past=past,
        past_of=past_of,
        is_former=past is not None and _is_former(past, who),
        waiting=tuple(
            QueuedTicket(waiting.ticket.agent, waiting.ticket.since, waiting.lease.note, waiting.ticket.principal)
            for waiting in others_queued[:MAX_WAITERS_SHOWN]
        ),
    )


def _is_former(past: PastHold, who: Who) -> bool:
    """Whether another session of the same name and principal held it."""
    return (past.holder, past.principal) == (who.agent, who.principal) and (
        past.session is None or past.session != who.session
    )


def _queue_or_refuse(
    command: AcquireClaim, wanted: WantedClaim, server: str, held: HeldCounts, queued: Waiting | None, board: ClaimBoard
) -> Queued:
    hold = _describe(wanted, board)
    own = board.hold_of(command.resource, wanted.who)
    if own is not None and own.grant.mode == "shared" != command.mode:
        raise BusyError(hold._replace(shared_by_caller=True))
    if queued is None and not command.wait:
        raise BusyError(hold)
    if command.wait:
        cycle = board.cycle(wanted)
        if cycle:
            raise DeadlockError(command.resource, tuple(cycle))
    if queued is None:
        _require_quota(command, wanted.options, wanted.who, held, queued, board)
    version = queued.ticket.version if queued is not None else _replace_tickets(command, wanted.who, board)
    board.keep(
        Lease(
            resource=command.resource,
            version=version,
            kind="waits",
            agent=wanted.who.agent,
            principal=wanted.who.principal,
            session=wanted.who.session,
            server=server,
            deadline=board.now + command.wait + ABSENCE,
            duration=command.lease,
            explicit=command.explicit,
            waiting_until=board.now + command.wait if command.wait else 0,
            last_call_at=board.now,
            note=command.note,
            receipt=wanted.who.receipt,
            last_seen_at=board.now,
        )
    )
    grant_waiting(board)
    queue = [waiting.lease.key for waiting in board.queued_for(command.resource)]
    key = (command.resource, version)
    return Queued(
        hold._replace(queue_length=len(queue)), version, queue.index(key) + 1 if key in queue else 1, wanted.who.receipt
    )


def _replace_tickets(command: AcquireClaim, who: Who, board: ClaimBoard) -> int:
    tickets = board.waiting()
    if len(tickets) >= MAX_TICKETS:
        raise UnavailableError(f"{MAX_TICKETS} calls are already queued", retry_after=5.0)
    for old in board.tickets_of(command.resource, who):  # for another set of resources; replaced
        left = ClaimUnqueued(agent=who.agent, principal=who.principal, ticket=old.ticket.version, why="left")
        board.record(command.resource, left)
        board.drop(old.lease.key)
    return board.record(
        command.resource,
        ClaimQueued(
            agent=who.agent,
            principal=who.principal,
            mode=command.mode,
            turn=max((waiting.ticket.turn for waiting in tickets), default=0) + 1,
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
    queue_length = len({waiting.lease.key for resource in option for waiting in board.queued_for(resource)})
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
