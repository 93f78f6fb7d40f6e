"""Responses about claims: one model per status."""

from typing import Any, Literal

from pydantic import Field

from holdlog.adapters.api.values.responses import Lost, Part, Refused, Result, Time


class Version(Part):
    """A further resource of a claim, and the version of its grant."""

    resource: str
    version: int


class Elsewhere(Part):
    """The same path is claimed in another workspace; that does not block."""

    workspace: str
    held_by: str
    held_by_principal: str | None = None


class Waiter(Part):
    """An agent in the queue. `present`: it is in a call right now."""

    agent: str
    principal: str | None = None
    since_seconds: float
    note: str | None = None
    mode: str | None = None
    present: bool | None = None
    mixed_scripts: bool | None = None


class Step(Part):
    """One agent of a deadlock cycle: it holds what the previous one waits for."""

    agent: str
    principal: str | None = None
    holds: str
    waits_for: str


class WithPast(Result):
    """How the last hold ended: of the resource, or of `previous_resource`, a different name that overlaps it or is
    linked to it."""

    previous_outcome: str | None = None
    previous_holder: str | None = None
    previous_holder_principal: str | None = None
    previous_resource: str | None = None
    previous_outcome_at: Time | None = None
    previous_note: str | None = None
    moved_to: str | None = None

    def body(self) -> dict[str, Any]:
        """The response as a JSON object, with facts about the previous hold after the current state, then the hint."""
        fields = super().body()
        last = [name for name in (*WithPast.model_fields, "hint") if name in fields and name not in Result.model_fields]
        behind = {name: fields.pop(name) for name in last}
        return fields | behind


class Claimed(WithPast):
    status: Literal["claimed"] = "claimed"
    resource: str
    version: int
    position: int
    claimed_at: Time
    expires_at: Time
    expires_in_seconds: float
    receipt: str | None = None
    renewal: str | None = None
    resumed: Literal[True] | None = None
    previous_session_ended_at: Time | None = None
    also: list[Version] | None = None
    waiting: list[Waiter] | None = None
    also_claimed_in: list[Elsewhere] | None = None
    former_session_lost: list[Lost] | None = None
    hint: str | None = None


class AlreadyClaimed(Result):
    status: Literal["already_claimed"] = "already_claimed"
    resource: str
    version: int
    claimed_at: Time
    expires_at: Time
    expires_in_seconds: float
    receipt: str | None = None
    renewal: str | None = None
    also: list[Version] | None = None
    waiting: list[Waiter] | None = None
    also_claimed_in: list[Elsewhere] | None = None
    hint: str | None = None


class Busy(Refused):
    status: Literal["busy"] = "busy"
    resource: str
    held_by: str
    held_by_principal: str | None = None
    same_name: Literal[True] | None = None
    claimed_at: Time
    held_for_seconds: float
    expires_in_seconds: float
    version: int
    holder_connected: bool
    holder_idle_seconds: float | None = None
    holder_note: str | None = None
    queue_length: int
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_principals: list[str] | None = None
    ticket: int | None = None
    receipt: str | None = None
    queue_position: int | None = None
    capped_at_seconds: float | None = None
    hint: str


class Deadlock(Refused):
    status: Literal["deadlock"] = "deadlock"
    resource: str
    cycle: list[Step]
    hint: str


class Released(Result):
    """The response to a release. `released`: all released resources, if there were several or the request named
    none."""

    status: Literal["released"] = "released"
    resource: str | None = None
    version: int | None = None
    outcome: str | None = None
    granted_to: str | None = None
    granted_to_principal: str | None = None
    released: list[Version] | None = None


class AlreadyFree(Result):
    """Nothing was held, so nothing was released. `held_elsewhere`: what other sessions hold under the same name, if a
    person asked to release everything."""

    status: Literal["already_free"] = "already_free"
    resource: str | None = None
    held_elsewhere: list[str] | None = None


class NeverClaimed(Refused):
    status: Literal["not_found"] = "not_found"
    resource: str
    hint: str


class NotHolder(Refused):
    status: Literal["not_holder"] = "not_holder"
    resource: str
    held_by: str | None = None
    held_by_principal: str | None = None
    reason: str | None = None
    hint: str


class Expired(Refused):
    status: Literal["expired"] = "expired"
    resource: str
    held_by: str | None = None
    held_by_principal: str | None = None
    hint: str


class Available(WithPast):
    """A free resource; `elapsed_seconds` after a wait."""

    status: Literal["available"] = "available"
    resource: str
    elapsed_seconds: float | None = None
    also_claimed_in: list[Elsewhere] | None = None
    hint: str | None = None


class Held(Result):
    """A resource that is held. `version`: of the grant; `current`: whether the requested grant is live.
    `mixed_scripts`, also in other rows: True if a name mixes scripts, so that it may look like another one."""

    status: Literal["claimed"] = "claimed"
    resource: str
    held_by: str
    held_by_principal: str | None = None
    claimed_at: Time
    held_for_seconds: float
    expires_at: Time
    expires_in_seconds: float
    version: int
    mode: str
    queue_length: int
    holder_connected: bool
    holder_idle_seconds: float | None = None
    holder_note: str | None = None
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_principals: list[str] | None = None
    current: bool | None = None
    agent_name: str | None = None
    agent_model: str | None = None
    also_claimed_in: list[Elsewhere] | None = None
    mixed_scripts: bool | None = None
    hint: str | None = None


class Queue(Part):
    """The queue for a resource in order of arrival: its `length`, and the first 20 waiters in `line`."""

    resource: str
    length: int
    line: list[Waiter]


class AgentPart(Part):
    """An agent that holds or waits for something. `name`, `model` and `purpose`: as registered."""

    agent: str
    principal: str | None = None
    claims: int
    connected: bool
    idle_seconds: float | None = None
    name: str | None = None
    model: str | None = None
    purpose: str | None = None
    mixed_scripts: bool | None = None


class Board(Result):
    """All current claims and queues, in pages by resource."""

    status: Literal["ok"] = "ok"
    claims: list[Held]
    queues: list[Queue]
    agents: list[AgentPart]
    next_after: str | None = None

    def body(self) -> dict[str, Any]:
        return super().body() | {"claims": [held.body() for held in self.claims]}


class SessionPart(AgentPart):
    """An agent in one session, or a connected process that holds nothing. `claims`: number held; `waits`: number waited
    for. `process`: process id; `program`: what it is; `folder`: its working folder; `host`: where it connects from; all
    missing for a session that no process keeps alive. `session`: the hashed session, which JSON leaves out."""

    waits: int
    session: str | None = Field(default=None, exclude=True)
    process: int | None = None
    program: str | None = None
    folder: str | None = None
    host: str | None = None


class AgentSessions(Board):
    """The board with a row in `agents` for each session."""

    agents: list[SessionPart]  # type: ignore[assignment]


class WaitTimeout(Refused):
    status: Literal["timeout"] = "timeout"
    resource: str
    held_by: str
    held_by_principal: str | None = None
    claimed_at: Time
    held_for_seconds: float
    elapsed_seconds: float
    capped_at_seconds: float | None = None
    hint: str


class RegisteredAgent(Result):
    status: Literal["ok"] = "ok"
    agent: str
    version: int
    position: int
