"""Grant to waiters, and expire what is due.

Every step that ends a hold or a wait also grants to the waiters, so that no free resource waits for a call.
"""

from typing import Any

from holdlog.domain.claims.board import ClaimBoard, LiveHold, ResourceSet, Waiting, WantedClaim
from holdlog.domain.claims.claim import (
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
)
from holdlog.domain.claims.deadlock import closed_cycle
from holdlog.domain.claims.draft import BoardDraft, Decision
from holdlog.domain.claims.lease import OFFER, Lease, Who


def expire_due(board: ClaimBoard) -> Decision[None]:
    """Expire what is due, and grant what is free to the waiters."""
    draft = BoardDraft(board)
    due = [lease for lease in board.leases.values() if lease.is_due(board.now)]
    for lease in sorted(due, key=lambda it: (it.deadline, it.key)):
        if lease.deadline > board.now:  # a waiter whose call has ended
            draft.keep(lease._replace(waiting_until=0))
        else:
            _expire(lease, draft)
    grant_waiting(draft)
    return draft.decide(None)


def _expire(lease: Lease, draft: BoardDraft) -> None:
    draft.drop(lease.key)
    claim = draft.claim(lease.resource)
    facts: dict[str, Any] = {"agent": lease.agent, "principal": lease.principal}
    if lease.key in draft.tickets:
        draft.record(lease.resource, ClaimUnqueued(**facts, ticket=lease.version, why="absent"))
    elif claim.grant(lease.version) is not None:
        ended, collected = draft.at - (draft.now - lease.deadline), lease.kind != "offered"
        draft.record(lease.resource, ClaimExpired(**facts, grant=lease.version, due=ended, collected=collected))
        if collected:
            draft.losses.append(lease.lost("expired", draft.at))


def grant_waiting(draft: BoardDraft) -> list[tuple[str, Who]]:
    """Grant what is free to the waiters that are in a call, in the order of the queue. Returns pairs of resource and
    waiter.

    Repeats, because a grant may free something for an earlier waiter: its agent now shares what it held exclusively,
    or is in a session with its sub-agents."""
    granted: list[tuple[str, Who]] = []
    before = -1
    while draft.queue and before < len(draft.events):
        before = len(draft.events)
        granted += _grant_each(draft)
    return granted


def _grant_each(draft: BoardDraft) -> list[tuple[str, Who]]:
    granted: list[tuple[str, Who]] = []
    blocked = _BlockedRequests(draft)
    for waiting in draft.present():
        if blocked.includes(waiting):
            continue
        if waiting.lease.key not in draft.queue:
            continue  # another grant of this round made it unnecessary
        if _is_content(waiting, draft):
            _remove(waiting, draft)
            continue
        wanted = waiting.wanted
        option = next(
            (
                option
                for option in wanted.options
                if draft.is_free(wanted, option) and not _offer_would_deadlock(waiting, option, draft)
            ),
            None,
        )
        if option is not None:
            _offer(waiting, option, draft)
            granted += [(resource, waiting.lease.who) for resource in option]
            blocked = _BlockedRequests(draft)
    return granted


class _BlockedRequests:
    """Requests that holds block, until the next grant: many waiters of one queue request the same."""

    def __init__(self, draft: BoardDraft) -> None:
        self._draft = draft
        self._holders = {grant.agent for claim in draft.claims.values() for grant in claim.grants}
        self._blocking: dict[tuple[object, ...], tuple[str, ...] | None] = {}

    def includes(self, waiting: Waiting) -> bool:
        """Whether holds of unrelated agents block all options of a waiter that holds nothing. False if unknown."""
        resource, ticket, _ = waiting
        agent = ticket.agent
        if agent in self._holders:
            return False
        request = (resource, ticket.mode, ticket.also, ticket.alternatives)
        if request not in self._blocking:
            self._blocking[request] = self._blocking_agents(waiting.wanted)
        blocking = self._blocking[request]
        return blocking is not None and not f"{agent}/".startswith(blocking)  # see Lease.may_admit

    def _blocking_agents(self, wanted: WantedClaim) -> tuple[str, ...] | None:
        """The holders of what blocks each option, each with a slash at its end; None if an option is free."""
        holds = [self._draft.blocking_hold(wanted, option) for option in wanted.options]
        return None if None in holds else tuple([f"{hold.lease.agent}/" for hold in holds if hold is not None])


def _offer_would_deadlock(waiting: Waiting, option: ResourceSet, draft: BoardDraft) -> bool:
    now, who = draft.now, waiting.lease.who
    mine = [it for it in draft.tickets_under(who.agent) if it.lease.waiting_until > now and it.lease.who == who]
    if len(mine) < 2:
        return False
    trial = BoardDraft(draft)
    _offer(waiting, option, trial)
    return bool(closed_cycle(trial))


def _offer(waiting: Waiting, option: ResourceSet, draft: BoardDraft) -> None:
    pattern = waiting.lease._replace(kind="offered", deadline=draft.now + OFFER, waiting_until=0)
    grant(option, waiting.wanted, pattern, waiting, draft)


def grant(option: ResourceSet, wanted: WantedClaim, pattern: Lease, queued: Waiting | None, draft: BoardDraft) -> int:
    """Grant all resources of the option, including what the agent's ended sessions held. `pattern`: their leases.
    Removes the ticket `queued`, and tickets of other calls that the grant makes unnecessary.

    Returns when the last of these sessions ended (microseconds UTC), 0 if there was none."""
    who, ended_at = wanted.who, 0
    for resource in option:
        own = draft.hold_of(resource, who) if draft.leases else None
        if own is None or own.grant.mode != wanted.mode:
            ticket = queued.ticket.version if queued is not None and resource == queued.resource else None
            ended_at = max(ended_at, _grant_one(resource, wanted, pattern, own, ticket, draft))
    answered = queued.lease.key if queued is not None else None
    for waiting in draft.tickets_under(who.agent) if draft.queue else ():
        if waiting.lease.key == answered or (waiting.lease.is_of(who) and _is_content(waiting, draft)):
            _remove(waiting, draft)
    return ended_at


def _grant_one(
    resource: str, wanted: WantedClaim, pattern: Lease, own: LiveHold | None, ticket: int | None, draft: BoardDraft
) -> int:
    who, mode = wanted.who, wanted.mode
    former = draft.former_holds(resource, who) if draft.leases else []
    if mode == "shared":
        former = former[:1] if own is None else []  # the shares of other sessions are compatible
    ended = max([hold.lease.end_of_session(draft.now, draft.at) for hold in former], default=0) if former else 0
    facts: dict[str, Any] = {
        "agent": who.agent,
        "principal": who.principal,
        "session": who.session,
        "mode": mode,
        "ticket": ticket,
        "note": pattern.note,
    }
    if own is None and former:
        taken, *former = former
        resumed = ClaimResumed(**facts, former_session=taken.lease.session, grant=taken.grant.version)
        version = draft.record(resource, resumed)
        draft.lose(taken, "resumed")
    else:
        replaced = own.grant.version if own is not None else None
        version = draft.record(resource, ClaimGranted(**facts, instead_of=replaced))
    if own is not None:
        draft.drop(own.lease.key)
    for hold in former:
        draft.record(resource, release_by_name(hold))
        draft.lose(hold, "resumed")
    offered = pattern.kind == "offered"
    draft.keep(pattern._replace(resource=resource, version=version, ended_at=ended if offered else 0))
    return ended


def release_by_name(hold: LiveHold, **fields: Any) -> ClaimReleased:
    """The event that ends a hold for a caller with its holder's name, but not its session or receipt."""
    return ClaimReleased(
        agent=hold.grant.agent,
        grant=hold.grant.version,
        former_session=hold.lease.session,
        released_by_name=True if hold.lease.session is None else None,
        **fields,
    )


def _remove(waiting: Waiting, draft: BoardDraft) -> None:
    """Remove the ticket of a waiter that has what it wants. A grant of the resource itself already ended it."""
    resource, ticket, lease = waiting
    if lease.key in draft.tickets:
        left = ClaimUnqueued(agent=ticket.agent, principal=ticket.principal, ticket=ticket.version, why="granted")
        draft.record(resource, left)
    draft.drop(lease.key)


def _is_content(waiting: Waiting, draft: BoardDraft) -> bool:
    """Whether the waiter holds what it wants, or more: exclusively what it would share."""
    who, mode = waiting.lease.who, waiting.ticket.mode
    return any(
        draft.holds_all(option, who, mode) or draft.holds_all(option, who, "exclusive")
        for option in waiting.wanted.options
    )
