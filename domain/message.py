"""The base classes of all messages, and the caller who sends them."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from holdlog.domain.names import Label, Note


class Message(BaseModel):
    """A frozen event, command or outcome. Unknown fields are rejected. Schemas are built at their first use: a process
    needs few of them, and building all takes a quarter of the time in which it starts."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class Command(Message):
    """A request to change something, named in the imperative. `kind` names it in metrics and never changes."""

    kind: ClassVar[str]


class Event(Message):
    """A fact about one aggregate, named in the past tense.

    `topic` names it in the log and never changes. `payload_field` names the field with the agent's own content: it is
    stored separately from the event, so that redaction does not break the chain of digests. `private_fields`: fields
    that only the log contains; events that are published or shown omit them.
    """

    topic: ClassVar[str]
    payload_field: ClassVar[str | None] = None
    private_fields: ClassVar[frozenset[str]] = frozenset()


class Caller(Message):
    """Who makes a call and why, as far as known; recorded in the envelope of every resulting event.

    `principal`: who was authenticated (None: the local user). `session`: the conversation or process.
    `request_id`: makes a write repeatable for 24 hours within its principal. `correlation_id`: joins related writes.
    `server`: the process that keeps the session alive; not recorded, and empty if none does.
    """

    principal: Label | None = None
    session: Label | None = None
    request_id: Label | None = None
    reason: Note | None = None
    correlation_id: Label | None = None
    server: str = ""


NOBODY = Caller()
