"""Turns refusals into responses: the one place that does. Hints are fixed text, as in values/presenter.py."""

from collections.abc import Mapping
from typing import Any, Final

from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.claims.presenter import Moment, busy
from holdlog.adapters.api.threads import responses as threads
from holdlog.adapters.api.values import responses as values
from holdlog.adapters.api.values.responses import Result
from holdlog.domain import refusals
from holdlog.domain.refusals import HoldlogError


def response_to(refusal: HoldlogError, moment: Moment) -> Result:
    """The response to a refusal; `Failed` or `Denied` unless it is an expected outcome of a call."""
    match refusal:
        case refusals.ConflictError(detail=detail):
            return values.Conflict(**detail.model_dump(), operation=refusal.operation, hint=_conflict_hint(refusal))
        case refusals.DataConflictError(detail=changed):
            return threads.DataConflict(**changed.model_dump(), hint=_DATA_CONFLICT)
        case refusals.NotFoundError(facts=facts):
            return _not_found(facts, refusal.operation)
        case refusals.FencedError():
            return values.Fenced(
                resource=refusal.resource,
                version=refusal.version,
                current_version=refusal.current_version,
                held_by=refusal.held_by,
                held_by_principal=refusal.held_by_principal,
                reason=refusal.reason,
                hint=_fenced_hint(refusal),
            )
        case refusals.BusyError(hold=hold):
            return claims.Busy(**busy(hold, moment))
        case refusals.DeadlockError(resource=resource, cycle=cycle):
            steps = [claims.Step(**link._asdict()) for link in cycle]
            return claims.Deadlock(resource=resource, cycle=steps, hint=_DEADLOCK)
        case refusals.NotHolderError():
            return claims.NotHolder(
                resource=refusal.resource,
                held_by=refusal.held_by,
                held_by_principal=refusal.held_by_principal,
                reason=refusal.reason,
                hint=_ENDED_BY_OTHERS if refusal.reason else _NOT_HOLDER[refusal.cause],
            )
        case refusals.ExpiredError():
            own = _EXPIRED if refusal.of_this_session else _EXPIRED_ELSEWHERE
            return claims.Expired(
                resource=refusal.resource,
                held_by=refusal.held_by,
                held_by_principal=refusal.held_by_principal,
                hint=_REPLAYED if refusal.replayed else own,
            )
        case refusals.ReadOnlyError():
            return values.Unavailable(
                message=str(refusal), retry_after=refusal.retry_after, in_doubt=False, hint=_READ_ONLY
            )
        case refusals.UnavailableError():
            return values.Unavailable(
                message=str(refusal),
                retry_after=refusal.retry_after,
                in_doubt=refusal.in_doubt,
                hint=_UNAVAILABLE_IN_DOUBT if refusal.in_doubt else _UNAVAILABLE,
            )
        case refusals.DeniedError(needed=needed):
            return values.Denied(needed=needed, message=str(refusal))
        case _:
            return values.Failed(message=str(refusal), operation=refusal.operation)


def _not_found(facts: Mapping[str, Any], operation: int | None) -> Result:
    if "resource" in facts:
        return claims.NeverClaimed(**facts, hint=_NEVER_CLAIMED)
    if "thread_id" in facts:
        return threads.ThreadNotFound(**facts, hint=_thread_hint(facts))
    hint = _NO_VALUE_THEN if "as_of" in facts else _NO_VALUE
    return values.NotFound(**facts, operation=operation, hint=hint)


def _thread_hint(facts: Mapping[str, Any]) -> str:
    if "key" in facts:
        return _NO_KEY
    return _NO_THREAD_THEN if "as_of" in facts else _NO_THREAD


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
    if refusal.operation is not None:
        return _CONFLICT_IN_TRANSACTION.format(detail.actual_version)
    if refusal.repeatable:
        hint = _REPEATABLE_CONFLICT_OWN if refusal.is_own else _REPEATABLE_CONFLICT
    else:
        hint = _CONFLICT_OWN if refusal.is_own else _CONFLICT
    return hint.format(detail.actual_version)


_NO_VALUE = "There is no value under this key now. Call list() with this namespace to see its keys."
_NO_VALUE_THEN = (
    "There was no value under this key at that moment. Call history(), then repeat this with a position from it."
)
_CONFLICT = (
    "Another agent wrote version {0}. Merge your change into actual_value and call set() again with"
    " expected_version={0}."
)
_CONFLICT_OWN = (
    "An agent with your name wrote version {0}. If actual_value contains your change, you are done; otherwise merge it"
    " and call set() again with expected_version={0}."
)
_CONFLICT_IN_TRANSACTION = (
    "Nothing changed: the key of this operation has version {0}. Adapt the operation to actual_value, then repeat the"
    " whole call with expected_version={0} in this operation."
)
_REPEATABLE_CONFLICT = (
    "Nothing changed: another agent wrote version {0}. Read actual_value; if your call still applies, repeat it with"
    " expected_version={0}."
)
_REPEATABLE_CONFLICT_OWN = (
    "Nothing changed: an agent with your name wrote version {0}. Read actual_value; if your call still applies, repeat"
    " it with expected_version={0}."
)
_GONE = (
    "The key has no value now, which counts as version 0. Call history() to see why; if your change still applies,"
    " repeat your call with expected_version=0."
)
_NEVER_WRITTEN = (
    "The key was never written. Call list() with this namespace to check its spelling; if it is right, repeat your call"
    " with expected_version=0."
)
_NOT_YOURS = (
    "Nothing was written: you do not hold this claim, and a claim of your parent agent does not count. Call claim() for"
    " it, read again, then repeat the call with its new version in guard."
)
_OTHER_VERSION = "Nothing was written: your claim has version {0}. Repeat the call with version={0} in guard."
_OTHER_SESSION = (
    "Nothing was written: another session with your name holds this claim. Choose a name of your own, such as"
    " claude-7f3a, call claim() under that name, then read again."
)
_RECEIPT = (
    "Nothing was written: it is claimed under your name, without a session. If that was you, repeat the call with the"
    " receipt you were given in guard. Otherwise call claim() under a name of your own."
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
_READ_ONLY = (
    "Nothing was written: this process can only read the store. Reads still work. Report the message to the person you"
    " work for."
)
_UNAVAILABLE_IN_DOUBT = (
    "The write may or may not have happened. Read the current state, and repeat the call only if your change is"
    " missing."
)
_DATA_CONFLICT: Final = (
    "The thread's data changed: see changed_keys. Call thread_get() to read it, then repeat your call with its"
    " data_version as expected_data_version."
)
_NO_THREAD: Final = "Nobody started this thread. Check its spelling, or call thread_start() with this thread_id."
_NO_THREAD_THEN: Final = (
    "There was no such thread at that moment. Call events() with this thread_id, then repeat this with a position from"
    " it."
)
_NO_KEY: Final = "The thread's data has no such key now. Call thread_get() without key to list its data."
_DEADLOCK = (
    "Waiting would never end: the agents in cycle wait for each other. Finish your work on one of your resources in"
    " cycle, call release() for it, then claim() again."
)
_NEVER_CLAIMED = (
    "Nobody has claimed this resource yet. Check its spelling: call status() with agent set to your name to list what"
    " you hold."
)
_NOT_HOLDER = {
    "agent": "Nothing was released: another agent holds it. Call status() with this resource to see its claim.",
    "session": "Nothing was released: another session with your agent name holds it, and only that session can release"
    " it. If it must be free, ask the person you work for.",
    "token": "Nothing was released: an agent with your name but another token holds it. If it must be free, ask the"
    " person you work for.",
    "receipt": "Nothing was released: it is claimed under your agent name, without a session. If that was you, call"
    " release() again with the receipt you were given.",
}
_ENDED_BY_OTHERS = (
    "A person ended your claim; see reason. Stop working on it; if you still need it, call claim() again."
)
_EXPIRED = (
    "Your claim had expired. Check whether others changed the resource, and call claim() before you edit it again."
)
_EXPIRED_ELSEWHERE = (
    "Another session with your name held it until its lease expired. Call claim() first, then check the resource"
    " before you edit: work may be half done."
)
_REPLAYED = "The claim granted to this request has ended. Call claim() again with a new request id."
