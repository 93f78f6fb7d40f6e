"""Commands on claims and their outcomes. Durations in microseconds."""

from typing import ClassVar, Final, NamedTuple

from pydantic import Field, model_validator

from holdlog.domain.claims.claim import FileDigest, Mode, Outcome, PastHold
from holdlog.domain.claims.lease import GRACE, SECOND, Loss
from holdlog.domain.claims.resource import ClaimableResource, Resource
from holdlog.domain.message import Command
from holdlog.domain.names import Agent, AllowedAgent, Note
from holdlog.domain.refusals import Hold

MAX_RESOURCES: Final = 100
"""Maximum resources in one call."""
MAX_OF_PRINCIPAL: Final = 1_024
"""Claims that one principal, including the local user, may hold and wait for over all its sessions."""


class AcquireClaim(Command):
    """Claim the resource with all of `also`, or else the first of `alternatives` that is free.

    Durations in microseconds. `lease`: what a renewal grants; `explicit`: the agent chose it. `wait`: how long the
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
            raise ValueError("alternatives: cannot be combined with also; pass one of them")
        return self


class ReleaseClaim(Command):
    """Release the resource and `also`; without a resource, everything that the caller holds or waits for. `version`:
    only this grant. `receipt`: salted hash of the receipt that identifies a caller without a session.

    `forced`: a person takes it from its holder; `agent` is then that person, and `note` the reason. `holder`: only from
    holders of that name.
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
            raise ValueError("moved_to: is required with outcome=moved; pass the new path")
        if self.moved_to is not None and self.outcome != "moved":
            raise ValueError("moved_to: is only allowed with outcome=moved")
        if self.moved_to is not None and self.moved_to == self.resource:
            raise ValueError("moved_to: must differ from resource")
        if self.also and self.resource is None:
            raise ValueError("also: requires resource; pass the first name as resource")
        return self


class RecordFileChange(Command):
    """Record that an agent changed the file that the resource names. `sha256`: of its new content; None: it was
    removed."""

    kind: ClassVar[str] = "record_file_change"
    resource: Resource
    agent: Agent
    sha256: FileDigest | None


class StopWaiting(Command):
    """End a blocking call that did not get the resource; the ticket keeps its place for a while."""

    kind: ClassVar[str] = "step_back"
    resource: Resource
    agent: Agent
    ticket: int
    receipt: str | None = None


class Sweep(Command):
    """End what is due, and sessions kept alive by their calls that made none for a minute.

    `heirs`: ended process, session and new process of each session that continues in another process. `ended`: ended
    processes, whose leases are cut to `grace` (microseconds) unless `cut` is off or the agent chose the duration."""

    kind: ClassVar[str] = "sweep"
    ended: tuple[str, ...] = ()
    heirs: tuple[tuple[str, str, str], ...] = ()
    grace: int = GRACE
    cut: bool = True


class Renew(Command):
    """Report that a process is alive, with these sessions (and when each last called, steady microseconds) and these
    grants (resource and version). It takes over the grants of a session that had another process."""

    kind: ClassVar[str] = "renew"
    server: str
    sessions: tuple[tuple[str, int], ...] = ()
    grants: tuple[tuple[str, int], ...] = ()


class CollectLostClaims(Command):
    """Return and remove the losses of the caller's session, or of the holder of this receipt (salted hash); only those
    of the caller's principal."""

    kind: ClassVar[str] = "tell_losses"
    session: str | None
    receipt: str | None = None


class TouchSessions(Command):
    """Record that sessions kept alive by their calls made one or have one open. Each has its principal and the
    time when its last call began (steady microseconds). A session that ended before that call is alive again."""

    kind: ClassVar[str] = "touch_sessions"
    sessions: tuple[tuple[str | None, str, int], ...]


class EndSession(Command):
    """End a session of the caller's principal that is kept alive by its calls; its leases keep their deadlines."""

    kind: ClassVar[str] = "end_session"
    session: str


class QueuedTicket(NamedTuple):
    """A waiter. `since`: microseconds UTC."""

    agent: str
    since: int
    note: str | None
    principal: str | None = None


class ClaimAcquired(NamedTuple):
    """The agent holds the resource. `version`, `position` and `claimed_at` are those of the grant; `already`: it held
    it before. `expires_in`: microseconds from `at` (microseconds UTC).
    `past`: how the last hold of `past_of` ended: the resource, one claimed with it, or one that overlaps them.

    `is_former`: `past` was held by another session of the same name and principal. `previous_session_ended_at`:
    set if the claim was resumed from an ended session of the same name (microseconds UTC).
    `receipt`: salted hash of the receipt that identifies a holder without a session."""

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
    waiting: tuple[QueuedTicket, ...] = ()
    previous_session_ended_at: int | None = None
    receipt: str | None = None


class Queued(NamedTuple):
    """The resource is not free; the agent keeps its place, `position` counted from 1. `receipt` as in ClaimAcquired."""

    hold: Hold
    ticket: int
    position: int
    receipt: str | None = None


class ReleaseOutcome(NamedTuple):
    """What was released: resource and version of its end. `already`: nothing was held. `granted_to`: the waiter it
    went to."""

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
