"""A claim: who holds one resource, who waits for it, and how its last hold ended.

Contains facts only. Whether a hold is alive is kept outside the log: see lease.py. Who may hold is decided over a
board, because subtrees and waiting span several claims: see board.py.
"""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from holdlog.domain.claims.resource import Resource, overlap
from holdlog.domain.message import Event
from holdlog.domain.names import Agent, Label, Note, claim_stream

Mode = Literal["exclusive", "shared"]
Outcome = Literal["released", "modified", "created", "deleted", "moved"]
"""What the holder reports that it did to the resource."""

FileDigest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""SHA-256 of the content of a file, in hexadecimal."""

# --- events


class ClaimGranted(Event):
    """An agent acquired the claim. `ticket`: version of the ClaimQueued that it fulfils. `instead_of`: version of the
    own grant that it replaces. `session`: that of the holder; the envelope names the session whose call caused the
    grant. None in format 1."""

    topic: ClassVar[str] = "ClaimGranted"
    payload_field: ClassVar[str | None] = "note"
    agent: Agent
    principal: Label | None = None
    session: Label | None = None
    mode: Mode = "exclusive"
    ticket: int | None = None
    instead_of: int | None = None
    note: Note | None = None


class ClaimResumed(Event):
    """The agent resumed, from `session`, the claim that its ended `former_session` held: the grant of version
    `grant` ends, and the version of this event identifies the new one. `ticket` as in ClaimGranted."""

    topic: ClassVar[str] = "ClaimResumed"
    payload_field: ClassVar[str | None] = "note"
    agent: Agent
    principal: Label | None = None
    session: Label | None = None
    former_session: Label | None = None
    mode: Mode = "exclusive"
    grant: int
    ticket: int | None = None
    note: Note | None = None


class ClaimReleased(Event):
    """A grant was released, by its holder or by another caller. `grant`: version of the grant that ends (None in logs
    of major 1, where a claim had one grant). `forced_by`: the person who took it from the holder, whose principal is
    `holder_principal`; `note` is then the reason.

    `former_session`: the ended session that held it, when another session of the same name released it.
    `released_by_name`: a caller without session and receipt released a claim that was made without a session."""

    topic: ClassVar[str] = "ClaimReleased"
    payload_field: ClassVar[str | None] = "note"
    agent: Agent
    grant: int | None = None
    outcome: Outcome = "released"
    moved_to: Resource | None = None
    forced_by: Agent | None = None
    holder_principal: Label | None = None
    former_session: Label | None = None
    released_by_name: Literal[True] | None = None
    note: Note | None = None


class ClaimExpired(Event):
    """The lease of a grant ended at `due` (microseconds UTC), which may be earlier than it was noticed.

    `collected` False: it was offered to a waiter that did not collect it. `principal`: the holder's;
    None in format 1."""

    topic: ClassVar[str] = "ClaimExpired"
    agent: Agent
    principal: Label | None = None
    grant: int
    due: int
    collected: bool = True


class ClaimQueued(Event):
    """An agent queued for the resource and `also`, or for one of `alternatives`. `turn` orders all tickets."""

    topic: ClassVar[str] = "ClaimQueued"
    payload_field: ClassVar[str | None] = "note"
    agent: Agent
    principal: Label | None = None
    mode: Mode = "exclusive"
    turn: int
    also: tuple[Resource, ...] = ()
    alternatives: tuple[Resource, ...] = ()
    note: Note | None = None


class ClaimUnqueued(Event):
    """A ticket left the queue. `why`: the waiter left, did not return in time, or got another resource that it
    requested. `principal`: the waiter's; None in format 1."""

    topic: ClassVar[str] = "ClaimUnqueued"
    agent: Agent
    principal: Label | None = None
    ticket: int
    why: Literal["left", "absent", "granted"]


class FileChanged(Event):
    """An agent changed the file that the resource names, as hooks of its host saw it. `sha256`: of the new content;
    None: it was removed."""

    topic: ClassVar[str] = "FileChanged"
    agent: Agent
    principal: Label | None = None
    sha256: FileDigest | None


ClaimEvent = ClaimGranted | ClaimResumed | ClaimReleased | ClaimExpired | ClaimQueued | ClaimUnqueued | FileChanged

# --- state


class Grant(NamedTuple):
    """One agent's hold. `version` identifies it and fences the writes of its holder."""

    version: int
    agent: str
    principal: str | None
    mode: Mode
    claimed_at: int
    session: str | None = None


class Ticket(NamedTuple):
    """One agent's place in the queue of a resource; `version` identifies it there, a smaller `turn` comes first."""

    resource: str
    version: int
    agent: str
    principal: str | None
    mode: Mode
    since: int
    turn: int
    also: tuple[str, ...]
    alternatives: tuple[str, ...]


class PastHold(NamedTuple):
    """How the last hold ended. `at`: microseconds UTC. `principal`, `session` and `version` are those of the grant,
    if recorded."""

    holder: str
    outcome: Literal["released", "modified", "created", "deleted", "moved", "expired", "forced"]
    at: int
    note: str | None = None
    moved_to: str | None = None
    forced_by: str | None = None
    principal: str | None = None
    session: str | None = None
    version: int | None = None


class Claim(NamedTuple):
    """`version` counts events: 0 = never claimed. More than one grant: shared, or an agent and its sub-agents.
    `waiting`: the number of tickets in its queue."""

    resource: str
    version: int = 0
    grants: tuple[Grant, ...] = ()
    waiting: int = 0
    past: PastHold | None = None

    @property
    def stream(self) -> str:
        return claim_stream(self.resource)

    def grant(self, version: int) -> Grant | None:
        for grant in self.grants:
            if grant.version == version:
                return grant
        return None


# --- evolve


def evolve(claim: Claim, event: ClaimEvent, at: int) -> Claim:
    """`at` (microseconds UTC) comes from the event's envelope."""
    version = claim.version + 1
    grants, waiting, past = claim.grants, claim.waiting, claim.past
    match event:
        case ClaimGranted(instead_of=replaced) | ClaimResumed(grant=replaced):
            granted = Grant(version, event.agent, event.principal, event.mode, at, event.session)
            grants = (*grants, granted) if replaced is None else (*_without(grants, replaced), granted)
            waiting -= event.ticket is not None
        case ClaimReleased(agent=agent, grant=ended, forced_by=by):
            past = PastHold(
                holder=agent,
                outcome="forced" if by else event.outcome,
                at=at,
                note=event.note,
                moved_to=event.moved_to,
                forced_by=by,
                version=ended,
                **_holder(claim, ended),
            )
            grants = _without(grants, ended) if ended is not None else ()
        case ClaimExpired(agent=agent, grant=ended, due=due):
            if event.collected:
                past = PastHold(agent, "expired", due, version=ended, **_holder(claim, ended))
            grants = _without(grants, ended)
        case ClaimQueued():
            waiting += 1
        case ClaimUnqueued():
            waiting -= 1
        case FileChanged():
            pass  # the version counts it
    return Claim(claim.resource, version, grants, waiting, past)


def new_ticket(claim: Claim, event: ClaimEvent, at: int) -> Ticket | None:
    """The ticket that an event adds to the queue; None if it adds none. `claim`: after the event."""
    match event:
        case ClaimQueued(agent=agent, principal=principal, mode=mode, turn=turn):
            requested = (event.also, event.alternatives)
            return Ticket(claim.resource, claim.version, agent, principal, mode, at, turn, *requested)
        case _:
            return None


def ended_ticket(event: ClaimEvent) -> int | None:
    """The version of the ticket that an event removes from the queue of its claim; None if it removes none."""
    match event:
        case ClaimGranted(ticket=ended) | ClaimResumed(ticket=ended) | ClaimUnqueued(ticket=ended):
            return ended
        case _:
            return None


def requested(ticket: Ticket) -> tuple[str, ...]:
    """The resources that a ticket requests, of any of its options."""
    return ticket.resource, *ticket.also, *ticket.alternatives


def wants(ticket: Ticket, resources: Collection[str]) -> bool:
    """Whether a ticket requests something that overlaps one of these."""
    return ticket.resource in resources or any(overlap(one, other) for one in requested(ticket) for other in resources)


def ends_grant(event: ClaimEvent, version: int) -> bool:
    """Whether an event of its claim ends the grant of this version."""
    match event:
        case ClaimReleased(grant=None):
            return True
        case ClaimReleased(grant=ended) | ClaimExpired(grant=ended) | ClaimResumed(grant=ended):
            return ended == version
        case ClaimGranted(instead_of=ended):
            return ended == version
        case _:
            return False


def _holder(claim: Claim, version: int | None) -> dict[str, str | None]:
    """Principal and session of the grant that ends."""
    grant = claim.grant(version) if version is not None else claim.grants[0] if claim.grants else None
    return {} if grant is None else {"principal": grant.principal, "session": grant.session}


def _without(grants: tuple[Grant, ...], version: int) -> tuple[Grant, ...]:
    return tuple([grant for grant in grants if grant.version != version])
