"""A lease: how long a grant or a ticket lasts without a word from its agent. Liveness, not history: never an event.

Times are microseconds of the store's steady clock, which no wall clock moves and which stops while the machine sleeps.
"""

from typing import Final, Literal, NamedTuple

SECOND: Final = 1_000_000
GRACE: Final = 60 * SECOND
"""For a grant whose lease nobody knows: in a copy of a store, or in one whose machine was started anew."""
OFFER: Final = 30 * SECOND
"""For a grant out of the line, until the call that waited for it collects it."""
ABSENCE: Final = 120 * SECOND
"""A ticket lasts so long after the end of the call that waited: who calls again in time has its old place."""

BY_CALLS: Final = "calls"
"""Takes the place of the server in a session that no process keeps alive, as over HTTP. Such a session lives by its
calls: it ends some time after the last one."""
BY_LEASE: Final = "lease"
"""Takes the place of the server in a session that a person names for several commands: it lives as long as its leases.
"""
SESSION_IDLE: Final = 60 * SECOND
"""A session that lives by its calls ends this long after its last call or open request."""
TOUCH_EVERY: Final = 10 * SECOND
"""A session's calls are noted at most this often, so `seen` may be this much older than the last call."""
SESSION_ENDS: Final = SESSION_IDLE + TOUCH_EVERY
"""A session that lives by its calls has certainly ended this long after `seen`."""

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
        """Whether its next call can be recognised."""
        return self.session is not None or self.receipt is not None


class Lease(NamedTuple):
    """Of the grant or ticket `version` of `resource`.

    `kind`: a grant that is held, one that is offered to a waiter and not collected, or a ticket. `server`: the process
    that keeps the session alive; empty = the session has ended, or there is none. `duration`: what a renewal gives.
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
        """`at`: microseconds UTC. `note`: the reason that a person gave for taking it."""
        who = (self.agent, self.principal, self.session, self.server)
        return Loss(self.resource, self.version, why, *who, at, note, self.receipt)

    def is_of(self, who: Who) -> bool:
        """Whether it is the same holder."""
        return who.is_known and self.who == who

    def has_ended(self, now: int) -> bool:
        """Whether its session is known to have ended."""
        if self.session is None:
            return False
        return self.server == "" or (self.server == BY_CALLS and self.last_seen_at + SESSION_ENDS <= now)

    def is_left_to(self, who: Who, now: int) -> bool:
        """Whether it belongs to an ended session of the same name and principal, so `who` may take it over by name."""
        return self.agent == who.agent and self.principal == who.principal and self.has_ended(now)

    def is_by_name(self, who: Who) -> bool:
        """Whether it was made under the name and principal of `who`, without a session."""
        return (self.agent, self.principal, self.session) == (who.agent, who.principal, None)

    def revived(self, server: str, now: int) -> "Lease":
        """The lease after a call of its session through this server. A session that had ended waits no longer: others
        may have begun to wait since, on the ground that they could resume what it held."""
        until = min(self.waiting_until, now) if self.has_ended(now) else self.waiting_until
        return self.alive()._replace(server=server, last_seen_at=now, waiting_until=until)

    def alive(self) -> "Lease":
        """The lease of a session that has not ended."""
        return self if self.kind == "offered" else self._replace(ended_at=0)

    def end_of_session(self, now: int, at: int) -> int:
        """When its ended session ended, in microseconds UTC, as far as that is known. `now`, `at`: the same moment."""
        noted = self.ended_at if self.server == "" else 0
        return noted or at - max(0, now - self.last_seen_at - SESSION_IDLE)

    def lets_in(self, who: Who) -> bool:
        """An agent does not block its sub-agents (`claude` and `claude/tests`) within one session."""
        return (
            self.session is not None
            and self.session == who.session
            and self.principal == who.principal
            and who.agent.startswith(self.agent + "/")
        )


class HeldCounts(NamedTuple):
    """How many live grants there are: of a session (without one, of an agent), and of a principal under all names."""

    by_session: int
    by_principal: int


class Loss(NamedTuple):
    """A grant that ended through no action of its holder; reported once, in the next response to its session, or to the
    caller that shows its receipt. `at`: microseconds UTC. `note`: why a person took it.
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
