"""A lease: how long a grant or a ticket lasts without a call of its agent. Liveness, not history: never an event.

Times are microseconds of the store's steady clock, which no wall clock moves and which stops while the machine sleeps.
"""

from typing import Final, Literal, NamedTuple

SECOND: Final = 1_000_000
GRACE: Final = 60 * SECOND
"""For a grant with an unknown lease: in a copy of a store, or after a restart of its machine."""
OFFER: Final = 30 * SECOND
"""For a grant from the queue, until the call that waited for it collects it."""
ABSENCE: Final = 120 * SECOND
"""How long a ticket outlives the call that waited: a caller that returns in time keeps its place."""

BY_CALLS: Final = "calls"
"""Replaces the process of a session that no process keeps alive, as over HTTP. Its calls keep it alive: it ends
some time after the last one."""
BY_LEASE: Final = "lease"
"""Replaces the process of a session that a person names for several commands: it lives as long as its leases."""
SESSION_IDLE: Final = 60 * SECOND
"""A session kept alive by its calls ends this long after its last call or open request."""
TOUCH_EVERY: Final = 10 * SECOND
"""A session's calls are recorded at most this often, so `last_seen_at` may be this much older than the last call."""
SESSION_ENDS: Final = SESSION_IDLE + TOUCH_EVERY
"""A session kept alive by its calls has certainly ended this long after `last_seen_at`."""

Why = Literal["expired", "forced", "resumed", "released_by_name"]


class Who(NamedTuple):
    """A caller or a holder. `principal`: who was authenticated (None: the local user). `session`: the conversation or
    process. `receipt`: the salted hash of the receipt that identifies a holder without a session.

    Two of them are the same holder only if all four are equal and session or receipt is known."""

    agent: str
    principal: str | None
    session: str | None
    receipt: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether its next call can be recognized."""
        return self.session is not None or self.receipt is not None


class Lease(NamedTuple):
    """The lease of the grant or ticket `version` of `resource`.

    `kind`: a held grant, one that is offered to a waiter and not collected, or a ticket. `server`: the process
    that keeps the session alive; empty = the session has ended, or there is none. `duration`: what a renewal grants.
    `explicit`: the agent chose the duration. `waiting_until`: end of the call that waits. `last_call_at`: of the agent.
    `position`: of the event that granted it. `note`: what others see.

    `receipt`: identifies a holder without a session. `last_seen_at`: when the session was last known to be alive.
    `ended_at`: when it ended (microseconds UTC, 0 = not known); in an offer that resumed the claim of a former session,
    when that one ended.
    """

    resource: str
    version: int
    kind: Literal["held", "offered", "waits"]
    agent: str
    principal: str | None
    session: str | None
    server: str
    deadline: int
    duration: int
    explicit: bool = False
    waiting_until: int = 0
    last_call_at: int = 0
    position: int = 0
    note: str | None = None
    receipt: str | None = None
    last_seen_at: int = 0
    ended_at: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.resource, self.version

    @property
    def who(self) -> Who:
        return Who(self.agent, self.principal, self.session, self.receipt)

    def lost(self, why: Why, at: int, note: str | None = None) -> "Loss":
        """The loss of this grant. `at`: microseconds UTC. `note`: the reason that a person gave for taking it."""
        who = (self.agent, self.principal, self.session, self.server)
        return Loss(self.resource, self.version, why, *who, at, note, self.receipt)

    def is_of(self, who: Who) -> bool:
        """Whether it is the same holder."""
        return (
            self.agent == who.agent
            and self.session == who.session
            and self.receipt == who.receipt
            and self.principal == who.principal
            and (who.session is not None or who.receipt is not None)
        )

    def is_due(self, now: int) -> bool:
        """Whether it has expired, or its waiter's call has ended."""
        return self.deadline <= now or 0 < self.waiting_until <= now

    def has_ended(self, now: int) -> bool:
        """Whether its session is known to have ended."""
        if self.session is None:
            return False
        return self.server == "" or (self.server == BY_CALLS and self.last_seen_at + SESSION_ENDS <= now)

    def is_left_to(self, who: Who, now: int) -> bool:
        """Whether it belongs to an ended session of the same name and principal, so `who` may resume it."""
        return self.agent == who.agent and self.principal == who.principal and self.has_ended(now)

    def is_by_name(self, who: Who) -> bool:
        """Whether it was made under the name and principal of `who`, without a session."""
        return (self.agent, self.principal, self.session) == (who.agent, who.principal, None)

    def is_counted_for(self, who: Who) -> bool:
        """Whether it counts for the limit of the caller's session, or of its agent if it has none."""
        of_session = (self.principal, self.session) == (who.principal, who.session)
        return of_session and (who.session is not None or self.agent == who.agent)

    def revived(self, server: str, now: int) -> "Lease":
        """The lease after a call of its session through this server. A session that had ended no longer waits: others
        may have begun to wait since, because they could resume what it held."""
        until = min(self.waiting_until, now) if self.has_ended(now) else self.waiting_until
        return self.alive()._replace(server=server, last_seen_at=now, waiting_until=until)

    def alive(self) -> "Lease":
        """The lease of a session that has not ended."""
        return self if self.kind == "offered" else self._replace(ended_at=0)

    def end_of_session(self, now: int, at: int) -> int:
        """When its ended session ended, in microseconds UTC, as far as known. `now`, `at`: the same moment."""
        noted = self.ended_at if self.server == "" else 0
        return noted or at - max(0, now - self.last_seen_at - SESSION_IDLE)

    def may_admit(self, agent: str) -> bool:
        """False: it is certainly neither the agent's own, nor left to it, nor one that lets it in."""
        return f"{agent}/".startswith(f"{self.agent}/")

    def lets_in(self, who: Who) -> bool:
        """An agent does not block its sub-agents (`claude` and `claude/tests`) within one session."""
        return (
            self.session is not None
            and self.session == who.session
            and self.principal == who.principal
            and who.agent.startswith(self.agent + "/")
        )


class HeldCounts(NamedTuple):
    """How many live grants there are: of a session (without one, of an agent), and of a principal under all names. How
    many resources the tickets of both could be granted."""

    by_session: int
    by_principal: int
    awaited_by_session: int = 0
    awaited_by_principal: int = 0


class Loss(NamedTuple):
    """A grant that ended through no action of its holder; reported once, in the next response to its session, or to the
    caller that passes its receipt. `at`: microseconds UTC. `note`: why a person took it.
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
