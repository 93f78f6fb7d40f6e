"""The view of an event on all surfaces."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, get_origin

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
_CALLER: Final = ("request_id", "correlation_id", "reason")
"""Fields of the caller that a view shows. Not the session: a caller that knew it could act as that session."""
_NAMES: Final = ("by", "agent", "resource", "moved_to")
"""Fields of a view whose scripts are checked."""


def event_view(
    recorded: Recorded[Event], shown: Callable[[str], str] | None = None, sees: Callable[[str], bool] | None = None
) -> EventView:
    """Convert an event of the log to a view. `shown`: spells resources. `sees`: which streams the view may name; the
    names of others are left out."""
    fields = event_fields(recorded, shown, sees)
    fields["at"] = utc(recorded.envelope.at)
    return EventView.model_validate(fields)


def event_fields(
    recorded: Recorded[Event], shown: Callable[[str], str] | None = None, sees: Callable[[str], bool] | None = None
) -> dict[str, Any]:
    """The fields of `event_view`, but not checked, and `at` in microseconds UTC: for a reader of many events that only
    formats them."""
    envelope, event, redacted = recorded
    fields: dict[str, Any] = names_in(envelope.stream)
    names, lists, times = _fields_of(type(event))
    for name in names:
        if (value := getattr(event, name)) is not None:
            fields[name] = value
    for name in lists:
        if value := getattr(event, name):
            fields[name] = list(value)
    for name in times:
        if (at := getattr(event, name)) is not None:
            fields[name] = utc(at).isoformat(timespec="microseconds")
    if sees is not None:
        _hide(fields, sees)
    if shown is not None:
        _respell(fields, shown)
    payload = event.payload_field
    if redacted:
        fields |= {"redacted": True, str(payload): None}
    elif payload is not None and (content := getattr(event, payload)) is not None:
        fields[payload] = content.value if isinstance(content, Json) else content
    if (principal := principal_of(recorded)) is not None:
        fields["principal"] = principal
    for name in _CALLER:
        if (fact := getattr(envelope.caller, name)) is not None:
            fields[name] = fact
    fields.update(relied_on(envelope, shown, sees))
    fields["by"] = done_by(recorded)
    for name in _NAMES:
        if name in fields and mixed_scripts(fields[name]):
            fields["mixed_scripts"] = True
    fields["position"] = envelope.position
    fields["id"] = f"{envelope.stream}@{envelope.version}"
    fields["stream"] = envelope.stream
    fields["version"] = envelope.version
    fields["kind"] = envelope.topic
    fields["at"] = envelope.at
    return fields


@cache
def _fields_of(kind: type[Event]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The fields of a kind of event that a view shows as they are, the lists that it shows if they have members, and
    the times."""
    hidden = {"by", "principal", kind.payload_field, *kind.private_fields}
    shown = {name: field.annotation for name, field in kind.model_fields.items() if name not in hidden}
    lists = tuple(name for name, type_ in shown.items() if get_origin(type_) is tuple)
    times = tuple(name for name in shown if name in _TIMES)
    return tuple(name for name in shown if name not in (*lists, *times)), lists, times


def relied_on(
    envelope: Envelope, shown: Callable[[str], str] | None, sees: Callable[[str], bool] | None
) -> dict[str, Any]:
    """What a write relied on, as JSON, without fields that were not recorded or do not apply."""
    fields: dict[str, Any] = {}
    if envelope.operation is not None:
        fields["operation"] = envelope.operation
    if envelope.based_on is not None:
        fields["based_on"] = envelope.based_on
    if envelope.is_forced:
        fields["forced"] = True
    if envelope.guard and (guard := conditions(envelope.guard, shown, sees)) is not None:
        fields["guard"] = [it.model_dump() for it in guard]
    return fields


def names_others(recorded: Recorded[Event]) -> bool:
    """Whether the event names resources or threads other than that of its stream."""
    return bool(recorded.envelope.guard) or any(getattr(recorded.event, name, None) for name in (*_OTHERS, *_ONE_OTHER))


def _hide(fields: dict[str, Any], sees: Callable[[str], bool]) -> None:
    for name in _OTHERS:
        if name in fields and not (seen := [it for it in fields[name] if sees(claim_stream(it))]):
            del fields[name]
        elif name in fields:
            fields[name] = seen
    for name, stream_of in _ONE_OTHER.items():
        if name in fields and not sees(stream_of(fields[name])):
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
