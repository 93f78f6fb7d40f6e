"""Converts outcomes, states and refusals to responses: the only place that knows both, and the only place with hints.
A hint is fixed text. It writes calls as `wait()`, so that a surface can replace them with its names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.values import responses as results
from holdlog.domain.commands import Outcome, RecordsChanged
from holdlog.domain.envelope import CheckedClaim, Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.record import Record, RecordEvent, ValueDeleted, ValueExpired, ValueWritten, Written, not_found
from holdlog.domain.times import utc
from holdlog.domain.value import REDACTED, Json


def set_result(outcome: Outcome) -> results.SetResult:
    assert isinstance(outcome, RecordsChanged)
    (written,) = outcome.results
    return results.SetResult(
        namespace=written.namespace,
        key=written.key,
        version=written.version,
        previous_version=written.previous_version,
        position=outcome.position,
    )


def update_result(outcome: Outcome) -> results.UpdateResult:
    assert isinstance(outcome, RecordsChanged)
    (written,) = outcome.results
    assert written.value is not None
    return results.UpdateResult(**set_result(outcome).__dict__, **_computed(written.value))


def transaction_result(outcome: Outcome) -> results.TransactionResult:
    assert isinstance(outcome, RecordsChanged)
    return results.TransactionResult(results=list(map(_part, outcome.results)), position=outcome.position)


def _part(written: Written) -> results.TransactionPart:
    computed = {} if written.value is None else _computed(written.value)
    return results.TransactionPart(namespace=written.namespace, key=written.key, version=written.version, **computed)


def _computed(text: str) -> dict[str, Any]:
    return {"value": Json(text).value} if text else {"value": None, "redacted": True}


def delete_result(outcome: Outcome, by: str) -> results.DeleteResult:
    assert isinstance(outcome, RecordsChanged)
    (written,) = outcome.results
    assert written.previous_version is not None
    return results.DeleteResult(
        namespace=written.namespace,
        key=written.key,
        deleted_by=by,
        deleted_version=written.previous_version,
        version=written.version,
        position=outcome.position,
        hint=_DELETED,
    )


def clear_result(outcome: Outcome, namespace: str, by: str) -> results.ClearResult:
    assert isinstance(outcome, RecordsChanged)
    keys = sorted(written.key for written in outcome.results)
    return results.ClearResult(
        namespace=namespace, deleted_count=len(keys), deleted_keys=keys, deleted_by=by, position=outcome.position
    )


def state_record(record: Record, now: int) -> results.StateRecord:
    """Convert a record to a response. Raises NotFoundError if there is no value now."""
    if not record.live:
        raise not_found(record)
    ends = record.expires_at
    return results.StateRecord(
        namespace=record.namespace,
        key=record.key,
        value=record.value.value,
        redacted=True if record.value is REDACTED else None,
        version=record.version,
        updated_by=record.updated_by,
        principal=record.principal,
        updated_at=utc(record.updated_at),
        expires_at=None if ends is None else utc(ends),
        expires_in_seconds=None if ends is None else seconds_between(now, ends),
    )


def listed(record: Record) -> results.ListedRecord:
    return results.ListedRecord(
        key=record.key,
        value=record.value.value,
        redacted=True if record.value is REDACTED else None,
        version=record.version,
        updated_by=record.updated_by,
        principal=record.principal,
        updated_at=utc(record.updated_at),
    )


def past(
    recorded: Recorded[Event], shown: Callable[[str], str] | None = None, sees: Callable[[str], bool] | None = None
) -> results.Past:
    """Convert an entry of a history. `shown`: spells resources; `sees`: which streams the response may name."""
    event, envelope = recorded.event, recorded.envelope
    assert isinstance(event, RecordEvent)
    return results.Past(
        version=envelope.version,
        value=event.value.value if isinstance(event, ValueWritten) else None,
        redacted=recorded.redacted or None,
        updated_by=event.by,
        principal=principal_of(recorded),
        updated_at=utc(event.due if isinstance(event, ValueExpired) else envelope.at),
        event_type=EVENT_TYPES[type(event)],
        position=envelope.position,
        reason=envelope.caller.reason,
        operation=envelope.operation,
        based_on=envelope.based_on,
        forced=envelope.is_forced or None,
        guard=conditions(envelope.guard, shown, sees) if envelope.guard else None,
    )


def conditions(
    guard: Sequence[CheckedClaim], shown: Callable[[str], str] | None, sees: Callable[[str], bool] | None
) -> list[results.FencingConditionView] | None:
    """The claims that a write relied on, without those that the caller may not see; None if there are none."""
    found = [
        results.FencingConditionView(
            resource=it.resource if shown is None else shown(it.resource),
            version=it.version,
            former_session=it.former_session,
        )
        for it in guard
        if sees is None or sees(claim_stream(it.resource))
    ]
    return found or None


def exported(
    record: Record,
    history: list[Recorded[Event]],
    shown: Callable[[str], str] | None = None,
    sees: Callable[[str], bool] | None = None,
) -> results.ExportedRecord:
    """Convert the page of an export. `shown`, `sees`: as for `past`."""
    entries = [past(recorded, shown, sees) for recorded in history]
    return results.ExportedRecord(**listed(record).__dict__, history=entries)


def watched(record: Record, now: int) -> results.StateRecord | results.Deleted:
    if record.live:
        return state_record(record, now)
    return results.Deleted(
        namespace=record.namespace,
        key=record.key,
        version=record.version,
        deleted_by=record.updated_by,
        principal=record.principal,
        deleted_at=utc(record.updated_at),
        expires_at=None if record.expires_at is None else utc(record.expires_at),
    )


def watch_timeout(record: Record, since: int, elapsed: float, cap: float | None) -> results.WatchTimeout:
    return results.WatchTimeout(
        namespace=record.namespace,
        key=record.key,
        since_version=since,
        elapsed_seconds=round(elapsed, 3),
        capped_at_seconds=cap,
        hint=_UNCHANGED.format(since),
    )


def named(text: str, prefix: str) -> str:
    """Replace calls such as `wait()` in a text with the names that a surface gives them."""
    return re.sub(r"\b([a-z_]+)\(\)", lambda call: f"{prefix}{call[1]}", text)


def seconds_between(earlier: int, later: int) -> float:
    """Seconds between two times in microseconds; 0 if the clock was set back in between."""
    return max(0, later - earlier) / 1_000_000


def hint_length(hint: str) -> int:
    """Characters of a hint with the default tool prefix."""
    return len(named(hint, "holdlog_"))


EVENT_TYPES: Final[Mapping[type[Event], Literal["write", "delete", "expire"]]] = {
    ValueWritten: "write",
    ValueDeleted: "delete",
    ValueExpired: "expire",
}
_DELETED: Final = "The history keeps the deleted value. If it must not stay there, ask a person to run holdlog redact."
MAX_HINT: Final = 200
"""Characters of a hint with the default tool prefix."""
_UNCHANGED = "The key did not change before the timeout. To keep waiting, call watch() again with since_version={}."
