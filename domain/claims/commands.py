"""What can be asked of claims, and what comes of it. Durations in microseconds."""

from typing import ClassVar, Final, NamedTuple

from pydantic import Field, model_validator

from holdlog.domain.claims.claim import Mode, Outcome, PastHold
from holdlog.domain.claims.lease import GRACE, SECOND, Loss
from holdlog.domain.claims.resource import ClaimableResource, Resource
from holdlog.domain.message import Command
from holdlog.domain.names import Agent, AllowedAgent, Note
from holdlog.domain.refusals import Hold

MAX_RESOURCES: Final = 100
"""In one call."""
MAX_OF_PRINCIPAL: Final = 1_024
"""Claims that one principal, the local user included, may hold and wait for in all its sessions."""


class AcquireClaim(Command):
    """Claim the resource with all of `also`, or else the first of `alternatives` that is free.

    Durations in microseconds. `lease`: what a renewal gives; `explicit`: the agent chose it. `wait`: how long the
    caller will queue in this call. `most`: claims that the session may hold. `receipt`: salted hash of the receipt that
    the caller passed; `new_receipt`: of the one that it gets if it has no session and passed no valid receipt.
    """

    kind: ClassVar[str] = "claim"
    resource: ClaimableResource
    agent: AllowedAgent
    also: tuple[ClaimableResource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    alternatives: tuple[ClaimableResource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    mode: Mode = "exclusive"
    note: Note | None = None
    lease: int = 300 * SECOND
    explicit: bool = Field(default=False, serialization_alias="told")
    wait: int = 0
    most: int = 64
    receipt: str | None = None
    new_receipt: str | None = None

    @model_validator(mode="after")
    def _either(self) -> "AcquireClaim":
        if self.also and self.alternatives:
            raise ValueError("alternatives: cannot be combined with also")
        return self


class ReleaseClaim(Command):
    """Release the resource and `also`; without one, everything that the caller holds or waits for. `version`: only
    this grant. `receipt`: the salted hash of the one that identifies a caller without a session.

    `forced`: a person takes it from its holder; `agent` is then that person, and `note` the reason. `holder`: only from
    the holders of that name.
    """

    kind: ClassVar[str] = "release"
    resource: Resource | None = None
    agent: AllowedAgent
    also: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    outcome: Outcome | None = None
    moved_to: ClaimableResource | None = None
    note: Note | None = None
    version: int | None = None
    forced: bool = False
    holder: Agent | None = None
    receipt: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> "ReleaseClaim":
        if self.moved_to is None and self.outcome == "moved":
            raise ValueError("moved_to: is needed with the outcome moved")
        if self.moved_to is not None and self.outcome != "moved":
            raise ValueError("moved_to: goes only with the outcome moved")
        if self.moved_to is not None and self.moved_to == self.resource:
            raise ValueError("moved_to: must be another resource than the one that was moved")
        if self.also and self.resource is None:
            raise ValueError("also: needs a resource beside it")
        return self


class StopWaiting(Command):
    """The call that waited has ended without the resource; the ticket keeps its place for a while."""

    kind: ClassVar[str] = "step_back"
    resource: Resource
    agent: Agent
    ticket: int
    receipt: str | None = None


class Sweep(Command):
    """End whatever is due, and the sessions that lived by their calls and made none for a minute.

    `heirs`: of a session that lives on in another process, with the server that is gone and the one that is there.
    `ended`: servers that are gone, whose leases are cut to `grace` (microseconds) unless `cut` is off or the agent
    chose the length."""

    kind: ClassVar[str] = "sweep"
    ended: tuple[str, ...] = ()
    heirs: tuple[tuple[str, str, str], ...] = ()
    grace: int = GRACE
    cut: bool = True


class Renew(Command):
    """A server says that it lives, and with it these sessions (with the time each was heard, steady microseconds) and
    these grants (resource and version). Grants of a session that had another server are this one's from now on."""

    kind: ClassVar[str] = "renew"
    server: str
    sessions: tuple[tuple[str, int], ...] = ()
    grants: tuple[tuple[str, int], ...] = ()


class CollectLostClaims(Command):
    """Return and forget what the caller's session, or the holder of this receipt (salted hash), lost; only losses of
    the caller's principal."""

    kind: ClassVar[str] = "tell_losses"
    session: str | None
    receipt: str | None = None


class TouchSessions(Command):
    """These sessions, which live by their calls, made a call or have one open. Each comes with its principal and the
    time when its last call began (steady microseconds). A session that ended before that call is alive again."""

    kind: ClassVar[str] = "touch_sessions"
    sessions: tuple[tuple[str | None, str, int], ...]


class EndSession(Command):
    """End a session of the caller's principal that lives by its calls; its leases keep their deadlines."""

    kind: ClassVar[str] = "end_session"
    session: str


class InLine(NamedTuple):
    """Somebody who waits. `since`: microseconds UTC."""

    agent: str
    since: int
    note: str | None
    principal: str | None = None


class ClaimAcquired(NamedTuple):
    """The agent holds the resource. `version`, `position` and `claimed_at` are those of the grant; `already`: it held
    it before. `expires_in`: microseconds, from `at` on (microseconds UTC).
    `past`: the last end of a hold of it, or of what overlaps it or goes with it: `past_of`.

    `is_former`: `past` was held by another session of the same name and principal. `previous_session_ended_at`:
    set if the claim was resumed from an ended session of the same name (microseconds UTC).
    `receipt`: the salted hash of the one that identifies a holder without a session."""

    resource: str
    version: int
    position: int
    claimed_at: int
    expires_in: int
    at: int
    already: bool = False
    also: tuple[tuple[str, int], ...] = ()
    past: PastHold | None = None
    past_of: str | None = None
    is_former: bool = False
    waiting: tuple[InLine, ...] = ()
    previous_session_ended_at: int | None = None
    receipt: str | None = None


class Queued(NamedTuple):
    """Not free; the agent keeps its place, `position` counted from 1. `receipt` as in Taken."""

    hold: Hold
    ticket: int
    position: int
    receipt: str | None = None


class ReleaseOutcome(NamedTuple):
    """What is free now: resource and version of its end. `already`: nothing was held. `granted_to`: who had waited."""

    released: tuple[tuple[str, int], ...]
    already: bool = False
    outcome: str | None = None
    granted_to: str | None = None
    granted_to_principal: str | None = None


class SweepOutcome(NamedTuple):
    """Whether anything ended."""

    changed: bool


class LostClaims(NamedTuple):
    losses: tuple[Loss, ...]
