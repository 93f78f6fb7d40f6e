"""The answers of every surface: one model per status. MCP, HTTP, command line and library say the same."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

Time = Annotated[
    datetime,
    PlainSerializer(lambda time: time.isoformat(timespec="microseconds"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""RFC 3339 UTC with microseconds where it is JSON."""


class Result(BaseModel):
    """Base of all answers. A field that is None is left out of the JSON, unless `kept` names it."""

    model_config = ConfigDict(frozen=True)

    def body(self) -> dict[str, Any]:
        """The answer as a JSON object."""
        kept = self.kept()
        return {
            name: value for name, value in self.model_dump(mode="json").items() if value is not None or name in kept
        }

    @classmethod
    def kept(cls) -> frozenset[str]:
        """Fields whose null means something."""
        return frozenset()


class StateRecord(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    value: Any
    version: int
    updated_by: str
    updated_at: Time
    expires_at: Time | None = None
    expires_in_seconds: float | None = None

    @classmethod
    def kept(cls) -> frozenset[str]:
        return frozenset({"value"})


class NotFound(Result):
    status: Literal["not_found"] = "not_found"
    namespace: str
    key: str
    version: int | None = None
    deleted_by: str | None = None
    deleted_at: Time | None = None
    expires_at: Time | None = None
    hint: str


class SetResult(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    version: int
    previous_version: int | None
    position: int

    @classmethod
    def kept(cls) -> frozenset[str]:
        return frozenset({"previous_version"})


class Conflict(Result):
    status: Literal["conflict"] = "conflict"
    namespace: str
    key: str
    expected_version: int
    actual_version: int
    actual_value: Any
    actual_updated_by: str | None = None
    actual_updated_at: Time | None = None
    hint: str

    @classmethod
    def kept(cls) -> frozenset[str]:
        return frozenset({"actual_value"})


class DeleteResult(Result):
    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    deleted_by: str
    deleted_version: int
    version: int
    position: int


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
    version: int
    updated_by: str
    updated_at: Time


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


class Past(Result):
    """One entry of a history."""

    version: int
    value: Any
    updated_by: str
    updated_at: Time
    event_type: Literal["write", "delete", "expire", "redact"]
    position: int
    reason: str | None = None

    @classmethod
    def kept(cls) -> frozenset[str]:
        return frozenset({"value"})


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
    """A watched value went away."""

    status: Literal["deleted"] = "deleted"
    namespace: str
    key: str
    version: int
    deleted_by: str
    deleted_at: Time
    expires_at: Time | None = None


class WatchTimeout(Result):
    status: Literal["timeout"] = "timeout"
    namespace: str
    key: str
    since_version: int
    elapsed_seconds: float
    capped_at_seconds: float | None = None
    hint: str


class Claimed(Result):
    status: Literal["claimed"] = "claimed"
    resource: str
    version: int
    position: int
    claimed_at: Time


class AlreadyClaimed(Result):
    status: Literal["already_claimed"] = "already_claimed"
    resource: str
    version: int
    claimed_at: Time


class Busy(Result):
    status: Literal["busy"] = "busy"
    resource: str
    held_by: str
    claimed_at: Time
    held_for_seconds: float
    version: int
    hint: str


class Released(Result):
    status: Literal["released"] = "released"
    resource: str
    version: int


class AlreadyFree(Result):
    status: Literal["already_free"] = "already_free"
    resource: str


class NeverClaimed(Result):
    status: Literal["not_found"] = "not_found"
    resource: str
    hint: str


class NotHolder(Result):
    status: Literal["not_holder"] = "not_holder"
    resource: str
    held_by: str
    hint: str


class Available(Result):
    """A free resource; `previous_…` when it has a past, `elapsed_seconds` after a wait."""

    status: Literal["available"] = "available"
    resource: str
    elapsed_seconds: float | None = None
    previous_outcome: Literal["released"] | None = None
    previous_holder: str | None = None
    previous_outcome_at: Time | None = None


class Held(Result):
    """A resource that somebody holds."""

    status: Literal["claimed"] = "claimed"
    resource: str
    held_by: str
    claimed_at: Time
    held_for_seconds: float
    version: int


class Board(Result):
    """Everything that is held now, in pages by resource."""

    status: Literal["ok"] = "ok"
    claims: list[Held]
    next_after: str | None = None

    def body(self) -> dict[str, Any]:
        return super().body() | {"claims": [held.body() for held in self.claims]}


class WaitTimeout(Result):
    status: Literal["timeout"] = "timeout"
    resource: str
    held_by: str
    claimed_at: Time
    held_for_seconds: float
    elapsed_seconds: float
    capped_at_seconds: float | None = None
    hint: str


class Unavailable(Result):
    status: Literal["unavailable"] = "unavailable"
    message: str
    retry_after: float
    in_doubt: bool
    hint: str


class Failed(Result):
    """A bad argument or a bug; over MCP with `isError`."""

    status: Literal["error"] = "error"
    message: str
