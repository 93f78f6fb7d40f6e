"""The base of all messages, and who sends them."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from holdlog.domain.names import Label, Note


class Message(BaseModel):
    """A frozen fact or wish: events, commands and outcomes. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Command(Message):
    """A request to change something; named in the imperative. `kind` names it in metrics and never changes."""

    kind: ClassVar[str]


class Event(Message):
    """Something that happened to one aggregate; named in the past tense.

    `topic` names it in the log and never changes. `payload_field` names the field that holds what an agent wrote:
    it is stored beside the event, so that it can be redacted without breaking the chain of digests. `kept_back`: fields
    that nobody outside is told: they stand in the log alone, and are left out of whatever is published or shown.
    """

    topic: ClassVar[str]
    payload_field: ClassVar[str | None] = None
    private_fields: ClassVar[frozenset[str]] = frozenset()


class Caller(Message):
    """Who asks and why, as far as can be known; stands in the envelope of every event that follows.

    `principal`: who was authenticated (None: the local user). `session`: the conversation or process.
    `request_id`: makes a write repeatable for 24 hours within its principal. `correlation_id`: joins related writes.
    `server`: the process that keeps the session alive; not recorded, and empty where nothing does.
    """

    principal: Label | None = None
    session: Label | None = None
    request_id: Label | None = None
    reason: Note | None = None
    correlation_id: Label | None = None
    server: str = ""


NOBODY = Caller()
