"""The responses of every surface: one model per status. MCP, HTTP, command line and library return the same."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.isoformat(timespec="microseconds"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""RFC 3339 UTC with microseconds in JSON."""


Answer = TypeVar("Answer", bound=BaseModel)


class Part(BaseModel):
    """A part of a response. Fields that are None are left out here, too."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class Lost(Part):
    """A claim that its lease's expiry or a person (`forced`) ended. `held_by`: its current holder; `reason`: given by
    the person."""

    resource: str
    version: int
    why: str
    held_by: str | None = None
    held_by_principal: str | None = None
    reason: str | None = None


class AsOf(Part):
    """The moment that a response describes: the last event until then, and its time. `clock_suspect`: around it, a
    clock was ahead, so times of events are not exact. `may_change`: a later event may still change this response."""

    position: int
    at: Time
    clock_suspect: Literal[True] | None = None
    may_change: Literal[True] | None = None


class Result(BaseModel):
    """Base of all responses. A field that is None is left out of the JSON unless `kept` names it.
    `lost`: claims that the caller lost since its previous response; any response may have it. `as_of`: only in
    responses about the past.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    kept: ClassVar[frozenset[str]] = frozenset()
    """Fields whose null is meaningful."""

    lost: list[Lost] | None = None
    as_of: AsOf | None = None

    def body(self) -> dict[str, Any]:
        """The response as a JSON object that begins with its status."""
        dumped = self.model_dump(mode="json").items()
        fields = {name: value for name, value in dumped if value is not None or name in self.kept}
        return {name: fields[name] for name in ("status",) if name in fields} | fields


class Refused(Result):
    """Base of the expected outcomes "no" and "not yet" that the library returns: false in `if`, unlike every other
    response."""

    def __bool__(self) -> bool:
        return False


class StateRecord(Result):
    """`redacted`: the value was redacted, and reads as null."""

    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    value: Any
    redacted: Literal[True] | None = None
    version: int
    updated_by: str
    principal: str | None = None
    updated_at: Time
    expires_at: Time | None = None
    expires_in_seconds: float | None = None

    kept = frozenset({"value"})


class NotFound(Result):
    """`operation`: index of the operation of a transaction that was refused."""

    status: Literal["not_found"] = "not_found"
    operation: int | None = None
    namespace: str
    key: str
    version: int | None = None
    deleted_by: str | None = None
    principal: str | None = None
    deleted_at: Time | None = None
    expires_at: Time | None = None
    hint: str


class Warned(Result):
    """`warnings`: of a value that looks like a credential; fixed texts without any part of the value."""

    warnings: list[str] | None = None


class SetResult(Warned):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    version: int
    previous_version: int | None
    position: int

    kept = frozenset({"previous_version"})


class UpdateResult(SetResult):
    """`value`: what the update made of the previous one. `redacted`: it was redacted since; the request is a repeated
    one."""

    value: Any
    redacted: Literal[True] | None = None

    kept = frozenset({"value", "previous_version"})


class TransactionPart(BaseModel):
    """What an operation did. `version`: of the key after it. `value`: only of an update, which computed it; `redacted`:
    as in UpdateResult."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    namespace: str
    key: str
    version: int
    value: Any = None
    redacted: Literal[True] | None = None

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if name in self.model_fields_set}


class TransactionResult(Warned):
    """One result for each operation, in their order."""

    status: Literal["ok"] = "ok"
    results: list[TransactionPart]
    position: int


class Conflict(Result):
    """`operation`: as in NotFound. `redacted`: `actual_value` was redacted."""

    status: Literal["conflict"] = "conflict"
    operation: int | None = None
    namespace: str
    key: str
    expected_version: int
    actual_version: int
    actual_value: Any
    redacted: Literal[True] | None = None
    actual_updated_by: str | None = None
    actual_principal: str | None = None
    actual_updated_at: Time | None = None
    hint: str

    kept = frozenset({"actual_value"})


class DeleteResult(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    deleted_by: str
    deleted_version: int
    version: int
    position: int
    hint: str


class ClearResult(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    deleted_count: int
    deleted_keys: list[str]
    deleted_by: str
    position: int


class ListedRecord(BaseModel):
    key: str
    value: Any
    redacted: Literal[True] | None = None
    version: int
    updated_by: str
    principal: str | None = None
    updated_at: Time

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if name == "value" or value is not None}


class RecordList(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    count: int
    records: list[ListedRecord]
    position: int
    next_after: str | None = None


class ListedNamespace(BaseModel):
    namespace: str
    count: int


class NamespaceList(Result):
    status: Literal["ok"] = "ok"
    count: int
    namespaces: list[ListedNamespace]
    position: int
    next_after: str | None = None


class FencingConditionView(Part):
    """A claim that a write relied on; `version` is that of the grant. `former_session`: the session that held it, if it
    had ended and the writer acted for it."""

    resource: str
    version: int
    former_session: str | None = None


class Past(Result):
    """One entry of a history. `redacted`: its value was redacted, and reads as null. `operation` and the fields after
    it are missing if they were not recorded.
    `operation`: `set`, `merge`, `increment`, `append`, `patch`, `delete`, `clear` or `revert`; `based_on`: the version
    that the write expected; `forced`: there was a value, and it accepted any version; `guard`: the claims that it
    relied on.
    """

    version: int
    value: Any
    redacted: Literal[True] | None = None
    updated_by: str
    principal: str | None = None
    updated_at: Time
    event_type: Literal["write", "delete", "expire"]
    position: int
    reason: str | None = None
    operation: str | None = None
    based_on: int | None = None
    forced: Literal[True] | None = None
    guard: list[FencingConditionView] | None = None

    kept = frozenset({"value"})


class History(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    history: list[Past]
    next_before: int | None = None

    def body(self) -> dict[str, Any]:
        return super().body() | {"history": [past.body() for past in self.history]}


class ExportedRecord(ListedRecord):
    history: list[Past]


class Export(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    exported_at: Time
    record_count: int
    history_count: int
    records: list[ExportedRecord]
    position: int
    next_after: str | None = None

    def body(self) -> dict[str, Any]:
        records = [
            record.model_dump(mode="json", exclude={"history"}) | {"history": [past.body() for past in record.history]}
            for record in self.records
        ]
        return super().body() | {"records": records}


class Deleted(Result):
    """A watched value was deleted or expired."""

    status: Literal["deleted"] = "deleted"
    namespace: str
    key: str
    version: int
    deleted_by: str
    principal: str | None = None
    deleted_at: Time
    expires_at: Time | None = None


class WatchTimeout(Refused):
    status: Literal["timeout"] = "timeout"
    namespace: str
    key: str
    since_version: int
    elapsed_seconds: float
    capped_at_seconds: float | None = None
    hint: str


class EventView(BaseModel):
    """One event of the log. Its kind determines the further fields (docs/events.md), which are already JSON."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    position: int
    id: str
    stream: str
    version: int
    kind: str
    at: Time
    by: str


class Events(Result):
    """A page of events. `next_position`: pass it as `after` to continue. `bookmark`: end of the log; if both are equal,
    there are no more."""

    status: Literal["ok"] = "ok"
    events: list[EventView]
    next_position: int
    bookmark: int


class Unavailable(Result):
    status: Literal["unavailable"] = "unavailable"
    message: str
    retry_after: float
    in_doubt: bool
    hint: str


class Failed(Result):
    """An invalid argument or a bug; over MCP with `isError`. `operation`: as in NotFound."""

    status: Literal["error"] = "error"
    message: str
    operation: int | None = None


class Denied(Result):
    """The caller's token does not allow the call; over MCP with `isError`. `needed`: the grant that would."""

    status: Literal["denied"] = "denied"
    needed: str
    message: str


class Fenced(Result):
    """A write relied on a claim that its writer does not hold, or no longer holds."""

    status: Literal["fenced"] = "fenced"
    resource: str
    version: int
    current_version: int | None = None
    held_by: str | None = None
    held_by_principal: str | None = None
    reason: str | None = None
    hint: str


RESOURCES: Final = frozenset({"resource", "covered_by", "previous_resource", "moved_to", "holds", "waits_for"})
"""Fields that name a resource."""


def renamed(answer: Answer, shown: Callable[[str], str]) -> Answer:
    """The response, and all its parts, with resources renamed by `shown`."""
    changed: dict[str, Any] = {}
    for name in type(answer).model_fields:
        value = getattr(answer, name)
        if name in RESOURCES and isinstance(value, str):
            changed[name] = shown(value)
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            changed[name] = [renamed(part, shown) for part in value]
    return answer.model_copy(update=changed) if changed else answer
