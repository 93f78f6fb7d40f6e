"""Converts records and events to responses about changes."""

from typing import Any, Final

from holdlog.adapters.api.changes import responses
from holdlog.adapters.api.changes.blame import Origin
from holdlog.adapters.api.changes.diff import difference, same
from holdlog.adapters.api.changes.moments import KeyState
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.values.presenter import past
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.adapters.auth.identity import is_hashed
from holdlog.domain.envelope import Envelope, Recorded
from holdlog.domain.message import Event
from holdlog.domain.revert import Reverted
from holdlog.domain.times import utc


def key_change(before: KeyState, after: KeyState) -> responses.KeyChange | None:
    """How a key differs; None if it does not."""
    old, new = before.record, after.record
    if old.version == new.version and old.live == new.live:
        return None
    was, now = old.value.value if old.live else None, new.value.value if new.live else None
    redacted = before.is_redacted or after.is_redacted
    if old.live == new.live and not redacted and same(was, now):
        return None
    caller = None if after.recorded is None else after.recorded.envelope.caller
    return responses.KeyChange(
        key=new.key,
        change="changed" if old.live and new.live else "added" if new.live else "removed",
        version_before=old.version if old.live else None,
        version_after=new.version,
        updated_by=new.updated_by,
        principal=new.principal,
        updated_at=utc(new.updated_at),
        reason=None if caller is None else caller.reason,
        correlation_id=None if caller is None else caller.correlation_id,
        redacted=redacted or None,
        paths=None if redacted else _paths(old.live, was, new.live, now),
    )


def author(recorded: Recorded[Event], rules: RequestRules, namespace: str) -> responses.Author:
    return responses.Author(**_facts(recorded, rules, namespace))


def field_author(name: str, origin: Origin, rules: RequestRules, namespace: str) -> responses.FieldAuthor:
    facts = _facts(origin.recorded, rules, namespace)
    return responses.FieldAuthor(**facts, field=name, uncertain=None if origin.is_certain else True)


def _paths(existed: bool, was: Any, exists: bool, now: Any) -> list[responses.StepView]:
    if existed and exists:
        return [responses.StepView(**step._asdict()) for step in difference(was, now)]
    if exists:
        return [responses.StepView(op="add", path="", value=now)]
    return [responses.StepView(op="remove", path="", previous=was)]


def _facts(recorded: Recorded[Event], rules: RequestRules, namespace: str) -> dict[str, Any]:
    facts = past(recorded, rules.spelled, rules.sees).__dict__
    made = {name: facts[name] for name in responses.Author.model_fields if name in facts}
    return made | {
        "session": session_of(recorded.envelope) if _administers(rules, namespace) else None,
        "correlation_id": recorded.envelope.caller.correlation_id,
        "undoes": getattr(recorded.event, "undoes", None),
        "redacted": recorded.redacted or None,
    }


def session_of(envelope: Envelope) -> str | None:
    """The session that made an event, if it is recorded as a salted hash; otherwise it acts as a credential."""
    session = envelope.caller.session
    return session if session is not None and is_hashed(session) else None


def revert_result(outcome: Reverted, rules: RequestRules, dry_run: bool = False) -> responses.RevertResult:
    shown = rules.spell
    return responses.RevertResult(
        dry_run=True if dry_run else None,
        correlation_id=None if dry_run or not outcome.undone else outcome.correlation_id,
        reverted=[
            responses.RevertedKey(
                namespace=it.namespace,
                key=it.key,
                change="deleted" if it.restored is None else "restored",
                version=None if dry_run else it.version,
                undone_versions=it.versions,
                undone_positions=it.positions,
                restored_version=it.restored,
            )
            for it in outcome.undone
        ],
        kept_as_is=[
            responses.KeptKeyView(
                namespace=it.namespace,
                key=it.key,
                version=it.version,
                reason=it.reason,
                by=it.by,
                principal=it.principal,
                resource=None if it.resource is None else shown(it.resource),
            )
            for it in outcome.kept
        ],
        position=outcome.position,
        hint=_hint(outcome, dry_run),
    )


def _hint(outcome: Reverted, dry_run: bool) -> str:
    if not outcome.undone and not outcome.kept:
        return _NOTHING_WRITTEN
    if dry_run:
        return _DRY_RUN
    return _REVERTED if outcome.undone else _NOTHING_REVERTED


def _administers(rules: RequestRules, namespace: str) -> bool:
    return rules.grants is EVERYTHING or rules.grants.allows("admin", namespace)


_REVERTED: Final = (
    "Only values were restored: files, threads and claims are as they were. To undo this, revert its correlation_id."
)
_DRY_RUN: Final = "Nothing was changed. A revert changes only values: files, threads and claims stay as they are."
_NOTHING_REVERTED: Final = "Nothing was changed: each key that the run wrote is listed with the reason."
_NOTHING_WRITTEN: Final = (
    "Nothing was changed: the run wrote no value. The blame of a key shows the session and the correlation id of its"
    " last write."
)
