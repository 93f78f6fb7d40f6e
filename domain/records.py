"""Values: versioned JSON under a namespace and a key."""

import json
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from holdlog.domain.claims.fencing import list_resources, require_guard
from holdlog.domain.moment import Moment
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
from holdlog.domain.state import Decision, Reads, Record, State
from holdlog.domain.values import MAX_WORK, Json, append, increment, merge, require_size

# --- events


class ValueWritten(NamedTuple):
    """`based_on` is the version that the writer named, 0 if there was no value. `forced` means that it replaced a
    value without naming a version. `expires_at` is in microseconds since 1970."""

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
    """Recorded by the first write after `expires_at`. Its author is that of the value."""

    stream: str
    expires_at: int


# --- deciders


def declare_key(command: Any) -> Reads:
    streams = (value_stream(command.namespace, command.key),)
    return Reads(streams, resources=list_resources(command)) if command.guard else Reads(streams)


def declare_value(command: Any) -> Reads:
    values = (value_stream(command.namespace, command.key),)
    return Reads(values=values, resources=list_resources(command))


def declare_steps(command: Any) -> Reads:
    streams = [(value_stream(step.namespace, step.key), step.op in COMPUTED) for step in command.operations]
    return Reads(
        tuple(stream for stream, is_computed in streams if not is_computed),
        tuple(stream for stream, is_computed in streams if is_computed),
        resources=list_resources(command),
    )


def declare_namespace(command: Any) -> Reads:
    return Reads(prefixes=(namespace_prefix(command.namespace),))


def write(command: Any, state: State, moment: Moment) -> Decision:
    """Write a value. Raises FencedError, ConflictError, InvalidError."""
    events, record = decide_one(command, command.updated_by, state, moment)
    previous = record.version if record.exists else None
    position = moment.position + len(events)
    return events, SetResult(command.namespace, command.key, record.version + 1, previous, position)


def update(command: Any, state: State, moment: Moment) -> Decision:
    """Compute a value from the current one. Raises FencedError, ConflictError, InapplicableError, InvalidError."""
    events, record = decide_one(command, command.updated_by, state, moment)
    value = events[-1].value if events else record.value
    assert value is not None
    version = record.version + bool(events)
    previous = record.version if record.exists else None
    position = moment.position + len(events) if events else record.position
    result = UpdateResult(command.namespace, command.key, json.loads(value), version, previous, position)
    return events, result


def delete(command: Any, state: State, moment: Moment) -> Decision:
    """Delete a value. Raises FencedError, NotFoundError, ConflictError."""
    events, record = decide_one(command, command.deleted_by, state, moment)
    version = record.version
    position = moment.position + len(events)
    result = DeleteResult(command.namespace, command.key, command.deleted_by, version, version + 1, position)
    return events, result


def clear(command: Any, state: State, moment: Moment) -> Decision:
    """Delete all values of a namespace."""
    prefix = namespace_prefix(command.namespace)
    records = [record for stream, record in state.records.items() if stream.startswith(prefix) and record.exists]
    live = sorted(record.stream for record in records if not is_expired(record, moment.at))
    events: list[Any] = [ValueDeleted(stream, command.deleted_by, command.reason) for stream in live]
    keys = [split_stream(stream)[1] for stream in live]
    position = moment.position + len(events)
    return events, ClearResult(command.namespace, len(keys), keys, command.deleted_by, position)


def transact(command: Any, state: State, moment: Moment) -> Decision:
    """Run operations one after the other, all or none. Raises what each of them raises, with its index."""
    cause = (command.updated_by, command.reason, require_guard(command, command.updated_by, state, moment))
    events: list[Any] = []
    results: list[Step] = []
    records: dict[str, Record] = {}
    work = 0
    for index, step in enumerate(command.operations):
        try:
            record, expiry = load_current(state, step, moment, records)
            if step.op in COMPUTED:
                work += len(record.value or "") + len(step.value)
                if work > MAX_WORK:
                    raise InvalidError("this takes too much work in the store; split the transaction")
            changes = change(step, record, expiry, cause, moment)
        except HoldlogError as refusal:
            refusal.operation = index
            if isinstance(refusal, ConflictError):
                refusal.detail = refusal.detail._replace(operation=index)
                if not refusal.position and record.value is not None:  # an earlier operation wrote it
                    value = json.loads(record.value)
                    refusal.detail = refusal.detail._replace(actual_value=value, actual_updated_by=command.updated_by)
            raise
        if changes:
            record = records[record.stream] = evolve(record, changes[-1], 0)
            events += changes
        value = json.loads(record.value) if step.op in COMPUTED and record.value else None
        results.append(Step(step.namespace, step.key, record.version, value))
    return events, TransactionResult(results, moment.position + len(events))


def evolve(record: Record, event: Any, position: int) -> Record:
    """The record after the event, which the log has at `position`. Streams of threads and tokens have records, too: a
    valid token exists."""
    if isinstance(event, ValueWritten):
        return Record(record.stream, record.version + 1, position, True, event.expires_at, event.value)
    if type(event).__name__ == "TokenCreated":
        return Record(record.stream, record.version + 1, position, True, event.expires_at)
    return Record(record.stream, record.version + 1, position)


# --- rules

COMPUTED: Final = frozenset({"merge", "increment", "append"})
"""Operations that need the current value."""


Cause = tuple[str, str | None, list[dict[str, Any]] | None]
"""Who changes values, why, and relying on which claims."""


def decide_one(command: Any, by: str, state: State, moment: Moment) -> tuple[list[Any], Record]:
    """The events of a command on one value, and the record before them."""
    record, expiry = load_current(state, command, moment)
    if command.op == "delete":
        require_existing(command, record, expiry)
    cause = (by, command.reason, require_guard(command, by, state, moment))
    return change(command, record, expiry, cause, moment), record


def load_current(
    state: State, command: Any, moment: Moment, changed: dict[str, Record] | None = None
) -> tuple[Record, list[Any]]:
    """A record as a write finds it, and the event that records its expiry, if it had expired unrecorded."""
    stream = value_stream(command.namespace, command.key)
    record = changed[stream] if changed and stream in changed else state.records[stream]
    if record.expires_at is None or not is_expired(record, moment.at):
        return record, []
    return evolve(record, expired := ValueExpired(stream, record.expires_at), record.position), [expired]


def change(step: Any, record: Record, expiry: list[Any], cause: Cause, moment: Moment) -> list[Any]:
    """The events of one operation on one value; none if it changes nothing."""
    by, reason, guard = cause
    op, expected = step.op, step.expected_version
    expired_at = utc(expiry[0].expires_at) if expiry else None
    if op == "delete":
        require_existing(step, record, expiry)
    if expected is not None:
        require_version(step, record, expired_at)
    if op == "check" or (op == "discard" and not record.exists):
        return []
    if op in ("delete", "discard"):
        return [*expiry, ValueDeleted(record.stream, by, reason, expected, guard)]
    if op == "set":
        value, expires_at = step.value, moment.after(step.ttl_seconds) if step.ttl_seconds else None
    else:
        value, expires_at = compute(step, record), record.expires_at
    if value is record.value and record.exists:
        return []
    if len(value) * 4 > moment.max_value_bytes:
        require_size(value, moment.max_value_bytes)
    forced = record.exists and expected is None and op not in COMPUTED
    return [*expiry, ValueWritten(record.stream, by, value, reason, expires_at, expected, forced, guard)]


def require_existing(step: Any, record: Record, expiry: list[Any]) -> None:
    """Raises NotFoundError."""
    if not record.exists:
        expired_at = utc(expiry[0].expires_at) if expiry else None
        detail = NotFound(step.namespace, step.key, record.version or None, deleted_at=expired_at)
        raise NotFoundError(detail, record.position)


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


def require_version(step: Any, record: Record, expired_at: datetime | None) -> None:
    """`expired_at` is when the value expired, if no event says so. Raises ConflictError."""
    actual = record.version if record.exists else 0
    if step.expected_version != actual:
        conflict = Conflict(step.namespace, step.key, step.expected_version, actual, None, None, expired_at)
        raise ConflictError(conflict, record.position)


def is_expired(record: Record, at: int) -> bool:
    """Whether a value has expired, recorded or not."""
    return record.expires_at is not None and record.expires_at <= at


EVENT_TYPES: Final[dict[str, Literal["write", "delete", "expire"]]] = {
    "ValueWritten": "write",
    "ValueDeleted": "delete",
    "ValueExpired": "expire",
}
