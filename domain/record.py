"""A record: one value under a namespace and key, with a version that is never skipped and never used twice."""

from typing import ClassVar, Final, NamedTuple

from pydantic import Field

from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.message import Event, Message
from holdlog.domain.names import Agent, Name, record_stream
from holdlog.domain.refusals import Conflict, ConflictError, NotFoundError
from holdlog.domain.resource import Resource
from holdlog.domain.times import utc
from holdlog.domain.value import NULL, Json

MAX_GUARDS: Final = 100

# --- events


class ValueWritten(Event):
    topic: ClassVar[str] = "ValueWritten"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    by: Agent


class ValueDeleted(Event):
    topic: ClassVar[str] = "ValueDeleted"
    by: Agent


RecordEvent = ValueWritten | ValueDeleted

# --- commands


class Operation(Message):
    """A step of a transaction. `expected_version`: N exactly; 0 = must not exist now; None = whatever is there."""

    namespace: Name
    key: Name
    expected_version: int | None = Field(default=None, ge=0)


class Set(Operation):
    value: Json


class Delete(Operation):
    pass


class Check(Operation):
    """Changes nothing; the transaction is refused when the version is another."""


class Guard(Message):
    """A claim that a write relies on; `version` is that of the grant."""

    resource: Resource
    version: int = Field(ge=1)


class Transact(Message):
    """All operations or none, in their order; a later one sees what an earlier one did.

    Refused unless the writer holds every claim of `guard`, now and in the named version."""

    operations: tuple[Set | Delete | Check, ...]
    by: Agent
    guard: tuple[Guard, ...] = Field(default=(), max_length=MAX_GUARDS)


class ClearNamespace(Message):
    """Delete every record that lives in the namespace, whatever its version."""

    namespace: Name
    by: Agent


class Written(NamedTuple):
    """What an operation did. `previous_version` is None where no value was there before."""

    namespace: str
    key: str
    version: int
    previous_version: int | None


# --- state


class Record(NamedTuple):
    """`version` counts on over deletions: 0 = never written. `live` = there is a value now. Times: microseconds UTC."""

    namespace: str
    key: str
    version: int = 0
    live: bool = False
    value: Json = NULL
    updated_by: str = ""
    updated_at: int = 0
    digest: bytes = NO_DIGEST

    @property
    def stream(self) -> str:
        return record_stream(self.namespace, self.key)


# --- decide, evolve


def decide(operation: Operation, by: str, record: Record) -> list[RecordEvent]:
    """Raises NotFoundError, then ConflictError; either means that nothing happens."""
    if isinstance(operation, Delete) and not record.live:
        raise NotFoundError.of_record(
            record.namespace, record.key, record.version, record.updated_by, record.updated_at
        )
    _require_version(operation.expected_version, record)
    match operation:
        case Set(value=value):
            return [ValueWritten(value=value, by=by)]
        case Delete():
            return [ValueDeleted(by=by)]
        case _:
            return []


def evolve(record: Record, event: RecordEvent, at: int, digest: bytes) -> Record:
    """`at` and `digest` come from the event's envelope."""
    match event:
        case ValueWritten(value=value, by=by):
            return Record(record.namespace, record.key, record.version + 1, True, value, by, at, digest)
        case ValueDeleted(by=by):
            return Record(record.namespace, record.key, record.version + 1, False, NULL, by, at, digest)


# --- rules


def _require_version(expected: int | None, record: Record) -> None:
    actual = record.version if record.live else 0
    if expected is None or expected == actual:
        return
    raise ConflictError(
        Conflict(
            namespace=record.namespace,
            key=record.key,
            expected_version=expected,
            actual_version=actual,
            actual_value=record.value.value,
            actual_updated_by=record.updated_by or None,
            actual_updated_at=utc(record.updated_at) if record.version else None,
        )
    )
