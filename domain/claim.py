"""A claim: one agent's hold on one resource. Decided over a board, because later rules span several resources."""

from typing import ClassVar, NamedTuple

from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.message import Event, Message
from holdlog.domain.names import Agent, claim_stream
from holdlog.domain.refusals import BusyError, Hold, NotFoundError, NotHolderError
from holdlog.domain.resource import Resource
from holdlog.domain.times import utc

# --- events


class ClaimGranted(Event):
    topic: ClassVar[str] = "ClaimGranted"
    agent: Agent


class ClaimReleased(Event):
    topic: ClassVar[str] = "ClaimReleased"
    agent: Agent


ClaimEvent = ClaimGranted | ClaimReleased

# --- commands


class Take(Message):
    """Claim the resource for the agent."""

    resource: Resource
    agent: Agent


class Release(Message):
    """Let go of the resource."""

    resource: Resource
    agent: Agent


class Taken(NamedTuple):
    """The agent holds the resource. `version` and `position` are those of the grant; `already`: it held it before."""

    resource: str
    version: int
    position: int | None
    claimed_at: int
    already: bool


class Let(NamedTuple):
    """The resource is free. `already`: it was free before."""

    resource: str
    version: int
    already: bool


# --- state


class Claim(NamedTuple):
    """`version` counts grants and ends: 0 = never claimed. `holder` None = free. `granted`: version of the grant."""

    resource: str
    version: int = 0
    holder: str | None = None
    granted: int = 0
    claimed_at: int = 0
    previous_holder: str | None = None
    ended_at: int = 0
    digest: bytes = NO_DIGEST

    @property
    def stream(self) -> str:
        return claim_stream(self.resource)


class Board(NamedTuple):
    """What bears on one command: the claim asked for and (from the leases on) whatever overlaps it."""

    claim: Claim


# --- decide, evolve


def decide(command: Take | Release, board: Board) -> list[ClaimEvent]:
    """No event: nothing needs to change. Raises BusyError, NotFoundError, NotHolderError."""
    claim = board.claim
    match command:
        case Take(agent=agent):
            if claim.holder == agent:
                return []
            if claim.holder is not None:
                raise BusyError(_hold(claim, claim.holder))
            return [ClaimGranted(agent=agent)]
        case Release(agent=agent):
            if claim.version == 0:
                raise NotFoundError.of_claim(claim.resource)
            if claim.holder is None:
                return []
            if claim.holder != agent:
                raise NotHolderError(_hold(claim, claim.holder))
            return [ClaimReleased(agent=agent)]


def evolve(claim: Claim, event: ClaimEvent, at: int, digest: bytes) -> Claim:
    """`at` and `digest` come from the event's envelope."""
    version = claim.version + 1
    match event:
        case ClaimGranted(agent=agent):
            return claim._replace(version=version, holder=agent, granted=version, claimed_at=at, digest=digest)
        case ClaimReleased(agent=agent):
            return claim._replace(version=version, holder=None, previous_holder=agent, ended_at=at, digest=digest)


# --- rules


def _hold(claim: Claim, holder: str) -> Hold:
    return Hold(resource=claim.resource, held_by=holder, claimed_at=utc(claim.claimed_at), version=claim.granted)
