"""Holders: one lease for all claims of an agent in a session. Liveness, not history: never an event.

Times are microseconds of a steady clock that no wall clock moves: the machine's, or the database's.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdlog.domain.moment import LEASE, Caller

LIFE_DIVISOR: Final = 5
"""A holder whose process beats lives for lease / LIFE_DIVISOR after each beat. A parent may take over what its
sub-agent has not used for that time."""
BEAT_DIVISOR: Final = 15
"""A process beats every lease / BEAT_DIVISOR."""
HEARD_DIVISOR: Final = 8
"""A call is recorded only if life / HEARD_DIVISOR has passed since the last recorded one."""
SILENCE: Final = LEASE // 10
"""Microseconds. If no process committed for this time, each holder with a process has the same time to beat again."""
MAX_LOSSES: Final = 1000
MAX_CALLS: Final = 100
MAX_HANDLES: Final = 64
RECEIPT: Final = "receipt-"
"""Prefix of the sessions that holdlog creates for callers without one."""


class HolderId(NamedTuple):
    """Identifies a holder of claims. `session`: the conversation or process, or the receipt of a caller that has
    neither."""

    agent: str
    session: str
    principal: str | None = None

    def is_family(self, other: "HolderId") -> bool:
        """Whether both are the same agent of a session, or sub-agents of one."""
        return self[1:] == other[1:] and self.agent.partition("/")[0] == other.agent.partition("/")[0]

    def is_receipt_of(self, who: "HolderId") -> bool:
        """Whether its session was created for a caller of the same name, which has none."""
        return self.session.startswith(RECEIPT) and (self.agent, self.principal) == (who.agent, who.principal)


class Loss(NamedTuple):
    """A grant that ended without its holder's doing. Reported once."""

    resource: str
    version: int
    why: str
    reason: str | None = None


class Holder(NamedTuple):
    """A row of the table `holders`. `lease`, `idle_limit`: those of its first caller, in microseconds. `handles`: the
    open stores of processes that beat for it. `host`: the program that runs the agent, None if unknown. `has_left`: its
    last handle was closed. `open_calls`: ids of calls that have not ended, and when each counts as ended. `lost`: lost
    claims that no response has reported."""

    who: HolderId
    expires_at: int
    seen_at: int
    lease: int = LEASE
    idle_limit: int = LEASE
    host: str | None = None
    handles: tuple[str, ...] = ()
    has_left: bool = False
    open_calls: tuple[tuple[str, int], ...] = ()
    lost: tuple[Loss, ...] = ()

    @property
    def life(self) -> int:
        return self.lease // LIFE_DIVISOR if self.handles else self.lease

    def is_left_to(self, who: HolderId, host: str | None) -> bool:
        """Whether a caller of the same name below the same host takes over from this holder, which left."""
        same = (self.who.agent, self.who.principal) == (who.agent, who.principal) and self.who.session != who.session
        return self.has_left and same and self.host is not None and self.host == host

    def is_silent(self, now: int) -> bool:
        """Whether its parent may take over: no call, open or ended, for a fifth of the lease, or its end was seen."""
        return not self.is_in_call(now) and (self.has_left or self.seen_at + self.lease // LIFE_DIVISOR <= now)

    def is_in_call(self, now: int) -> bool:
        return any(end > now for _, end in self.open_calls)

    def hear(self, caller: Caller, now: int, handle: str | None) -> "Holder":
        """The holder after a call of its session. `handle` beats for it from now on. A call never shortens its life."""
        handles = self._add(handle)
        life = self.lease // LIFE_DIVISOR if handles else self.lease
        return self._replace(
            seen_at=now,
            expires_at=max(self.expires_at, now + life),
            host=self.host or caller.host,
            handles=handles,
            has_left=False,
        )

    def begin_call(self, call: str, end: int) -> "Holder":
        """The holder in a call, which counts as ended after `end`. A process that beats also beats while it runs."""
        calls = (*(it for it in self.open_calls if it[0] != call), (call, end))
        expires_at = self.expires_at if self.handles else max(self.expires_at, end)
        return self._replace(open_calls=calls[-MAX_CALLS:], expires_at=expires_at)

    def end_call(self, call: str, now: int) -> "Holder":
        """The holder after a call: its life counts from now."""
        calls = tuple(it for it in self.open_calls if it[0] != call and it[1] > now)
        ends = () if self.handles else (end for _, end in calls)
        return self._replace(open_calls=calls, expires_at=max(now + self.life, 0, *ends))

    def leave(self, handles: tuple[str, ...], now: int, is_in_conversation: bool) -> "Holder":
        """The holder after one of its handles was closed; `handles` are the others. Without any, it lives as long as a
        holder without a process. Then it has left, unless it is in a conversation or has an open call."""
        if handles:
            return self._replace(handles=handles)
        ends = [end for _, end in self.open_calls if end > now]
        end = max(self.expires_at, self.seen_at + self.lease, *ends)
        return self._replace(expires_at=end, handles=(), has_left=not (ends or is_in_conversation))

    def end_beats(self, handle: str | None) -> "Holder":
        """The holder after its handle has stopped beating for it, because it holds nothing."""
        return self._replace(handles=tuple(it for it in self.handles if it != handle))

    def beat(self, handle: str | None, now: int, is_open: bool) -> "Holder":
        """The holder after a beat of a handle that serves it. `is_open`: a call of the holder runs there. A beat does
        not count if the holder made no call for its idle limit."""
        if not (is_open or self.is_in_call(now) or self.seen_at + self.idle_limit > now):
            return self
        seen, end = now if is_open else self.seen_at, max(self.expires_at, now + self.lease // LIFE_DIVISOR)
        return self._replace(seen_at=seen, expires_at=end, handles=self._add(handle), has_left=False)

    def _add(self, handle: str | None) -> tuple[str, ...]:
        if handle is None or handle in self.handles:
            return self.handles
        return (*self.handles, handle)[-MAX_HANDLES:]


Holders = dict[HolderId, Holder]


def enter(who: HolderId, caller: Caller, now: int, lost: tuple[Loss, ...]) -> Holder:
    """A new holder, at its first grant or ticket."""
    idle_limit = min(caller.idle_limit, caller.lease) if "/" in who.agent else caller.idle_limit
    handles = (caller.handle,) if caller.handle is not None else ()
    life = caller.lease // LIFE_DIVISOR if handles else caller.lease
    return Holder(who, now + life, now, caller.lease, idle_limit, caller.host, handles, lost=lost)


def list_ancestors(who: HolderId) -> Iterator[HolderId]:
    """Its parent agent, the parent of that one, and so on, in its session."""
    agent = who.agent
    while "/" in agent:
        agent = agent.rpartition("/")[0]
        yield who._replace(agent=agent)
