"""Commands that processes and hooks pass without pydantic. A test compares the first two with their operations."""

from typing import NamedTuple

from holdlog.domain.claims.acquire import acquire, declare_claim, declare_release, finish, give_up, leave, release
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import FileChanged, Mode, Outcome
from holdlog.domain.claims.holder import Who, list_ancestors
from holdlog.domain.moment import Moment
from holdlog.domain.state import Decision, Reads, State


class Acquire(NamedTuple):
    resource: str
    agent: str
    receipt: str | None = None
    also: list[str] | None = None
    lease_seconds: float | None = None
    wait_seconds: float = 0
    mode: Mode = "exclusive"
    note: str | None = None

    def reads(self) -> Reads:
        return declare_claim(self)

    def decide(self, state: State, moment: Moment) -> Decision:
        return acquire(self, state, moment)


class Release(NamedTuple):
    agent: str
    resource: str | None = None
    receipt: str | None = None
    also: list[str] | None = None
    outcome: Outcome | None = None
    moved_to: str | None = None
    note: str | None = None

    def reads(self) -> Reads:
        return declare_release(self)

    def decide(self, state: State, moment: Moment) -> Decision:
        return release(self, state, moment)


class GiveUp(NamedTuple):
    """End a claim that waited. Its place stays for two minutes, unless it `leaves` the queue."""

    resource: str
    agent: str
    receipt: str | None = None
    also: tuple[str, ...] | None = None
    mode: Mode = "exclusive"
    leaves: bool = False

    def decide(self, state: State, moment: Moment) -> Decision:
        return give_up(self, state, moment)

    def reads(self) -> Reads:
        return Reads(claims="all", receipt=self.receipt)


class ListGrants(NamedTuple):
    """What the agent holds of these resources: names, versions of the first grants, positions."""

    agent: str
    resources: tuple[str, ...]
    receipt: str | None = None

    def reads(self) -> Reads:
        return Reads(resources=self.resources, receipt=self.receipt)

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        who = board.start(moment, self.agent)
        own = [claim for resource in self.resources if (claim := board.find_own(resource, who)) is not None]
        return [], tuple((it.resource, it.hold, it.position) for it in own if not it.is_offered)


class Finish(NamedTuple):
    """End a block that had these grants (resources and versions of the first): release those in `ends`."""

    agent: str
    grants: tuple[tuple[str, int], ...]
    ends: tuple[tuple[str, int], ...]
    outcome: Outcome | None = None
    moved_to: str | None = None
    note: str | None = None
    receipt: str | None = None

    def decide(self, state: State, moment: Moment) -> Decision:
        return finish(self, state, moment)

    def reads(self) -> Reads:
        return Reads(resources=tuple(name for name, _ in self.grants), receipt=self.receipt)


class Renewal(NamedTuple):
    """A grant with its own lease, in microseconds, that a process prolongs."""

    resource: str
    version: int
    lease: int


class Beat(NamedTuple):
    """Keep holders of a process alive, those in `open_calls` whenever they were heard. Returns those that hold or wait
    for something, or have lost something and not learnt it."""

    holders: tuple[Who, ...]
    open_calls: frozenset[Who] = frozenset()
    renewals: tuple[Renewal, ...] = ()

    def reads(self) -> Reads:
        return Reads(claims="own", queues=True)

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        board.start(moment)
        in_calls = {*self.open_calls, *(ancestor for who in self.open_calls for ancestor in list_ancestors(who))}
        handle = moment.caller.handle
        new = [it.who for it in board.holders.values() if it.who[1:] == moment.caller[:2] and handle in it.handles]
        board.entered += [who for who in new if who not in self.holders]  # they were handed over to this handle
        for who in self.holders:
            holder = board.holders.get(who)
            if holder is not None and board.find_end_of(holder) > board.now:
                board.keep_holder(holder.beat(moment.caller.handle, board.now, who in in_calls))
        for resource, version, lease in self.renewals:
            claim = board.find_hold(resource, version)
            if claim is not None and claim.deadline is not None and board.find_end(claim) > board.now:
                board.keep(claim._replace(deadline=max(claim.deadline, board.now + lease)))
        active = {claim.who for claim in board.claims.values()} | {it.who for it in board.holders.values() if it.lost}
        for who in self.holders:
            if who not in active and (holder := board.holders.get(who)) is not None:
                board.keep_holder(holder.end_beats(moment.caller.handle))
        return board.events, tuple(who for who in self.holders if who in active)


class Leave(NamedTuple):
    """The caller's handle is closed, in which some holders had `open_calls`: callers of the same names below the same
    host may take over from its holders, except `guests`, whose calls come in other ways."""

    open_calls: frozenset[Who] = frozenset()
    guests: frozenset[Who] = frozenset()

    def reads(self) -> Reads:
        return Reads(claims="all")

    def decide(self, state: State, moment: Moment) -> Decision:
        return leave(self, state, moment)


class Call(NamedTuple):
    """A call of an agent that its host announces: it `begins` a call that lasts so long at most, or `ends` one (`*`:
    all), which has made these `changes` of files: resources, and the SHA-256 of the content, None if it was removed."""

    agent: str
    receipt: str | None = None
    begins: str | None = None
    lasts: int = 0
    ends: str | None = None
    changes: tuple[tuple[str, str | None], ...] = ()

    def reads(self) -> Reads:
        return Reads(resources=tuple(name for name, _ in self.changes), claims="holders", receipt=self.receipt)

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        who = board.start(moment, self.agent)
        for resource, sha256 in self.changes:
            board.record(FileChanged(f"claim:{resource}", self.agent, sha256))
        holder = board.holders.get(who)
        if holder is None or board.find_end_of(holder) <= board.now:
            return board.events, None
        holder = board.drop_dead(holder)
        if self.begins is not None:
            holder = holder.begin_call(self.begins, board.now + self.lasts)
        for call in [it for it in dict(holder.open_calls) if self.ends in (it, "*")]:
            holder = holder.hear(moment.caller, board.now, moment.caller.handle).end_call(call, board.now)
        board.keep_holder(holder)
        return board.events, None
