"""Claiming: take, release, stand in line, and what happens when a lease ends. Decided over a board.

Whatever ends a hold or a wait serves the line in the same step, so that no free resource waits for anybody's call.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic import Field, model_validator

from holdlog.domain.board import Board, Option, Rival, Waiting, Wish
from holdlog.domain.claim import (
    ClaimExpired,
    ClaimGranted,
    ClaimQueued,
    ClaimReleased,
    ClaimUnqueued,
    Mode,
    Outcome,
    Past,
)
from holdlog.domain.lease import ABSENCE, GRACE, OFFER, SECOND, Lease, Loss, Who
from holdlog.domain.message import Message
from holdlog.domain.names import Agent, Note
from holdlog.domain.record import Guard
from holdlog.domain.refusals import (
    BusyError,
    DeadlockError,
    ExpiredError,
    FencedError,
    Hold,
    InvalidError,
    NotFoundError,
    NotHolderError,
    UnavailableError,
)
from holdlog.domain.resource import Resource, overlap

MAX_RESOURCES: Final = 100
"""In one call."""
MAX_TICKETS: Final = 1_000
"""In line, over all resources."""

# --- commands


class Take(Message):
    """Claim the resource with all of `also`, or else the first of `alternatives` that is free.

    Durations in microseconds. `lease`: what a renewal gives; `told`: the agent chose it. `wait`: how long the caller
    will stand in line in this call. `most`: claims that the agent may hold.
    """

    resource: Resource
    agent: Agent
    also: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    alternatives: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    mode: Mode = "exclusive"
    note: Note | None = None
    lease: int = 300 * SECOND
    told: bool = False
    wait: int = 0
    most: int = 64

    @model_validator(mode="after")
    def _either(self) -> "Take":
        if self.also and self.alternatives:
            raise ValueError("alternatives: cannot be combined with also")
        return self


class Release(Message):
    """Let go of the resource and `also`; of everything, lines included, without one. `version`: only this grant.

    `forced`: whoever holds it, for the `note`'s reason; the agent is then who forces.
    """

    resource: Resource | None = None
    agent: Agent
    also: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    outcome: Outcome | None = None
    moved_to: Resource | None = None
    note: Note | None = None
    version: int | None = None
    forced: bool = False

    @model_validator(mode="after")
    def _complete(self) -> "Release":
        if (self.moved_to is not None) != (self.outcome == "moved"):
            raise ValueError("moved_to: belongs to the outcome moved, and only there")
        if self.also and self.resource is None:
            raise ValueError("also: needs a resource beside it")
        return self


class StepBack(Message):
    """The call that waited has ended without the resource; the ticket keeps its place for a while."""

    resource: Resource
    agent: Agent
    ticket: int


class Sweep(Message):
    """End whatever is due. `ended`: servers that are gone, whose leases are cut to `grace` (microseconds) unless `cut`
    is off or the agent chose the length."""

    ended: tuple[str, ...] = ()
    grace: int = GRACE
    cut: bool = True


class Renew(Message):
    """A server says that it lives, and with it these sessions (with the time each was heard, steady microseconds) and
    these grants (resource and version). Grants of a session that had another server are this one's from now on."""

    server: str
    sessions: tuple[tuple[str, int], ...] = ()
    grants: tuple[tuple[str, int], ...] = ()


class TellLosses(Message):
    """What the session, or the agent of a session that is gone, lost since it was told last."""

    session: str | None
    agent: Agent | None = None


class InLine(NamedTuple):
    """Somebody who waits. `since`: microseconds UTC."""

    agent: str
    since: int
    note: str | None


class Taken(NamedTuple):
    """The agent holds the resource. `version`, `position` and `claimed_at` are those of the grant; `already`: it held
    it before, in another session where `came_back`. `expires_in`: microseconds, from `at` on (microseconds UTC)."""

    resource: str
    version: int
    position: int
    claimed_at: int
    expires_in: int
    at: int
    already: bool = False
    came_back: bool = False
    also: tuple[tuple[str, int], ...] = ()
    past: Past | None = None
    waiting: tuple[InLine, ...] = ()


class Queued(NamedTuple):
    """Not free; the agent keeps its place, `position` counted from 1."""

    hold: Hold
    ticket: int
    position: int


class Swept(NamedTuple):
    """Whether anything ended."""

    changed: bool


class Told(NamedTuple):
    losses: tuple[Loss, ...]


class Let(NamedTuple):
    """What is free now: resource and version of its end. `already`: nothing was held. `granted_to`: who had waited."""

    released: tuple[tuple[str, int], ...]
    already: bool = False
    outcome: str | None = None
    granted_to: str | None = None


# --- decide


def take(command: Take, who: Who, server: str, held: int, board: Board) -> Taken | Queued:
    """Raises BusyError, DeadlockError; InvalidError beyond `most`, of which the agent has `held`."""
    options: tuple[Option, ...] = (
        tuple(dict.fromkeys((command.resource, *command.also))),
        *((other,) for other in command.alternatives),
    )
    place = _place(command, who, board)
    wish = Wish(who, command.mode, options, place.ticket.turn if place else float("inf"))
    offered = [option for option in options if _is_offered(option, who, board)]
    for option in offered or options:
        if _holds_all(option, who, command.mode, board):
            return _renewed(command, option, who, server, board)
        if board.is_free(wish, option) and not _would_jam(command, option, who, server, board):
            _require_room(command, option, who, held, board)
            return _granted(command, option, who, server, place, board)
    return _stand_in_line(command, wish, server, place, board)


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
        for waiting in _tickets(resource, who, board):
            version = board.record(resource, ClaimUnqueued(agent=who.agent, ticket=waiting.ticket.version, why="left"))
            board.drop(waiting.lease.key)
            if hold is None:
                released.append((resource, version))
    served = serve(board)
    return Let(tuple(released), not released, command.outcome, _granted_to(served, command.resource)), []


def step_back(command: StepBack, who: Who, board: Board) -> None:
    lease = board.lease(command.resource, command.ticket)
    if lease is not None and lease.kind == "waits" and lease.is_of(who):
        board.keep(lease._replace(present_until=0, deadline=board.now + ABSENCE))
        serve(board)


def expire(due: Sequence[Lease], board: Board) -> list[Loss]:
    """End what is due, and serve who stands in line."""
    losses = []
    for lease in sorted(due, key=lambda it: (it.deadline, it.key)):
        claim = board.claim(lease.resource)
        if lease.deadline > board.now:  # a waiter whose call is over
            board.keep(lease._replace(present_until=0))
            continue
        board.drop(lease.key)
        if any(ticket.version == lease.version for ticket in claim.line):
            board.record(lease.resource, ClaimUnqueued(agent=lease.agent, ticket=lease.version, why="absent"))
        elif claim.grant(lease.version) is not None:
            ended = board.at - (board.now - lease.deadline)
            offered = lease.kind == "offered"
            board.record(
                lease.resource,
                ClaimExpired(agent=lease.agent, grant=lease.version, due=ended, collected=not offered),
            )
            if not offered:
                losses.append(lease.lost("expired", board.at))
    serve(board)
    return losses


def serve(board: Board) -> list[tuple[str, str]]:
    """Grant what is free to those in line who are in their calls, in turn: pairs of resource and agent.

    Again and again, because a grant may free something for one who came earlier: its agent shares now what it had
    alone, or is in a session with its sub-agents."""
    served: list[tuple[str, str]] = []
    while found := _serve_each(board):
        served += found
    return served


def _serve_each(board: Board) -> list[tuple[str, str]]:
    served: list[tuple[str, str]] = []
    for waiting in board.present():
        if board.lease(*waiting.lease.key) is None:
            continue  # another grant of this round made it needless
        wish = waiting.wish
        option = next(
            (
                option
                for option in wish.options
                if board.is_free(wish, option) and not _offer_would_jam(waiting, option, board)
            ),
            None,
        )
        if option is not None:
            _offer(waiting, option, board)
            served += [(resource, waiting.ticket.agent) for resource in option]
    return served


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
        servers=tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent),
    )


def describe(wish: Wish, board: Board) -> Hold:
    """Who stands in the way of a wish's first option."""
    option = wish.options[0]
    rivals = [rival for resource in option for rival in board.rivals(resource, wish.mode, wish.who)]
    asked = next((it for it in option if any(board.rivals(it, wish.mode, wish.who))), option[0])
    queue_length = len({waiting.lease.key for resource in option for waiting in board.in_line(resource)})
    if rivals:
        return _hold(asked, rivals, queue_length, wish, board)
    ahead = board.ahead(wish, option)
    if not ahead:  # what is free would close a ring of waiters, were it granted
        ahead = [waiting for waiting in board.present() if waiting.lease.who != wish.who][:1]
    first = ahead[0]
    return Hold(
        resource=asked,
        held_by=first.ticket.agent,
        claimed_at=first.ticket.since,
        version=first.ticket.version,
        expires_in=max(0, first.lease.present_until - board.now),
        idle=0,
        servers=(first.lease.server,),
        queue_length=queue_length,
        in_line=True,
    )


# --- rules


def _place(command: Take, who: Who, board: Board) -> Waiting | None:
    """The ticket that an earlier call for the very same left."""
    asked = (command.mode, command.also, command.alternatives)
    for waiting in _tickets(command.resource, who, board):
        if (waiting.ticket.mode, waiting.ticket.also, waiting.ticket.alternatives) == asked:
            return waiting
    return None


def _tickets(resource: str, who: Who, board: Board) -> list[Waiting]:
    return [
        Waiting(resource, ticket, lease)
        for ticket in board.claim(resource).line
        if (lease := board.lease(resource, ticket.version)) is not None and lease.is_of(who)
    ]


def _is_offered(option: Option, who: Who, board: Board) -> bool:
    holds = [board.hold_of(resource, who) for resource in option]
    return any(hold is not None and hold.lease.kind == "offered" for hold in holds)


def _holds_all(option: Option, who: Who, mode: Mode, board: Board) -> bool:
    holds = [board.hold_of(resource, who) for resource in option]
    return all(hold is not None and hold.grant.mode == mode for hold in holds)


def _would_jam(command: Take, option: Option, who: Who, server: str, board: Board) -> bool:
    """Whether a grant to somebody who also waits would make waiters wait for each other for ever."""
    if not any(waiting.lease.who == who for waiting in board.present()):
        return False
    trial = Board(board.claims.values(), board.leases.values(), board.now, board.at)
    _granted(command, option, who, server, _place(command, who, trial), trial)
    return trial.closes_a_ring()


def _offer_would_jam(waiting: Waiting, option: Option, board: Board) -> bool:
    if sum(1 for other in board.present() if other.lease.who == waiting.lease.who) < 2:
        return False
    trial = Board(board.claims.values(), board.leases.values(), board.now, board.at)
    _offer(waiting, option, trial)
    return trial.closes_a_ring()


def _require_room(command: Take, option: Option, who: Who, held: int, board: Board) -> None:
    wanted = sum(1 for resource in option if board.hold_of(resource, who) is None)
    if held + wanted > command.most:
        raise InvalidError(f"agent: holds {held} claims, and {command.most} at most are allowed; release some first")


def _renewed(command: Take, option: Option, who: Who, server: str, board: Board) -> Taken:
    holds = [hold for resource in option if (hold := board.hold_of(resource, who)) is not None]
    for hold in holds:
        board.keep(_lease(command, hold, who, server, board))
    return _taken(option, who, board, already=holds[0].lease.kind == "held")


def _lease(command: Take, hold: Rival, who: Who, server: str, board: Board) -> Lease:
    """The lease of an own grant, renewed. A length that the agent chose once stays, unless it chooses another."""
    chosen = command.told or not hold.lease.told
    length = command.lease if chosen else hold.lease.length
    return hold.lease._replace(
        kind="held",
        session=who.session,
        server=server,
        length=length,
        told=hold.lease.told or command.told,
        deadline=board.now + length,
        heard=board.now,
        note=command.note if command.note is not None else hold.lease.note,
    )


def _granted(command: Take, option: Option, who: Who, server: str, place: Waiting | None, board: Board) -> Taken:
    pattern = Lease(
        resource="",
        version=0,
        kind="held",
        agent=who.agent,
        principal=who.principal,
        session=who.session,
        server=server,
        deadline=board.now + command.lease,
        length=command.lease,
        told=command.told,
        heard=board.now,
        note=command.note,
    )
    _grant(option, command.mode, pattern, place, board)
    serve(board)  # a mode that became shared lets others in
    return _taken(option, who, board)


def _offer(waiting: Waiting, option: Option, board: Board) -> None:
    board.adopt(waiting.lease.who, waiting.lease.server)  # or a session that comes back would hold beside this one
    pattern = waiting.lease._replace(kind="offered", deadline=board.now + OFFER, present_until=0)
    _grant(option, waiting.ticket.mode, pattern, waiting, board)


def _grant(option: Option, mode: Mode, pattern: Lease, place: Waiting | None, board: Board) -> None:
    for resource in option:
        own = board.hold_of(resource, pattern.who)
        if own is not None and own.grant.mode == mode:
            continue
        answers = place is not None and resource == place.resource
        event = ClaimGranted(
            agent=pattern.agent,
            principal=pattern.principal,
            mode=mode,
            ticket=place.ticket.version if place is not None and answers else None,
            instead_of=own.grant.version if own is not None else None,
            note=pattern.note,
        )
        version = board.record(resource, event)
        if own is not None:
            board.drop(own.lease.key)
        board.keep(pattern._replace(resource=resource, version=version))
    for waiting in board.waiting():  # also tickets of other calls that this grant makes needless
        if waiting.lease.is_of(pattern.who) and (waiting == place or _is_content(waiting, board)):
            version = waiting.ticket.version
            if any(ticket.version == version for ticket in board.claim(waiting.resource).line):
                board.record(waiting.resource, ClaimUnqueued(agent=pattern.agent, ticket=version, why="granted"))
            board.drop(waiting.lease.key)
    if place is not None:
        board.drop(place.lease.key)


def _is_content(waiting: Waiting, board: Board) -> bool:
    return any(_holds_all(option, waiting.lease.who, waiting.ticket.mode, board) for option in waiting.wish.options)


def _taken(option: Option, who: Who, board: Board, already: bool = False) -> Taken:
    holds = [hold for resource in option if (hold := board.hold_of(resource, who)) is not None]
    main, *others = holds
    return Taken(
        resource=main.resource,
        version=main.grant.version,
        position=main.lease.position,
        claimed_at=main.grant.claimed_at,
        expires_in=main.lease.deadline - board.now,
        at=board.at,
        already=already,
        came_back=main.lease.key in board.adopted,
        also=tuple((hold.resource, hold.grant.version) for hold in others),
        past=board.claim(main.resource).past,
        waiting=tuple(
            InLine(waiting.ticket.agent, waiting.ticket.since, waiting.lease.note)
            for waiting in board.in_line(main.resource)
        ),
    )


def _stand_in_line(command: Take, wish: Wish, server: str, place: Waiting | None, board: Board) -> Queued:
    hold = describe(wish, board)
    own = board.hold_of(command.resource, wish.who)
    if own is not None and own.grant.mode == "shared" != command.mode:
        raise BusyError(hold._replace(shared_by_asker=True))
    if place is None and not command.wait:
        raise BusyError(hold)
    if command.wait:
        ring = board.cycle(wish)
        if ring:
            raise DeadlockError(command.resource, tuple(ring))
    version = place.ticket.version if place is not None else _queue(command, wish.who, board)
    board.keep(
        Lease(
            resource=command.resource,
            version=version,
            kind="waits",
            agent=wish.who.agent,
            principal=wish.who.principal,
            session=wish.who.session,
            server=server,
            deadline=board.now + command.wait + ABSENCE,
            length=command.lease,
            told=command.told,
            present_until=board.now + command.wait if command.wait else 0,
            heard=board.now,
            note=command.note,
        )
    )
    serve(board)
    line = [waiting.lease.key for waiting in board.in_line(command.resource)]
    key = (command.resource, version)
    return Queued(hold._replace(queue_length=len(line)), version, line.index(key) + 1 if key in line else 1)


def _queue(command: Take, who: Who, board: Board) -> int:
    tickets = board.waiting()
    if len(tickets) >= MAX_TICKETS:
        raise UnavailableError(f"{MAX_TICKETS} calls stand in line already", retry_after=5.0)
    for old in _tickets(command.resource, who, board):  # it asked for something else beside it
        left = ClaimUnqueued(agent=who.agent, ticket=old.ticket.version, why="left")
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


def _require_mine_or_free(resource: str, who: Who, version: int | None, board: Board) -> None:
    claim = board.claim(resource)
    hold = board.hold_of(resource, who)
    if hold is not None and version in (None, hold.grant.version):
        return
    if version is None and _tickets(resource, who, board):
        return
    if claim.version == 0:
        raise NotFoundError.of_claim(resource)
    holds = board.holds(resource)
    held_by = holds[0].grant.agent if holds else None
    past = claim.past
    if past is not None and past.holder == who.agent and past.outcome in ("expired", "forced"):
        if past.outcome == "expired":
            raise ExpiredError(resource, held_by)
        raise NotHolderError(resource, held_by, reason=past.note)
    if held_by is not None:
        same = tuple(hold.lease.server for hold in holds if hold.grant.agent == who.agent)
        raise NotHolderError(resource, held_by, same_name=bool(same), servers=same)


def _forced(command: Release, board: Board) -> tuple[Let, list[Loss]]:
    resource = command.resource
    assert resource is not None
    if board.claim(resource).version == 0:
        raise NotFoundError.of_claim(resource)
    losses, released = [], []
    for hold in board.holds(resource):
        ending = ClaimReleased(
            agent=hold.grant.agent, grant=hold.grant.version, forced_by=command.agent, note=command.note
        )
        released.append((resource, board.record(resource, ending)))
        board.drop(hold.lease.key)
        losses.append(hold.lease.lost("forced", board.at))
    served = serve(board)
    return Let(tuple(released[-1:]), not released, None, _granted_to(served, resource)), losses


def _granted_to(served: list[tuple[str, str]], resource: str | None) -> str | None:
    return next((agent for granted, agent in served if resource is not None and overlap(granted, resource)), None)


def _hold(asked: str, rivals: list[Rival], queue_length: int, wish: Wish, board: Board) -> Hold:
    first = rivals[0]
    holders = tuple(dict.fromkeys(rival.grant.agent for rival in rivals))
    return Hold(
        resource=asked,
        held_by=first.grant.agent,
        claimed_at=first.grant.claimed_at,
        version=first.grant.version,
        expires_in=first.lease.deadline - board.now,
        idle=board.now - first.lease.heard,
        servers=tuple(dict.fromkeys(rival.lease.server for rival in rivals)),
        queue_length=queue_length,
        covered_by=first.resource if first.resource != asked else None,
        holders=holders if len(holders) > 1 else (),
        note=first.lease.note,
        same_name=first.grant.agent == wish.who.agent,
    )
