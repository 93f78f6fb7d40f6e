"""Converts outcomes, states and refusals to responses: the only place that knows both, and the only place with hints.
A hint is fixed text. It writes calls as `wait()`, so that a surface can replace them with its names.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.values import responses as results
from holdlog.adapters.api.values.responses import Result
from holdlog.domain import refusals
from holdlog.domain.commands import Outcome, RecordsChanged
from holdlog.domain.envelope import Envelope, Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.record import Record, RecordEvent, ValueDeleted, ValueExpired, ValueWritten, not_found
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.times import utc


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
    assert isinstance(event, ValueWritten | ValueDeleted | ValueExpired)
    return results.Past(
        version=envelope.version,
        value=event.value.value if isinstance(event, ValueWritten) else None,
        updated_by=event.by,
        principal=principal_of(recorded),
        updated_at=utc(event.due if isinstance(event, ValueExpired) else envelope.at),
        event_type=_EVENT_TYPES[type(event)],
        position=envelope.position,
        reason=envelope.caller.reason,
        operation=envelope.operation,
        based_on=envelope.based_on,
        forced=envelope.forced or None,
        guard=conditions(envelope, shown, sees),
    )


def conditions(
    envelope: Envelope, shown: Callable[[str], str] | None, sees: Callable[[str], bool] | None
) -> list[results.FencingConditionView] | None:
    """The claims that a write relied on, without those that the caller may not see; None if there are none."""
    found = [
        results.FencingConditionView(
            resource=it.resource if shown is None else shown(it.resource),
            version=it.version,
            former_session=it.former_session,
        )
        for it in envelope.guard or ()
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


def refused(refusal: HoldlogError) -> Result:
    """Convert a refusal to a response. Raises the refusal again if it is not an expected outcome."""
    match refusal:
        case refusals.ConflictError(detail=detail):
            return results.Conflict(**detail.model_dump(), hint=_conflict_hint(refusal))
        case refusals.NotFoundError(facts=facts):
            return results.NotFound(**facts, hint=_NO_VALUE)
        case refusals.FencedError():
            return results.Fenced(
                resource=refusal.resource,
                version=refusal.version,
                current_version=refusal.current_version,
                held_by=refusal.held_by,
                held_by_principal=refusal.held_by_principal,
                reason=refusal.reason,
                hint=_fenced_hint(refusal),
            )
        case refusals.UnavailableError():
            return results.Unavailable(
                message=str(refusal),
                retry_after=refusal.retry_after,
                in_doubt=refusal.in_doubt,
                hint=_UNAVAILABLE_IN_DOUBT if refusal.in_doubt else _UNAVAILABLE,
            )
        case _:
            raise refusal


def hint_length(hint: str) -> int:
    """Characters of a hint with the default tool prefix."""
    return len(named(hint, "holdlog_"))


def _fenced_hint(refusal: refusals.FencedError) -> str:
    if refusal.needs_receipt:
        return _RECEIPT
    if refusal.is_own:
        return _OTHER_VERSION.format(refusal.current_version)
    if refusal.ended is not None:
        return _ENDED[refusal.ended]
    return _OTHER_SESSION if refusal.servers else _NOT_YOURS


def _conflict_hint(refusal: refusals.ConflictError) -> str:
    detail = refusal.detail
    if detail.actual_version == 0:
        return _NEVER_WRITTEN if detail.actual_updated_by is None else _GONE
    if refusal.deletes:
        hint = _DELETE_CONFLICT_OWN if refusal.is_own else _DELETE_CONFLICT
    else:
        hint = _CONFLICT_OWN if refusal.is_own else _CONFLICT
    return hint.format(detail.actual_version)


_EVENT_TYPES: Final[Mapping[type[RecordEvent], Literal["write", "delete", "expire"]]] = {
    ValueWritten: "write",
    ValueDeleted: "delete",
    ValueExpired: "expire",
}
MAX_HINT: Final = 200
"""Characters of a hint with the default tool prefix."""
_UNCHANGED = "The key did not change before the timeout. To keep waiting, call watch() again with since_version={}."
_NO_VALUE = "There is no value under this key now. Call list() with this namespace to see its keys."
_CONFLICT = (
    "Another agent wrote version {0}. Merge your change into actual_value and call set() again with"
    " expected_version={0}."
)
_CONFLICT_OWN = (
    "An agent with your name wrote version {0}. If actual_value contains your change, you are done; otherwise merge it"
    " and call set() again with expected_version={0}."
)
_DELETE_CONFLICT = (
    "Nothing changed: another agent wrote version {0}. Read actual_value; if your call still applies, repeat it with"
    " expected_version={0}."
)
_DELETE_CONFLICT_OWN = (
    "Nothing changed: an agent with your name wrote version {0}. Read actual_value; if your call still applies, repeat"
    " it with expected_version={0}."
)
_GONE = (
    "The key has no value now, which counts as version 0. Call history() to see what happened to it, then decide"
    " whether your change still applies."
)
_NEVER_WRITTEN = (
    "The key was never written, which counts as version 0. Check its spelling: call list() with this namespace to see"
    " its keys."
)
_NOT_YOURS = (
    "Nothing was written: you do not hold this claim, and a claim of your parent agent does not count. Call claim() for"
    " it, read again, then write with its new version in guard."
)
_OTHER_VERSION = "Nothing was written: your claim has version {0}. Repeat the call with version={0} in guard."
_OTHER_SESSION = (
    "Nothing was written: another session with your name holds this claim. Choose a name of your own, such as"
    " claude-7f3a, call claim() under that name, then read again."
)
_RECEIPT = (
    "Nothing was written: this is claimed under your agent name, without a session. If that was you, add the receipt"
    " you were given to this guard entry and repeat the call."
)
_ENDED: Final[Mapping[str, str]] = {
    "released": "Nothing was written: you released this claim. Call claim() again, then read again before you write.",
    "expired": "Nothing was written: your claim expired. Call claim() again, then read again before you write.",
    "forced": "Nothing was written: a person ended your claim; see reason. If you still need it, call claim()"
    " again, then read again before you write.",
}
_UNAVAILABLE = (
    "Nothing was written. Repeat the same call after retry_after seconds; if it keeps failing, report it to the person"
    " you work for."
)
_UNAVAILABLE_IN_DOUBT = (
    "The write may or may not have happened. Read the current state, and repeat the call only if your change is"
    " missing."
)
