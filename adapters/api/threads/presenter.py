"""Convert outcomes, threads and refusals to responses. Hints are fixed text, as in adapters/api/values/presenter.py."""

from collections.abc import Sequence
from typing import Any, Literal

from holdlog.adapters.api.threads import responses as results
from holdlog.domain import refusals
from holdlog.domain.commands import Outcome
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.threads.commands import ChangeData, ThreadChanged
from holdlog.domain.threads.thread import MessageAppended, ResultAppended, Thread
from holdlog.domain.times import utc


def started(outcome: Outcome) -> results.Started | results.Resumed:
    assert isinstance(outcome, ThreadChanged)
    kind = results.Started if outcome.created else results.Resumed
    return kind(
        thread_id=outcome.thread,
        version=outcome.version,
        data_version=outcome.data_version,
        created=outcome.created,
        messages=outcome.messages,
        results=outcome.results,
        position=outcome.position,
        parent=outcome.parent,
        parent_version=outcome.parent_version,
    )


def appended(outcome: Outcome) -> results.Appended:
    assert isinstance(outcome, ThreadChanged)
    return results.Appended(
        thread_id=outcome.thread,
        version=outcome.version,
        appended=outcome.appended,
        already=outcome.already,
        checksums=list(outcome.checksums),
        position=outcome.position,
    )


def changed(outcome: Outcome, command: ChangeData) -> results.DataChanged:
    assert isinstance(outcome, ThreadChanged)
    return results.DataChanged(
        thread_id=outcome.thread,
        data_version=outcome.data_version,
        written=list(command.written),
        deleted=list(outcome.deleted),
        position=outcome.position,
    )


def facts(thread: Thread) -> dict[str, Any]:
    fields = thread._asdict()
    return fields | {
        "thread_id": fields.pop("thread"),
        "started_at": utc(thread.started_at),
        "updated_at": utc(thread.updated_at),
    }


def item(recorded: Recorded[Event]) -> results.Item:
    envelope, event = recorded.envelope, recorded.event
    assert isinstance(event, MessageAppended | ResultAppended)
    kind: Literal["message", "result"] = "message" if isinstance(event, MessageAppended) else "result"
    content: dict[str, Any] = {"redacted": True} if recorded.redacted else {kind: event.value.value}
    principal = envelope.caller.principal
    return results.Item(
        version=envelope.version, at=utc(envelope.at), kind=kind, by=event.by, principal=principal, **content
    )


def for_model(recorded: Sequence[Recorded[Event]]) -> list[Any]:
    """Messages in the order of versions; a result becomes its output, then the results of its tools."""
    messages: list[Any] = []
    for it in recorded:
        assert isinstance(it.event, MessageAppended | ResultAppended)
        if it.redacted:
            continue
        kept = it.event.value.value
        messages += [kept] if isinstance(it.event, MessageAppended) else [*kept["output"], *kept["tool_calls"]]
    return messages


def key_missing(thread: str, key: str) -> refusals.NotFoundError:
    return refusals.NotFoundError(f"thread {thread} has no key {key} in its data", {"thread_id": thread, "key": key})
