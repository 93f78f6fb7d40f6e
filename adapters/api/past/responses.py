"""Responses about claims, agents and tokens at an earlier moment. Values and threads have the responses of the present,
with `as_of`."""

from typing import Any, Final, Literal

from holdlog.adapters.api.claims.responses import Queue, WithPast
from holdlog.adapters.api.values.responses import Part, Result, Time

NOT_RECORDED: Final = ["expires_at", "expires_in_seconds", "holder_connected", "holder_idle_seconds", "present"]
"""Fields of the present that are liveness, not history: renewals, connections and who waits in a call."""


class PastHeld(Result):
    """A resource that was held at that moment. `session`: salted hash, if recorded. If the hold has ended since:
    `ended_at`; `outcome`: how (also `expired`, `forced`, `resumed` by another session, `replaced` by the holder's own
    claim in another mode); `noticed_at`: when the log recorded that; `forced_by`: who took it."""

    status: Literal["claimed"] = "claimed"
    resource: str
    held_by: str
    held_by_principal: str | None = None
    session: str | None = None
    mode: str
    version: int
    claimed_at: Time
    held_for_seconds: float
    queue_length: int
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_principals: list[str] | None = None
    ended_at: Time | None = None
    outcome: str | None = None
    noticed_at: Time | None = None
    forced_by: str | None = None
    mixed_scripts: bool | None = None
    not_recorded: list[str] | None = None


class PastAvailable(WithPast):
    """A resource that was free at that moment. `previous_noticed_at`: when the log recorded the end of the last hold,
    which may be later than that moment."""

    status: Literal["available"] = "available"
    resource: str
    previous_noticed_at: Time | None = None
    not_recorded: list[str] | None = None


class PastAgent(Part):
    """An agent that held or waited for something, or had registered. `claims`, `waits`: how many; `name`, `model`,
    `purpose`: as registered then."""

    agent: str
    principal: str | None = None
    claims: int
    waits: int
    name: str | None = None
    model: str | None = None
    purpose: str | None = None
    registered_at: Time | None = None
    mixed_scripts: bool | None = None


class PastClaims(Result):
    """All claims and queues at that moment, in pages by resource."""

    status: Literal["ok"] = "ok"
    claims: list[PastHeld]
    queues: list[Queue]
    agents: list[PastAgent]
    not_recorded: list[str]
    next_after: str | None = None

    def body(self) -> dict[str, Any]:
        return super().body() | {"claims": [held.body() for held in self.claims]}


class PastAgents(Result):
    """The agents that had registered, or held or waited for something, by name."""

    status: Literal["ok"] = "ok"
    agents: list[PastAgent]
    not_recorded: list[str]


class PastToken(Part):
    """A token at that moment, without its secret."""

    name: str
    state: Literal["active", "revoked", "expired"]
    allow: list[str]
    space: str | None = None
    issued_by: str
    issued_at: Time
    expires_at: Time | None = None
    rotated_at: Time | None = None
    revoked_at: Time | None = None


class PastTokens(Result):
    status: Literal["ok"] = "ok"
    tokens: list[PastToken]
