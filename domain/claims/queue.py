"""Grant to waiters, and expire what is due.

Every step that ends a hold or a wait also grants to the waiters, so that no free resource waits for a call.
"""

from collections.abc import Sequence
from typing import Any

from holdlog.domain.claims.board import ClaimBoard, LiveHold, ResourceSet, Waiting
from holdlog.domain.claims.claim import (
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
    Mode,
)
from holdlog.domain.claims.lease import OFFER, Lease, Who, Why


def expire_due(due: Sequence[Lease], board: ClaimBoard) -> None:
    """Expire what is due, and grant what is free to the waiters."""
    for lease in sorted(due, key=lambda it: (it.deadline, it.key)):
        claim = board.claim(lease.resource)
        if lease.deadline > board.now:  # a waiter whose call has ended
            board.keep(lease._replace(waiting_until=0))
            continue
        board.drop(lease.key)
        if any(ticket.version == lease.version for ticket in claim.line):
            board.record(
                lease.resource,
                ClaimUnqueued(agent=lease.agent, principal=lease.principal, ticket=lease.version, why="absent"),
            )
        elif claim.grant(lease.version) is not None:
            ended = board.at - (board.now - lease.deadline)
            offered = lease.kind == "offered"
            board.record(
                lease.resource,
                ClaimExpired(
                    agent=lease.agent, principal=lease.principal, grant=lease.version, due=ended, collected=not offered
                ),
            )
            if not offered:
                board.losses.append(lease.lost("expired", board.at))
    grant_waiting(board)


def grant_waiting(board: ClaimBoard) -> list[tuple[str, Who]]:
    """Grant what is free to the waiters that are in a call, in the order of the queue. Returns pairs of resource and
    waiter.

    Repeats, because a grant may free something for an earlier waiter: its agent now shares what it held exclusively,
    or is in a session with its sub-agents."""
    granted: list[tuple[str, Who]] = []
    before = -1
    while before < len(board.changes):
        before = len(board.changes)
        granted += _grant_each(board)
    return granted


def _grant_each(board: ClaimBoard) -> list[tuple[str, Who]]:
    granted: list[tuple[str, Who]] = []
    for waiting in board.present():
        if board.lease(*waiting.lease.key) is None:
            continue  # another grant of this round made it unnecessary
        if _is_content(waiting, board):
            _remove(waiting, board)
            continue
        wanted = waiting.wanted
        option = next(
            (
                option
                for option in wanted.options
                if board.is_free(wanted, option) and not _offer_would_deadlock(waiting, option, board)
            ),
            None,
        )
        if option is not None:
            offer(waiting, option, board)
            granted += [(resource, waiting.lease.who) for resource in option]
    return granted


def _offer_would_deadlock(waiting: Waiting, option: ResourceSet, board: ClaimBoard) -> bool:
    if sum(1 for other in board.present() if other.lease.who == waiting.lease.who) < 2:
        return False
    trial = board.copy()
    offer(waiting, option, trial)
    return bool(trial.closed_cycle())


def offer(waiting: Waiting, option: ResourceSet, board: ClaimBoard) -> None:
    pattern = waiting.lease._replace(kind="offered", deadline=board.now + OFFER, waiting_until=0)
    grant(option, waiting.ticket.mode, pattern, waiting, board)


def grant(option: ResourceSet, mode: Mode, pattern: Lease, queued: Waiting | None, board: ClaimBoard) -> int:
    """Grant all resources of the option to the holder that `pattern` describes, including what its ended sessions held.

    Returns when the last of these sessions ended (microseconds UTC), 0 if there was none."""
    who, ended_at = pattern.who, 0
    for resource in option:
        own = board.hold_of(resource, who)
        if own is not None and own.grant.mode == mode:
            continue
        former = board.former_holds(resource, who)
        if mode == "shared":
            former = former[:1] if own is None else []  # the shares of other sessions are compatible
        ended = max((hold.lease.end_of_session(board.now, board.at) for hold in former), default=0)
        answered = queued.ticket.version if queued is not None and resource == queued.resource else None
        facts: dict[str, Any] = {
            "agent": pattern.agent,
            "principal": pattern.principal,
            "session": pattern.session,
            "mode": mode,
            "ticket": answered,
            "note": pattern.note,
        }
        if own is None and former:
            taken = former.pop(0)
            resumed = ClaimResumed(**facts, former_session=taken.lease.session, grant=taken.grant.version)
            version = board.record(resource, resumed)
            lose(taken, "resumed", board)
        else:
            replaced = own.grant.version if own is not None else None
            version = board.record(resource, ClaimGranted(**facts, instead_of=replaced))
        if own is not None:
            board.drop(own.lease.key)
        for hold in former:
            board.record(resource, release_by_name(hold))
            lose(hold, "resumed", board)
        offered = pattern.kind == "offered"
        board.keep(pattern._replace(resource=resource, version=version, ended_at=ended if offered else 0))
        ended_at = max(ended_at, ended)
    for waiting in board.waiting():  # also tickets of other calls that this grant makes unnecessary
        if waiting == queued or (waiting.lease.is_of(who) and _is_content(waiting, board)):
            _remove(waiting, board)
    if queued is not None:
        board.drop(queued.lease.key)
    return ended_at


def release_by_name(hold: LiveHold, **fields: Any) -> ClaimReleased:
    """The event that ends a hold for a caller with its holder's name, but not its session or receipt."""
    return ClaimReleased(
        agent=hold.grant.agent,
        grant=hold.grant.version,
        former_session=hold.lease.session,
        released_by_name=True if hold.lease.session is None else None,
        **fields,
    )


def lose(hold: LiveHold, why: Why, board: ClaimBoard, note: str | None = None) -> None:
    """Drop the lease of a hold that another caller ended, and record the loss for its holder."""
    board.drop(hold.lease.key)
    board.losses.append(hold.lease.lost(why, board.at, note))


def _remove(waiting: Waiting, board: ClaimBoard) -> None:
    """Remove the ticket of a waiter that has what it wants. A grant of the resource itself already ended it."""
    version = waiting.ticket.version
    if any(ticket.version == version for ticket in board.claim(waiting.resource).line):
        board.record(
            waiting.resource,
            ClaimUnqueued(
                agent=waiting.ticket.agent, principal=waiting.ticket.principal, ticket=version, why="granted"
            ),
        )
    board.drop(waiting.lease.key)


def _is_content(waiting: Waiting, board: ClaimBoard) -> bool:
    """Whether the waiter holds what it wants, or more: exclusively what it would share."""
    who, mode = waiting.lease.who, waiting.ticket.mode
    return any(
        holds_all(option, who, mode, board) or holds_all(option, who, "exclusive", board)
        for option in waiting.wanted.options
    )


def holds_all(option: ResourceSet, who: Who, mode: Mode, board: ClaimBoard) -> bool:
    holds = [board.hold_of(resource, who) for resource in option]
    return all(hold is not None and hold.grant.mode == mode for hold in holds)
