"""A record: one value under a namespace and key, with a version that is never skipped or reused."""

import hashlib
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field
from pydantic_core import to_json

from holdlog.domain.claims.resource import Resource
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Command, Event, Message
from holdlog.domain.names import Agent, AllowedAgent, Label, Name, record_stream
from holdlog.domain.refusals import ConflictDetail, ConflictError, InapplicableError, NotFoundError
from holdlog.domain.times import utc
from holdlog.domain.updates import Work, append, increment, merge
from holdlog.domain.value import NULL, REDACTED, Json

MAX_GUARDS: Final = 100
NOT_UPDATED: Final = "the value was redacted, so it cannot be updated; write a new one"
MIN_TTL_SECONDS: Final = 0.000_001
MAX_TTL_SECONDS: Final = 10 * 365 * 24 * 60 * 60

# --- events


class ValueWritten(Event):
    """A value was written. `expires_at`: microseconds UTC, if the value has a time to live. `undoes`: positions of the
    first and last event that it undoes (revert.py)."""

    topic: ClassVar[str] = "ValueWritten"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    by: Agent
    expires_at: int | None = None
    undoes: tuple[int, int] | None = None


class ValueDeleted(Event):
    """A value was deleted. `undoes`: as in ValueWritten."""

    topic: ClassVar[str] = "ValueDeleted"
    by: Agent
    undoes: tuple[int, int] | None = None


class ValueExpired(Event):
    """The value's time to live ended at `due` (microseconds UTC), whenever that was noticed.

    `by`: who wrote the expired value; `principal`: who was authenticated then (None in format 1)."""

    topic: ClassVar[str] = "ValueExpired"
    due: int
    by: Agent
    principal: Label | None = None


RecordEvent = ValueWritten | ValueDeleted | ValueExpired

# --- commands


class Operation(Message):
    """A step of a transaction. `expected_version`: N exactly; 0 = must not exist now; None = any.

    `kind` names it in the log and never changes. `is_update`: it computes a value from the current one."""

    kind: ClassVar[str]
    is_update: ClassVar[bool] = False
    namespace: Name
    key: Name
    expected_version: int | None = Field(default=None, ge=0)


class Set(Operation):
    """Write a value. `ttl_seconds`: how long the value lives, in steps of a microsecond; None = it does not expire."""

    kind: ClassVar[str] = "set"
    value: Json
    ttl_seconds: float | None = Field(default=None, ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)


class Merge(Operation):
    """Apply a JSON merge patch to the current value, or to an empty object if there is none.

    `ttl_seconds`: as in Set. `keeps_end`: an existing value keeps its expiry; `ttl_seconds` applies only to a new one.
    `max_bytes`: limit of the result, as JSON."""

    kind: ClassVar[str] = "merge"
    is_update: ClassVar[bool] = True
    patch: Json
    max_bytes: int
    ttl_seconds: float | None = Field(default=None, ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)
    keeps_end: bool = True


class Increment(Operation):
    """Add a number to the current number, or to 0 if there is none. An existing value keeps its expiry."""

    kind: ClassVar[str] = "increment"
    is_update: ClassVar[bool] = True
    by: Json


class AppendItem(Operation):
    """Append a value to the current list, or to an empty one if there is none. An existing value keeps its expiry.
    `unique`: do nothing if the list has an equal item. `max_bytes`: limit of the result, as JSON."""

    kind: ClassVar[str] = "append"
    is_update: ClassVar[bool] = True
    value: Json
    unique: bool = False
    max_bytes: int


class Patch(Operation):
    """Apply a JSON patch (RFC 6902), which `json_patch.require_patch` accepts, to the current value, which keeps its
    expiry. `max_bytes`: limit of the result of every step, as JSON."""

    kind: ClassVar[str] = "patch"
    is_update: ClassVar[bool] = True
    patch: Json
    max_bytes: int


Update = Merge | Increment | AppendItem | Patch


class Delete(Operation):
    kind: ClassVar[str] = "delete"


class Check(Operation):
    """Change nothing; the transaction is refused if the version differs."""

    kind: ClassVar[str] = "check"


AnyOperation = Set | Merge | Delete | Check | Increment | AppendItem | Patch


class FencingCondition(Message):
    """A claim that a write relies on; `version` is that of the grant. `receipt`: salted hash of the receipt that
    identifies a holder without a session."""

    resource: Resource
    version: int = Field(ge=1)
    receipt: str | None = None


class Transact(Command):
    """Apply all operations or none, in order; each sees the effects of earlier ones.

    Refused unless the writer now holds every claim of `guard` in the given version. `numbered`: refusals name the index
    of their operation, because the caller gave a list. `computed`: a function of the caller computed the value of its
    only operation, so a repeated request may have another value."""

    kind: ClassVar[str] = "transact"
    operations: tuple[AnyOperation, ...]
    by: AllowedAgent
    guard: tuple[FencingCondition, ...] = Field(default=(), max_length=MAX_GUARDS)
    numbered: bool = False
    computed: bool = False

    @property
    def request_digest(self) -> str | None:
        """Identifies a repeated request without parsing its values, while other writers wait; None: few and small."""
        if self.computed:
            address = self.operations[0].namespace, self.operations[0].key
            return hashlib.sha256(to_json(["computed", self.by, *address])).hexdigest()
        if not self.numbered and not isinstance(self.operations[0], Increment | AppendItem | Patch):
            return None  # as release 0.1 identified it: a request may be repeated across an upgrade
        operations = [[it.kind, *map(_text, _arguments(it).values())] for it in self.operations]
        guard = [[claim.resource, claim.version] for claim in self.guard]
        return hashlib.sha256(to_json([self.by, guard, operations])).hexdigest()


class ClearNamespace(Command):
    """Delete every live record of the namespace, whatever its version."""

    kind: ClassVar[str] = "clear_namespace"
    namespace: Name
    by: AllowedAgent


class Written(NamedTuple):
    """What an operation did. `previous_version`: None if there was no value before. `value`: the JSON text that an
    update computed."""

    namespace: str
    key: str
    version: int
    previous_version: int | None
    value: str | None = None


# --- state


class Record(NamedTuple):
    """`version` continues across deletions: 0 = never written. `live` = there is a value, which may be due to expire.

    Times: microseconds UTC. `expires_at`: when the value expires, or expired if it did; None = it does not.
    `principal`: who was authenticated when `updated_by` wrote or deleted the value; None = the local user."""

    namespace: str
    key: str
    version: int = 0
    live: bool = False
    value: Json = NULL
    updated_by: str = ""
    updated_at: int = 0
    expires_at: int | None = None
    principal: str | None = None

    @property
    def stream(self) -> str:
        return record_stream(self.namespace, self.key)


# --- decide, evolve


def decide(operation: Operation, by: str, record: Record, at: int, work: Work | None = None) -> list[RecordEvent]:
    """Decide what the operation does at a time (microseconds UTC); the expiry of a value that was due comes first.
    `work`: what the updates of its transaction may still cost.

    Raises NotFoundError, then ConflictError, then InapplicableError, TooLargeError or TooMuchWorkError; each means that
    nothing happens.
    """
    ended = end_of(record, at)
    current = record if ended is None else evolve(record, ended, at)
    if isinstance(operation, Delete | Patch) and not current.live:
        raise not_found(current)
    if operation.expected_version is not None:
        _require_version(operation.expected_version, current)
    match operation:
        case Set(value=value, ttl_seconds=ttl):
            written = ValueWritten(value=value, by=by, expires_at=None if ttl is None else _after(ttl, at))
            return [written] if ended is None else [ended, written]
        case Merge() | Increment() | AppendItem() | Patch():
            computed = _computed(operation, current, work or Work())
            if computed is None:
                return []
            updated = ValueWritten(value=computed, by=by, expires_at=_kept_end(operation, current, at))
            return [updated] if ended is None else [ended, updated]
        case Delete():
            return [ValueDeleted(by=by)]
        case _:
            return []


def evolve(record: Record, event: RecordEvent, at: int, principal: str | None = None) -> Record:
    """`at` and `principal` come from the event's envelope."""
    namespace, key, version = record.namespace, record.key, record.version + 1
    match event:
        case ValueWritten(value=value, by=by, expires_at=expires_at):
            return Record(namespace, key, version, True, value, by, at, expires_at, principal)
        case ValueDeleted(by=by):
            return Record(namespace, key, version, False, NULL, by, at, None, principal)
        case ValueExpired(due=due, by=by):
            return Record(namespace, key, version, False, NULL, by, due, due, record.principal)


def state_after(namespace: str, key: str, recorded: Recorded[Event]) -> Record:
    """The record after one of its events, which alone determines it."""
    envelope, event = recorded.envelope, recorded.event
    assert isinstance(event, RecordEvent)
    principal = event.principal if isinstance(event, ValueExpired) else None
    before = Record(namespace, key, envelope.version - 1, principal=principal)
    return evolve(before, event, envelope.at, envelope.caller.principal)


# --- rules


def end_of(record: Record, at: int) -> ValueExpired | None:
    """The expiry of the value, if it is due at a time and not recorded yet."""
    if not record.live or record.expires_at is None or record.expires_at > at:
        return None
    return ValueExpired(due=record.expires_at, by=record.updated_by, principal=record.principal)


def seen(record: Record, at: int) -> Record:
    """The record as every caller sees it at a time: a value that is due has expired, whether recorded or not."""
    ended = end_of(record, at)
    return record if ended is None else evolve(record, ended, at)


def not_found(record: Record) -> NotFoundError:
    """The refusal for a record without a value."""
    return NotFoundError.of_record(
        record.namespace,
        record.key,
        record.version,
        record.updated_by,
        record.updated_at,
        record.expires_at,
        record.principal,
    )


def _arguments(operation: Operation) -> dict[str, Any]:
    """The fields that the caller passed: `max_bytes` is a setting."""
    return {name: field for name, field in vars(operation).items() if name != "max_bytes"}


def _text(field: Any) -> Any:
    return field.text if isinstance(field, Json) else field


def _after(ttl: float, at: int) -> int:
    return at + round(ttl * 1_000_000)


def _computed(operation: Update, record: Record, work: Work) -> Json | None:
    """The value that the operation computes; None if it changes nothing."""
    if record.value is REDACTED:
        raise InapplicableError(NOT_UPDATED)
    match operation:
        case Merge(patch=change, max_bytes=most):
            return merge(record.value, change, most, work)
        case Increment(by=number):
            return increment(record.value if record.live else Json("0"), number, work)
        case AppendItem(value=item, unique=unique, max_bytes=most):
            return append(record.value if record.live else Json("[]"), item, unique, most, work)
        case Patch(patch=steps, max_bytes=most):
            from holdlog.domain.json_patch import patch

            return patch(record.value, steps, most, work)


def _kept_end(operation: Update, record: Record, at: int) -> int | None:
    if record.live and not (isinstance(operation, Merge) and not operation.keeps_end):
        return record.expires_at
    ttl = operation.ttl_seconds if isinstance(operation, Merge) else None
    return None if ttl is None else _after(ttl, at)


def _require_version(expected: int, record: Record) -> None:
    actual = record.version if record.live else 0
    if expected == actual:
        return
    raise ConflictError(
        ConflictDetail(
            namespace=record.namespace,
            key=record.key,
            expected_version=expected,
            actual_version=actual,
            actual_value=record.value.value,
            actual_updated_by=record.updated_by or None,
            actual_updated_at=utc(record.updated_at) if record.version else None,
            actual_principal=record.principal,
            redacted=True if record.value is REDACTED else None,
        )
    )
