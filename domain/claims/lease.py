"""A lease: how long a grant or a ticket lasts without a word from its agent. Liveness, not history: never an event.

Times are microseconds of the store's steady clock, which no wall clock moves and which stops while the machine sleeps.
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

SECOND: Final = 1_000_000
GRACE: Final = 60 * SECOND
"""For a grant whose lease nobody knows: in a copy of a store, or in one whose machine was started anew."""
OFFER: Final = 30 * SECOND
"""For a grant out of the line, until the call that waited for it collects it."""
ABSENCE: Final = 120 * SECOND
"""A ticket lasts so long after the end of the call that waited: who calls again in time has its old place."""


BY_CALLS: Final = "calls"
"""Stands for the server of a session that its client named and that no process keeps alive, as over HTTP: it is there
until its lease ends."""

Why = Literal["expired", "forced", "resumed", "released_by_name"]


class Who(NamedTuple):
    """Whoever calls. `principal`: who was authenticated (None: the local user). `session`: conversation or process."""

    agent: str
    principal: str | None
    session: str | None


class Lease(NamedTuple):
    """Of the grant or ticket `version` of `resource`.

    `kind`: a grant that is held, one that is offered to a waiter and not collected, or a ticket. `server`: the process
    that keeps the session alive; empty = it ended, so that the same agent may come back in another session.
    `length`: what a renewal gives. `told`: the agent chose the length. `present_until`: end of the call that waits.
    `heard`: when the agent last called. `position`: of the event that granted it. `note`: what it tells the others.
    `receipt`: salted hash of the receipt that identifies a holder without a session. `seen`: when its session was last
    known to be alive. `ended_at`: when its session ended, microseconds UTC; 0 = not known to have ended.
    """

    resource: str
    version: int
    kind: Literal["held", "offered", "waits"]
    agent: str
    principal: str | None
    session: str | None
    server: str
    deadline: int
    length: int
    told: bool = False
    present_until: int = 0
    heard: int = 0
    position: int = 0
    note: str | None = None
    receipt: str | None = None
    seen: int = 0
    ended_at: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.resource, self.version

    @property
    def who(self) -> Who:
        return Who(self.agent, self.principal, self.session)

    def lost(self, why: Why, at: int, note: str | None = None) -> "Loss":
        """`at`: microseconds UTC. `note`: the reason of who forced it."""
        who = (self.agent, self.principal, self.session, self.server)
        return Loss(self.resource, self.version, why, *who, at, note)

    def is_of(self, who: Who) -> bool:
        """The same agent: also from another session, when the one it had is gone."""
        return (
            self.agent == who.agent
            and self.principal == who.principal
            and (self.session == who.session or not self.server)
        )

    def lets_in(self, who: Who) -> bool:
        """An agent does not block its sub-agents (`claude` and `claude/tests`) within one session."""
        return (
            self.principal == who.principal and self.session == who.session and who.agent.startswith(self.agent + "/")
        )


class Loss(NamedTuple):
    """A grant that ended without its holder's doing; told once, with the next answer to its session, or to its agent
    where the `server` of that is gone (empty: it was so already). `at`: microseconds UTC. `note`: why a person took it.
    `receipt`: salted hash, as of a lease.
    """

    resource: str
    version: int
    why: Why
    agent: str
    principal: str | None
    session: str | None
    server: str
    at: int
    note: str | None = None
    receipt: str | None = None

    def is_for(self, session: str | None, gone: Collection[str]) -> bool:
        """Whether who calls in this session under the agent's name is to be told. `gone`: servers that are."""
        return (session is not None and self.session == session) or not self.server or self.server in gone
