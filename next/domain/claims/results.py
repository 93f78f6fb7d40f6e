"""What commands and queries about claims return. Nothing here is raised: a refusal is false in `if`."""

from datetime import datetime
from typing import Literal, NamedTuple

from holdlog.domain.claims.claim import Outcome


class Granted(NamedTuple):
    """One of several resources that were claimed together."""

    resource: str
    version: int


class Waiter(NamedTuple):
    """An agent in the queue for what the caller holds."""

    agent: str
    since_seconds: float
    note: str | None = None


class Claimed(NamedTuple):
    """The claim was granted. `version` identifies the grant, in guards of writes. `ended_position` is where the log
    has the end of the last hold: the `previous_` fields come from there."""

    resource: str
    version: int
    position: int
    expires_at: datetime
    expires_in_seconds: float
    also: list[Granted] | None = None
    receipt: str | None = None
    renewal: str | None = None
    previous_resource: str | None = None
    previous_outcome: str | None = None
    previous_holder: str | None = None
    previous_outcome_at: datetime | None = None
    previous_note: str | None = None
    moved_to: str | None = None
    ended_position: int | None = None
    status: Literal["claimed"] = "claimed"


class AlreadyClaimed(NamedTuple):
    """The caller holds it already."""

    resource: str
    version: int
    claimed_at: datetime
    expires_at: datetime
    expires_in_seconds: float
    waiting: list[Waiter] | None = None
    status: Literal["already_claimed"] = "already_claimed"


class Busy(NamedTuple):
    """Another holds it, or waits for it in a call. `ticket` and `queue_position`: the caller's place in the queue."""

    resource: str
    held_by: str
    claimed_at: datetime
    held_for_seconds: float
    expires_in_seconds: float
    version: int
    queue_length: int
    same_name: bool | None = None
    holder_idle_seconds: float | None = None
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_note: str | None = None
    ticket: int | None = None
    queue_position: int | None = None
    status: Literal["busy"] = "busy"

    @property
    def hint(self) -> str:
        if self.same_name:
            return (
                "Another session with this name holds it. If this is you, pass the receipt you were given. Otherwise"
                " choose a name of your own, such as claude-7f3a."
            )
        return (
            "Work on something else, or claim again with wait_seconds=30 to queue for it. wait only notifies you; it"
            " does not reserve a place."
        )

    def __bool__(self) -> bool:
        return False


class Link(NamedTuple):
    """A step of a cycle: the agent holds what the one before waits for."""

    agent: str
    holds: str
    waits_for: str


class Deadlock(NamedTuple):
    """Waiting would never end."""

    resource: str
    cycle: list[Link]
    hint: str = "Waiting would never end: release one of your claims first, or work on something else."
    status: Literal["deadlock"] = "deadlock"

    def __bool__(self) -> bool:
        return False


class Released(NamedTuple):
    resource: str
    version: int
    outcome: Outcome | None = None
    granted_to: str | None = None
    released: list[Granted] | None = None
    status: Literal["released"] = "released"


class AlreadyFree(NamedTuple):
    resource: str | None = None
    status: Literal["already_free"] = "already_free"


class NeverClaimed(NamedTuple):
    resource: str
    hint: str = "Nobody has claimed this. Call status to see what you hold."
    status: Literal["not_found"] = "not_found"

    def __bool__(self) -> bool:
        return False


class NotHolder(NamedTuple):
    """Only its holder may release a claim. `reason`: why a person took it."""

    resource: str
    held_by: str | None = None
    reason: str | None = None
    hint: str = "You do not hold this. Call status to see who does."
    status: Literal["not_holder"] = "not_holder"

    def __bool__(self) -> bool:
        return False
