"""What can be asked of claims, and what comes of it. Durations in microseconds."""

from typing import Final, NamedTuple

from pydantic import Field, model_validator

from holdlog.domain.claims.claim import Mode, Outcome, Past
from holdlog.domain.claims.lease import GRACE, SECOND, Loss
from holdlog.domain.claims.resource import Resource
from holdlog.domain.message import Message
from holdlog.domain.names import Agent, Note
from holdlog.domain.refusals import Hold

MAX_RESOURCES: Final = 100
"""In one call."""


class Take(Message):
    """Claim the resource with all of `also`, or else the first of `alternatives` that is free.

    Durations in microseconds. `lease`: what a renewal gives; `told`: the agent chose it. `wait`: how long the caller
    will stand in line in this call. `most`: claims that the agent may hold.
    """

    resource: Resource
    agent: Agent
    also: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    alternatives: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    mode: Mode = "exclusive"
    note: Note | None = None
    lease: int = 300 * SECOND
    told: bool = False
    wait: int = 0
    most: int = 64

    @model_validator(mode="after")
    def _either(self) -> "Take":
        if self.also and self.alternatives:
            raise ValueError("alternatives: cannot be combined with also")
        return self


class Release(Message):
    """Let go of the resource and `also`; of everything, lines included, without one. `version`: only this grant.

    `forced`: whoever holds it, for the `note`'s reason; the agent is then who forces.
    """

    resource: Resource | None = None
    agent: Agent
    also: tuple[Resource, ...] = Field(default=(), max_length=MAX_RESOURCES - 1)
    outcome: Outcome | None = None
    moved_to: Resource | None = None
    note: Note | None = None
    version: int | None = None
    forced: bool = False

    @model_validator(mode="after")
    def _complete(self) -> "Release":
        if self.moved_to is None and self.outcome == "moved":
            raise ValueError("moved_to: is needed with the outcome moved")
        if self.moved_to is not None and self.outcome != "moved":
            raise ValueError("moved_to: goes only with the outcome moved")
        if self.also and self.resource is None:
            raise ValueError("also: needs a resource beside it")
        return self


class StepBack(Message):
    """The call that waited has ended without the resource; the ticket keeps its place for a while."""

    resource: Resource
    agent: Agent
    ticket: int


class Sweep(Message):
    """End whatever is due. `ended`: servers that are gone, whose leases are cut to `grace` (microseconds) unless `cut`
    is off or the agent chose the length."""

    ended: tuple[str, ...] = ()
    grace: int = GRACE
    cut: bool = True


class Renew(Message):
    """A server says that it lives, and with it these sessions (with the time each was heard, steady microseconds) and
    these grants (resource and version). Grants of a session that had another server are this one's from now on."""

    server: str
    sessions: tuple[tuple[str, int], ...] = ()
    grants: tuple[tuple[str, int], ...] = ()


class TellLosses(Message):
    """What the caller's session, or its agent in one that is gone, lost since it was told last; of its principal alone.
    `gone`: servers that are."""

    session: str | None
    agent: Agent | None = None
    gone: tuple[str, ...] = ()


class InLine(NamedTuple):
    """Somebody who waits. `since`: microseconds UTC."""

    agent: str
    since: int
    note: str | None
    principal: str | None = None


class Taken(NamedTuple):
    """The agent holds the resource. `version`, `position` and `claimed_at` are those of the grant; `already`: it held
    it before, in another session where `came_back`. `expires_in`: microseconds, from `at` on (microseconds UTC).
    `past`: the last end of a hold of it, or of what overlaps it or goes with it: `past_of`."""

    resource: str
    version: int
    position: int
    claimed_at: int
    expires_in: int
    at: int
    already: bool = False
    came_back: bool = False
    also: tuple[tuple[str, int], ...] = ()
    past: Past | None = None
    past_of: str | None = None
    waiting: tuple[InLine, ...] = ()


class Queued(NamedTuple):
    """Not free; the agent keeps its place, `position` counted from 1."""

    hold: Hold
    ticket: int
    position: int


class Let(NamedTuple):
    """What is free now: resource and version of its end. `already`: nothing was held. `granted_to`: who had waited."""

    released: tuple[tuple[str, int], ...]
    already: bool = False
    outcome: str | None = None
    granted_to: str | None = None
    granted_to_principal: str | None = None


class Swept(NamedTuple):
    """Whether anything ended."""

    changed: bool


class Told(NamedTuple):
    losses: tuple[Loss, ...]
