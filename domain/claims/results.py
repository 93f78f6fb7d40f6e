"""What commands about claims return. Nothing here is raised: a refusal is false in `if`. `lost`: see
holdlog.domain.results.Lost."""

from datetime import datetime
from typing import Final, Literal, NamedTuple

from holdlog.domain.claims.claim import Outcome
from holdlog.domain.results import Lost

_HINTS: Final = {
    "modified": "Its last holder changed it: read it again before you edit.",
    "created": "Its last holder created it: read it before you edit.",
    "deleted": "Its last holder deleted it: check that you still need it.",
    "moved": "Its last holder moved it: see moved_to.",
    "expired": "Its last claim expired: read it again before you edit.",
    "forced": "A person ended the last hold: read it again before you edit.",
}


class Granted(NamedTuple):
    """One of several resources that were claimed or released together."""

    resource: str
    version: int


class Waiter(NamedTuple):
    """An agent in the queue for what the caller holds."""

    agent: str
    since_seconds: float
    note: str | None = None


class Claimed(NamedTuple):
    """The claim was granted. `version` identifies the grant, in guards of writes. `receipt`: what a caller without a
    session must pass from now on. The `previous_` fields are about the last hold, `previous_resource` if that was of
    another name, which covers it."""

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
    lost: list[Lost] | None = None
    status: Literal["claimed"] = "claimed"

    @property
    def hint(self) -> str | None:
        return _HINTS.get(self.previous_outcome or "")


class AlreadyClaimed(NamedTuple):
    """The caller holds it already; its lease is renewed. `version` is that of the grant."""

    resource: str
    version: int
    claimed_at: datetime
    expires_at: datetime
    expires_in_seconds: float
    also: list[Granted] | None = None
    waiting: list[Waiter] | None = None
    lost: list[Lost] | None = None
    status: Literal["already_claimed"] = "already_claimed"


SAME_NAME: Final = (
    "Another session with this name holds it. If this is you, pass the receipt you were given. Otherwise"
    " choose a name of your own, such as claude-7f3a."
)


class Busy(NamedTuple):
    """Another holds it, or waits for it in a call. `holder_connected`: whether the holder's process lives, where it can
    be known. `principal`: that of the holder. `ticket` and `queue_position`: the caller's place in the queue, with
    `receipt` as in Claimed."""

    resource: str
    held_by: str
    claimed_at: datetime
    held_for_seconds: float
    expires_in_seconds: float
    version: int
    queue_length: int
    same_name: bool | None = None
    holder_connected: bool | None = None
    holder_idle_seconds: float | None = None
    covered_by: str | None = None
    holders: list[str] | None = None
    holder_note: str | None = None
    principal: str | None = None
    ticket: int | None = None
    queue_position: int | None = None
    receipt: str | None = None
    lost: list[Lost] | None = None
    status: Literal["busy"] = "busy"

    @property
    def hint(self) -> str:
        if self.same_name:
            return SAME_NAME
        if self.ticket is not None:
            return (
                f"You are number {self.queue_position} in the queue, for two minutes after your last call that waits."
                " To get the claim when it is free, call claim() again with wait_seconds=30."
            )
        return (
            "Work on something else, or call claim() again with wait_seconds=30 to queue for it. wait() only notifies"
            " you; it does not reserve a place."
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
    lost: list[Lost] | None = None
    status: Literal["deadlock"] = "deadlock"

    def __bool__(self) -> bool:
        return False


class Released(NamedTuple):
    """`released`: all that ended, if that is more than one. `granted_to`: the agent that holds it next."""

    resource: str
    version: int
    outcome: Outcome | None = None
    granted_to: str | None = None
    released: list[Granted] | None = None
    lost: list[Lost] | None = None
    status: Literal["released"] = "released"


class AlreadyFree(NamedTuple):
    """Nobody holds it, or without a resource: the agent holds nothing."""

    resource: str | None = None
    lost: list[Lost] | None = None
    status: Literal["already_free"] = "already_free"


class NeverClaimed(NamedTuple):
    """Nobody has claimed the resource by this name."""

    resource: str
    hint: str = "Nobody has claimed this. Call status() to see what you hold."
    lost: list[Lost] | None = None
    status: Literal["not_found"] = "not_found"

    def __bool__(self) -> bool:
        return False


class NotHolder(NamedTuple):
    """Only its holder may release a claim. `reason`: why a person ended the caller's."""

    resource: str
    held_by: str | None = None
    reason: str | None = None
    hint: str = "You do not hold this. Call status() to see who does."
    lost: list[Lost] | None = None
    status: Literal["not_holder"] = "not_holder"

    def __bool__(self) -> bool:
        return False


class Expired(NamedTuple):
    """The caller's claim ended before, because nothing kept it alive. `held_by`: who holds it now."""

    resource: str
    held_by: str | None = None
    hint: str = "Your claim had expired: check what others changed, and call claim() again before you continue."
    lost: list[Lost] | None = None
    status: Literal["expired"] = "expired"

    def __bool__(self) -> bool:
        return False
