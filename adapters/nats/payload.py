"""Events as CloudEvents 1.0 in JSON, and their parser (https://github.com/cloudevents/spec, docs/nats.md)."""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.cloud_event import TYPE_PREFIX, caller_attributes, moment, source_of
from holdlog.domain.envelope import Envelope, Recorded
from holdlog.domain.message import NOBODY, Event
from holdlog.domain.store_log import StoreLog
from holdlog.domain.threads.thread import Thread
from holdlog.domain.token import Token
from holdlog.domain.value import Json
from holdlog.projections import fold

CONTENT_TYPE: Final = "application/cloudevents+json"
BOOKMARK: Final = TYPE_PREFIX + "Bookmark"
"""The type of what a subscription yields between events, so that its reader can save its position. Not in the
stream."""

_TIMES: Final = ("expires_at", "due", "overlap_until")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class CloudEvent(NamedTuple):
    """One event of the log. `text` is all of it as JSON.

    `position` (in the log) orders all events of a store, `version` those of `subject`, the stream of one record, claim,
    thread or agent. `data`: the payload, with the names that it concerns. `redacted`: its payload was removed and is
    null; `omitted`: it was too large for NATS and is null, and lists of names may be missing; the log has all of it.
    """

    id: str
    source: str
    type: str
    time: datetime
    subject: str
    position: int
    version: int
    data: dict[str, Any]
    principal: str | None
    request_id: str | None
    correlation_id: str | None
    reason: str | None
    digest: str
    redacted: bool
    omitted: bool
    text: str

    @property
    def is_bookmark(self) -> bool:
        """Whether this is only a position to resume from, not an event."""
        return self.type == BOOKMARK


def text_within(store_id: str, recorded: Recorded[Event], most: int) -> bytes:
    """The JSON of an event in at most so many bytes of UTF-8: without its payload if it is larger, and without its
    lists, such as the written keys, if it is still larger."""
    for omit, lists in ((False, True), (True, True)):
        text = text_of(store_id, recorded, omit, lists).encode()
        if len(text) <= most:
            return text
    return text_of(store_id, recorded, omit=True, lists=False).encode()


def text_of(store_id: str, recorded: Recorded[Event], omit: bool = False, lists: bool = True) -> str:
    """The JSON of an event. `omit`: without its payload, however small; `lists`: with its fields that are lists."""
    envelope = recorded.envelope
    caller = envelope.caller
    present: dict[str, Any] = {} if caller is NOBODY else caller_attributes(caller)
    if recorded.redacted:
        present["redacted"] = True
    elif omit:
        present["omitted"] = True
    more = f",{_encode(present)[1:-1]}" if present else ""
    # The names of streams are percent-encoded and topics are plain: they need no escaping.
    return (
        f'{{"specversion":"1.0","id":"{envelope.stream}@{envelope.version}","source":"{source_of(store_id)}"'
        f',"type":"{TYPE_PREFIX}{envelope.topic}","subject":"{envelope.stream}","time":"{moment(envelope.at)}"'
        f',"position":{envelope.position},"version":{envelope.version},"digest":"{envelope.digest.hex()}"{more}'
        f',"datacontenttype":"application/json","data":{_data(recorded, omit or recorded.redacted, lists)}}}'
    )


def read(text: str) -> CloudEvent:
    """Parse an event from its JSON. Raises ValueError, KeyError or TypeError for anything else."""
    found = json.loads(text)
    return CloudEvent(
        id=found["id"],
        source=found["source"],
        type=found["type"],
        time=datetime.fromisoformat(found["time"]),
        subject=found.get("subject", ""),
        position=int(found["position"]),
        version=int(found.get("version", 0)),
        data=found.get("data") or {},
        principal=found.get("principal"),
        request_id=found.get("requestid"),
        correlation_id=found.get("correlationid"),
        reason=found.get("reason"),
        digest=found.get("digest", ""),
        redacted=found.get("redacted", False),
        omitted=found.get("omitted", False),
        text=text,
    )


def bookmark(store_id: str, position: int, at: int) -> CloudEvent:
    """A bookmark: everything up to a position was seen. `at`: microseconds UTC."""
    head = {
        "specversion": "1.0",
        "id": f"bookmark@{position}",
        "source": source_of(store_id),
        "type": BOOKMARK,
        "time": moment(at),
        "position": position,
    }
    return read(_encode(head))


def _data(recorded: Recorded[Event], omit: bool, lists: bool) -> str:
    event = recorded.event
    field = event.payload_field
    envelope = recorded.envelope
    exclude = {*event.private_fields, *([field] if field else ())} or None
    if not lists:
        exclude = {*(exclude or ()), *(name for name, value in event if isinstance(value, tuple))}
    if any(getattr(event, name, None) is not None for name in _TIMES):
        fields = event.model_dump(mode="json", exclude=exclude, exclude_none=True)
        body = _encode({name: moment(value) if name in _TIMES else value for name, value in fields.items()})
    else:
        body = event.__pydantic_serializer__.to_json(event, exclude=exclude, exclude_none=True).decode()
    parts = [_names(envelope.stream), body[1:-1]]
    parts.append(_relied_on(envelope, lists))
    if field is not None:
        value = None if omit else getattr(event, field)
        if isinstance(value, Json):
            parts.append(f'"{field}":{value.text}')  # as written, digit by digit
        elif value is not None or omit:
            parts.append(f'"{field}":{_encode(value)}')
    return f"{{{','.join(filter(None, parts))}}}"


def _relied_on(envelope: Envelope, lists: bool) -> str:
    """Members of `data` that name what a write relied on, as far as that was recorded."""
    if envelope.operation is None and envelope.based_on is None:
        return ""
    fields: dict[str, Any] = {"operation": envelope.operation, "based_on": envelope.based_on}
    fields["forced"] = envelope.is_forced or None
    if envelope.guard and lists:
        fields["guard"] = [{name: it for name, it in one._asdict().items() if it is not None} for one in envelope.guard]
    return _encode({name: it for name, it in fields.items() if it is not None})[1:-1]


@lru_cache(4096)
def _names(stream: str) -> str:
    state = fold.initial(stream)
    match state:
        case Claim(resource=resource):
            names = {"resource": resource}
        case Profile(agent=agent):
            names = {"agent": agent}
        case Token(name=name):
            names = {"token": name}
        case Thread(thread=thread):
            names = {"thread": thread}
        case StoreLog():
            return ""
        case _:
            names = {"namespace": state.namespace, "key": state.key}
    return _encode(names)[1:-1]
