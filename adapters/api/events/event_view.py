"""The view of an event on all surfaces."""

from collections.abc import Callable
from typing import Any, Final

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.events.event_filter import done_by, names_in
from holdlog.adapters.api.values.presenter import conditions
from holdlog.adapters.api.values.responses import EventView
from holdlog.domain.envelope import Envelope, Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream, mixed_scripts, thread_stream
from holdlog.domain.times import utc
from holdlog.domain.value import Json

_TIMES: Final = ("expires_at", "due", "overlap_until")
_OTHERS: Final = ("also", "alternatives")
_ONE_OTHER: Final[dict[str, Callable[[str], str]]] = {"moved_to": claim_stream, "parent": thread_stream}
"""Fields that name one other stream, and how to get its name."""
_KEYS: Final = ("written", "deleted")
"""Keys of a thread's data."""
_CALLER: Final = ("request_id", "correlation_id", "reason")
"""Fields of the caller that a view shows. Not the session: a caller that knew it could act as that session."""


def event_view(
    recorded: Recorded[Event], shown: Callable[[str], str] | None = None, sees: Callable[[str], bool] | None = None
) -> EventView:
    """Convert an event of the log to a view. `shown`: spells resources. `sees`: which streams the view may name; the
    names of others are left out."""
    envelope, event, payload = recorded.envelope, recorded.event, recorded.event.payload_field
    fields: dict[str, Any] = {**names_in(envelope.stream)}
    fields |= event.model_dump(
        mode="json", exclude={"by", "principal", payload or "by", *event.private_fields}, exclude_none=True
    )
    for name in _TIMES:
        if name in fields:
            fields[name] = utc(fields[name]).isoformat(timespec="microseconds")
    _hide(fields, sees)
    if shown is not None:
        _respell(fields, shown)
    if recorded.redacted:
        fields |= {"redacted": True, str(payload): None}
    elif payload is not None and (content := getattr(event, payload)) is not None:
        fields[payload] = content.value if isinstance(content, Json) else content
    if (principal := principal_of(recorded)) is not None:
        fields["principal"] = principal
    for name in _CALLER:
        if (fact := getattr(envelope.caller, name)) is not None:
            fields[name] = fact
    fields |= relied_on(envelope, shown, sees)
    by = done_by(recorded)
    if any(map(mixed_scripts, (by, *(fields[name] for name in ("agent", "resource", "moved_to") if name in fields)))):
        fields["mixed_scripts"] = True
    return EventView(
        **fields,
        position=envelope.position,
        id=f"{envelope.stream}@{envelope.version}",
        stream=envelope.stream,
        version=envelope.version,
        kind=envelope.topic,
        at=utc(envelope.at),
        by=by,
    )


def relied_on(
    envelope: Envelope, shown: Callable[[str], str] | None, sees: Callable[[str], bool] | None
) -> dict[str, Any]:
    """What a write relied on, as JSON, without fields that were not recorded or do not apply."""
    guard = conditions(envelope.guard or (), shown, sees)
    fields = {
        "operation": envelope.operation,
        "based_on": envelope.based_on,
        "forced": envelope.forced or None,
        "guard": None if guard is None else [it.model_dump() for it in guard],
    }
    return {name: field for name, field in fields.items() if field is not None}


def names_others(recorded: Recorded[Event]) -> bool:
    """Whether the event names resources or threads other than that of its stream."""
    return bool(recorded.envelope.guard) or any(getattr(recorded.event, name, None) for name in (*_OTHERS, *_ONE_OTHER))


def _hide(fields: dict[str, Any], sees: Callable[[str], bool] | None) -> None:
    for name in _OTHERS:
        fields[name] = [it for it in fields.get(name, ()) if sees is None or sees(claim_stream(it))]
    for name in (*_OTHERS, *_KEYS):
        if not fields.get(name):
            fields.pop(name, None)
    for name, stream_of in _ONE_OTHER.items():
        if name in fields and sees is not None and not sees(stream_of(fields[name])):
            del fields[name]
    if "parent" not in fields:
        fields.pop("parent_version", None)


def _respell(fields: dict[str, Any], shown: Callable[[str], str]) -> None:
    for name in ("resource", "moved_to"):
        if name in fields:
            fields[name] = shown(fields[name])
    for name in _OTHERS:
        if name in fields:
            fields[name] = [shown(it) for it in fields[name]]
