"""Commands that processes and hooks run without pydantic. A test compares the first two with their operations."""

from typing import NamedTuple

from holdlog.domain.claims.acquire import acquire, declare_claim, declare_release, finish, give_up, leave, release
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import FileChanged, Mode, Outcome
from holdlog.domain.claims.holder import HolderId, list_ancestors
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

    @property
    def continues(self) -> bool:
        return False

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
    """End a call that waited for a claim. Its ticket stays in the queue for ABSENCE, unless the caller `leaves` it."""

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
    """Which of these resources the agent holds: for each, its name, the version of its first grant, and the position
    of its grant."""

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
    """Renew a grant that has its own lease, in microseconds."""

    resource: str
    version: int
    lease: int


class Beat(NamedTuple):
    """Keep holders of a process alive; those in `open_calls` also after their idle limit. Returns the holders that hold
    or wait for something, or have a loss to be reported."""

    holders: tuple[HolderId, ...]
    open_calls: frozenset[HolderId] = frozenset()
    renewals: tuple[Renewal, ...] = ()

    def reads(self) -> Reads:
        return Reads(claims="own", queues=True)

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        board.start(moment)
        in_calls = {*self.open_calls, *(ancestor for who in self.open_calls for ancestor in list_ancestors(who))}
        handle = moment.caller.handle
        new = [it.who for it in board.holders.values() if it.who[1:] == moment.caller[:2] and handle in it.handles]
        board.entered += [who for who in new if who not in self.holders]  # another process handed them over
        for who in self.holders:
            holder = board.holders.get(who)
            if holder is not None and board.find_holder_end(holder) > board.now:
                board.keep_holder(holder.beat(moment.caller.handle, board.now, who in in_calls))
        for resource, version, lease in self.renewals:
            claim = board.find_hold(resource, version)
            if claim is not None and claim.deadline is not None and board.find_claim_end(claim) > board.now:
                board.keep(claim._replace(deadline=max(claim.deadline, board.now + lease)))
        active = {claim.who for claim in board.claims.values()} | {it.who for it in board.holders.values() if it.lost}
        for who in self.holders:
            if who not in active and (holder := board.holders.get(who)) is not None:
                board.keep_holder(holder.end_beats(moment.caller.handle))
        return board.events, tuple(who for who in self.holders if who in active)


class Leave(NamedTuple):
    """Close the caller's handle. Holders in `open_calls` had calls there. Callers with the names of its holders, below
    the same host, may take over from them, except those `in_conversations`, whose calls also come through hooks."""

    open_calls: frozenset[HolderId] = frozenset()
    in_conversations: frozenset[HolderId] = frozenset()

    def reads(self) -> Reads:
        return Reads(claims="all")

    def decide(self, state: State, moment: Moment) -> Decision:
        return leave(self, state, moment)


class Call(NamedTuple):
    """A call that a hook of the agent's host reports. `begins`: the id of a call that starts, and `lasts` at most that
    many microseconds. `ends`: the id of one that has ended; `*`: all. `changes`: the files that it changed, with the
    SHA-256 of the content, None for a removed file."""

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
        if holder is None or board.find_holder_end(holder) <= board.now:
            return board.events, None
        holder = board.remove_dead_handles(holder)
        if self.begins is not None:
            holder = holder.begin_call(self.begins, board.now + self.lasts)
        for call in [it for it in dict(holder.open_calls) if self.ends in (it, "*")]:
            holder = holder.hear(moment.caller, board.now, moment.caller.handle).end_call(call, board.now)
        board.keep_holder(holder)
        return board.events, None
