"""Responses to questions about what happened."""

from typing import Literal

from holdlog.adapters.api.values.responses import Part, Result, Time


class HoldEntry(Part):
    """A hold of a resource that overlaps the one that was asked for. Without `ended_at`, it has not ended. `outcome`:
    what its holder reported, or `expired`, `forced` (by `forced_by`), `resumed` by another session, `replaced` by the
    holder's own claim in another mode. `noticed_at`: when the log recorded the end. `collected` False: it was offered
    to a waiter that did not collect it. `changed`: what the holder did to the file last, as hooks recorded it. `note`:
    what the holder wrote when it claimed; `end_note`: when it released, or why a person took it."""

    resource: str
    held_by: str
    held_by_principal: str | None = None
    mode: str
    version: int
    claimed_at: Time
    held_for_seconds: float
    ended_at: Time | None = None
    outcome: str | None = None
    noticed_at: Time | None = None
    forced_by: str | None = None
    moved_to: str | None = None
    collected: Literal[False] | None = None
    changed: Literal["modified", "deleted"] | None = None
    note: str | None = None
    end_note: str | None = None
    mixed_scripts: bool | None = None


class WaitEntry(Part):
    """A wait in the queue of a resource. `outcome`: `granted`, or `left` by the waiter, or `absent`: it did not return
    in time, which was noticed at `noticed_at`; None: it still waits."""

    resource: str
    agent: str
    principal: str | None = None
    mode: str
    queued_at: Time
    waited_seconds: float | None = None
    ended_at: Time | None = None
    outcome: str | None = None
    noticed_at: Time | None = None
    note: str | None = None
    mixed_scripts: bool | None = None


class ResourceHistory(Result):
    """Who held a resource or one that overlaps it, and who waited, newest first. `more`: there are older ones."""

    status: Literal["ok"] = "ok"
    resource: str
    holds: list[HoldEntry]
    waits: list[WaitEntry]
    more: Literal[True] | None = None


class ChangeEntry(Part):
    """A change of a value. `forced`: it overwrote or deleted a value of any version."""

    namespace: str
    key: str
    agent: str
    principal: str | None = None
    at: Time
    change: Literal["write", "delete", "expire"]
    version: int
    position: int
    forced: Literal[True] | None = None


class Lane(Part):
    """What one agent did, or what happened to one resource or one value: exactly one of the three is set. All lists
    are oldest first."""

    agent: str | None = None
    principal: str | None = None
    resource: str | None = None
    namespace: str | None = None
    key: str | None = None
    holds: list[HoldEntry]
    waits: list[WaitEntry]
    changes: list[ChangeEntry]


class TimelineResult(Result):
    """Lanes, in the order in which they begin. The timeline of a resource or of a value (`namespace` and `key`) has one
    for each agent, that of an agent one for each resource and value. `begins_at`, `ends_at`: the time that was asked
    for, or that of the entries. `more`: there are older entries."""

    status: Literal["ok"] = "ok"
    agent: str | None = None
    resource: str | None = None
    namespace: str | None = None
    key: str | None = None
    begins_at: Time
    ends_at: Time
    lanes: list[Lane]
    more: Literal[True] | None = None


class AgentHour(Part):
    """How many events of which kinds an agent caused in an hour. `hour`: its beginning."""

    hour: Time
    agent: str
    principal: str | None = None
    events: int
    kinds: dict[str, int]


class Activity(Result):
    """Newest hour first. `position`: of the last event that was counted."""

    status: Literal["ok"] = "ok"
    position: int
    activity: list[AgentHour]


class CollisionEntry(Part):
    """How often an agent queued behind another one: at a resource that the other held or waited for. `granted`: how
    often it then got what it wanted; `waited_seconds`: in total, without waits that have not ended."""

    resource: str
    agent: str
    principal: str | None = None
    behind: str
    behind_principal: str | None = None
    times: int
    granted: int
    waited_seconds: float
    last_at: Time


class RefusedAgent(Part):
    """How often calls of an agent were refused because of another one, by the code of the refusal."""

    agent: str
    times: int
    codes: dict[str, int]
    last_at: Time


class RefusedCall(Part):
    """A refused call. `what`: the error, which has no values in it."""

    at: Time
    code: str
    by: str
    what: str


class Conflicts(Result):
    """Who collided with whom, most often first, who was refused, and the newest refused calls. `position`: of the last
    event that was counted."""

    status: Literal["ok"] = "ok"
    position: int
    collisions: list[CollisionEntry]
    refused: list[RefusedAgent]
    refusals: list[RefusedCall]
