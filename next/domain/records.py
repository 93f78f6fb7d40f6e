"""Values: versioned JSON under a namespace and a key."""

import json
from typing import Any, Final, Literal, NamedTuple

from holdlog.domain.claims.fencing import require_guard
from holdlog.domain.names import namespace_prefix, split_stream, value_stream
from holdlog.domain.refusals import ConflictError, HoldlogError, InvalidError, NotFoundError
from holdlog.domain.results import (
    ClearResult,
    Conflict,
    DeleteResult,
    NotFound,
    SetResult,
    Step,
    TransactionResult,
    UpdateResult,
    utc,
)
from holdlog.domain.state import Decision, Moment, Reads, Record, State
from holdlog.domain.values import MAX_WORK, Json, append, increment, merge, require_size

# --- events


class ValueWritten(NamedTuple):
    """`based_on`: the version that the writer named, 0 if there was none; `forced`: it replaced a value without
    naming a version. `expires_at`: microseconds since 1970."""

    stream: str
    by: str
    value: Json
    reason: str | None = None
    expires_at: int | None = None
    based_on: int | None = None
    forced: bool = False
    guard: list[dict[str, Any]] | None = None


class ValueDeleted(NamedTuple):
    stream: str
    by: str
    reason: str | None = None
    based_on: int | None = None
    guard: list[dict[str, Any]] | None = None


class ValueExpired(NamedTuple):
    """Recorded by the first write after `expires_at`. `by`: who had written the value, if that was known."""

    stream: str
    by: str | None
    expires_at: int


ValueEvent = ValueWritten | ValueDeleted | ValueExpired


# --- deciders


def read_key(command: Any) -> Reads:
    return Reads((value_stream(command.namespace, command.key),))


def read_value(command: Any) -> Reads:
    return Reads(values=(value_stream(command.namespace, command.key),))


def read_steps(command: Any) -> Reads:
    streams = [(value_stream(step.namespace, step.key), step.op in COMPUTED) for step in command.operations]
    return Reads(tuple(it for it, needs in streams if not needs), tuple(it for it, needs in streams if needs))


def read_namespace(command: Any) -> Reads:
    return Reads(prefixes=(namespace_prefix(command.namespace),))


def write(command: Any, state: State, moment: Moment) -> Decision:
    """Write a value. Raises ConflictError, InvalidError."""
    cause = Cause(command.updated_by, command.reason, require_guard(command, state, moment) if command.guard else None)
    record, expiry = current(state, command, moment)
    events = change(command, record, expiry, cause, moment)
    previous = record.version if record.exists else None
    position = moment.position + len(events)
    result = SetResult(command.namespace, command.key, record.version + 1, previous, position)
    return events, result


def update(command: Any, state: State, moment: Moment) -> Decision:
    """Compute a value from the current one. Raises ConflictError, InapplicableError, InvalidError."""
    cause = Cause(command.updated_by, command.reason, require_guard(command, state, moment) if command.guard else None)
    record, expiry = current(state, command, moment)
    events = change(command, record, expiry, cause, moment)
    value = events[-1].value if events else record.value
    assert value is not None
    version = record.version + bool(events)
    previous = record.version if record.exists else None
    position = moment.position + len(events) if events else record.position
    result = UpdateResult(command.namespace, command.key, json.loads(value), version, previous, position)
    return events, result


def delete(command: Any, state: State, moment: Moment) -> Decision:
    """Delete a value. Raises NotFoundError, ConflictError."""
    cause = Cause(command.deleted_by, command.reason, require_guard(command, state, moment) if command.guard else None)
    record, expiry = current(state, command, moment)
    events = change(command, record, expiry, cause, moment)
    version = record.version
    position = moment.position + len(events)
    result = DeleteResult(command.namespace, command.key, command.deleted_by, version, version + 1, position)
    return events, result


def clear(command: Any, state: State, moment: Moment) -> Decision:
    """Delete all values of a namespace."""
    prefix = namespace_prefix(command.namespace)
    records = [it for name, it in state.records.items() if name.startswith(prefix) and it.exists]
    live = sorted(it.stream for it in records if not is_due(it, moment.at))
    events: list[Any] = [ValueDeleted(stream, command.deleted_by, command.reason) for stream in live]
    keys = [split_stream(stream)[1] for stream in live]
    position = moment.position + len(events)
    return (events, ClearResult(command.namespace, len(keys), keys, command.deleted_by, position))


def transact(command: Any, state: State, moment: Moment) -> Decision:
    """Run operations one after the other, all or none. Raises what each of them raises, with its index."""
    cause = Cause(command.updated_by, command.reason, require_guard(command, state, moment) if command.guard else None)
    events: list[Any] = []
    results: list[Step] = []
    records: dict[str, Record] = {}
    work = 0
    for index, step in enumerate(command.operations):
        try:
            record, expiry = current(state, step, moment, records)
            if step.op in COMPUTED:
                work += len(record.value or "") + len(step.value)
                if work > MAX_WORK:
                    raise InvalidError("operations: this takes too much work in the store; split it")
            changed = change(step, record, expiry, cause, moment)
        except HoldlogError as refusal:
            refusal.operation = index
            if isinstance(refusal, ConflictError):
                refusal.detail = refusal.detail._replace(operation=index)
                if not refusal.position and record.value is not None:  # an earlier operation wrote it
                    value = json.loads(record.value)
                    refusal.detail = refusal.detail._replace(actual_value=value, actual_updated_by=command.updated_by)
            raise
        for event in changed[len(expiry) :]:
            record = evolve(record, event, 0)
        records[record.stream] = record
        events += changed
        value = json.loads(record.value) if step.op in COMPUTED and record.value else None
        results.append(Step(step.namespace, step.key, record.version, value))
    return (events, TransactionResult(results, moment.position + len(events)))


def evolve(record: Record, event: ValueEvent, position: int) -> Record:
    """The record after the event, which the log has at `position`."""
    if isinstance(event, ValueWritten):
        return Record(record.stream, record.version + 1, position, True, event.expires_at, event.value)
    return Record(record.stream, record.version + 1, position)


# --- rules

COMPUTED: Final = frozenset({"merge", "increment", "append"})
"""Operations that need the current value."""


class Cause(NamedTuple):
    """Who changes values, why, and relying on which claims."""

    by: str
    reason: str | None
    guard: list[dict[str, Any]] | None


def current(
    state: State, command: Any, moment: Moment, changed: dict[str, Record] | None = None
) -> tuple[Record, list[Any]]:
    """A record as a write finds it, and the event that records its expiry, if it had expired unrecorded."""
    stream = value_stream(command.namespace, command.key)
    record = changed[stream] if changed and stream in changed else state.records[stream]
    if record.expires_at is None or not is_due(record, moment.at):
        return record, []
    expired = ValueExpired(stream, None, record.expires_at)
    return evolve(record, expired, record.position), [expired]


def change(step: Any, record: Record, expiry: list[Any], cause: Cause, moment: Moment) -> list[Any]:
    """The events of one operation on one value; none if it changes nothing."""
    if step.op == "delete" and not record.exists:
        expired_at = utc(expiry[0].expires_at) if expiry else None
        detail = NotFound(step.namespace, step.key, record.version or None, deleted_at=expired_at)
        raise NotFoundError(detail, record.position)
    if step.expected_version is not None:
        require_version(step, record)
    if step.op == "check":
        return []
    if step.op == "delete":
        return [*expiry, ValueDeleted(record.stream, cause.by, cause.reason, step.expected_version, cause.guard)]
    if step.op == "set":
        value, expires_at = step.value, moment.after(step.ttl_seconds) if step.ttl_seconds else None
    else:
        value, expires_at = compute(step, record), record.expires_at
    if value is record.value and record.exists:
        return []
    if len(value) * 4 > moment.max_value_bytes:
        require_size(value, moment.max_value_bytes)
    forced = record.exists and step.expected_version is None and step.op not in COMPUTED
    basis = (step.expected_version, forced, cause.guard)
    return [*expiry, ValueWritten(record.stream, cause.by, value, cause.reason, expires_at, *basis)]


def compute(step: Any, record: Record) -> Json:
    """The value that an update computes; the same object if it changes nothing."""
    match step.op:
        case "replace":
            value: Json = step.value
            return value
        case "merge":
            return merge(record.value or Json("null"), step.value)
        case "increment":
            return increment(record.value or Json("0"), step.value)
        case _:
            return append(record.value or Json("[]"), step.value, step.unique)


def require_version(step: Any, record: Record) -> None:
    actual = record.version if record.exists else 0
    if step.expected_version != actual:
        conflict = Conflict(step.namespace, step.key, step.expected_version, actual, None)
        raise ConflictError(conflict, record.position)


def is_due(record: Record, at: int) -> bool:
    """Whether a value has expired, recorded or not."""
    return record.expires_at is not None and record.expires_at <= at


EVENT_TYPES: Final[dict[str, Literal["write", "delete", "expire"]]] = {
    "ValueWritten": "write",
    "ValueDeleted": "delete",
    "ValueExpired": "expire",
}
