"""The profile of a registered agent. Registering is optional: a name in a call is enough to claim and write."""

from typing import ClassVar, NamedTuple

from pydantic import model_validator

from holdlog.domain.message import Command, Event
from holdlog.domain.names import AllowedAgent, Label, Note, agent_stream


class AgentRegistered(Event):
    """An agent registered, or changed its profile. `name`: for people. `purpose`: free text, stored separately from the
    event like all such text."""

    topic: ClassVar[str] = "AgentRegistered"
    payload_field: ClassVar[str | None] = "purpose"
    name: Label | None = None
    model: Label | None = None
    purpose: Note | None = None


class Register(Command):
    """Register an agent or update its profile; omitted fields keep their values."""

    kind: ClassVar[str] = "register"
    agent: AllowedAgent
    name: Label | None = None
    model: Label | None = None
    purpose: Note | None = None

    @model_validator(mode="after")
    def _something(self) -> "Register":
        if self.name is None and self.model is None and self.purpose is None:
            raise ValueError("name: must be given, or model or purpose; pass at least one of the three")
        return self


class RegisterOutcome(NamedTuple):
    agent: str
    version: int
    position: int


class Profile(NamedTuple):
    """An agent's profile. `version` 0 = never registered. `principal`: who was authenticated when it was registered;
    the profile does not apply to agents of the same name under other principals."""

    agent: str
    version: int = 0
    name: str | None = None
    model: str | None = None
    purpose: str | None = None
    registered_at: int = 0
    principal: str | None = None

    @property
    def stream(self) -> str:
        return agent_stream(self.agent)


def decide(command: Register, profile: Profile, principal: str | None) -> list[AgentRegistered]:
    """Return no event if nothing is new. Replaces the whole profile if another principal registered it."""
    if profile.principal != principal:
        profile = Profile(profile.agent)
    registered = AgentRegistered(
        name=command.name or profile.name,
        model=command.model or profile.model,
        purpose=command.purpose or profile.purpose,
    )
    known = AgentRegistered(name=profile.name, model=profile.model, purpose=profile.purpose)
    return [] if profile.version and registered == known else [registered]


def evolve(profile: Profile, event: AgentRegistered, at: int, principal: str | None = None) -> Profile:
    """`at` (microseconds UTC) and `principal` come from the event's envelope."""
    return Profile(profile.agent, profile.version + 1, event.name, event.model, event.purpose, at, principal)
