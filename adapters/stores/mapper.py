"""Events to rows of the log and back. Not the library's transcoder: that destroys values shaped like its own tags."""

import json
import os
from typing import Any, NamedTuple

from eventsourcing.persistence import StoredEvent

from holdlog.domain.envelope import Envelope, Recorded, digest, payload_hash
from holdlog.domain.message import NOBODY, Caller, Event
from holdlog.domain.ports import Change
from holdlog.domain.refusals import StoreError
from holdlog.domain.value import Json
from holdlog.projections.fold import EVENTS, State

SALT_BYTES = 16

ENVELOPE_COLUMNS = ("at", "principal", "session", "request_id", "reason", "correlation_id", "digest")
"""Columns of the log beside the library's four, in the order of `Sealed.extra`."""

PAYLOAD_COLUMNS = ("salt", "payload", "payload_hash")
"""`payload_hash` stands only where `salt` and `payload` were redacted."""

FORMAT_COLUMNS = ("format", "clock", "operation", "based_on", "forced", "guard", "reason_salt", "reason_hash")
"""Columns of log format 2; null in events of format 1."""


class Sealed(NamedTuple):
    """An event ready to be stored: the library's part, and the columns that are ours."""

    stored: StoredEvent
    extra: tuple[Any, ...]
    digest: bytes


def seal(change: Change, before: State, at: int, caller: Caller) -> Sealed:
    """`before`: the state right before the event, which gives version and the chain's last digest."""
    event = change.event
    stream, version, topic = before.stream, before.version + 1, event.topic
    field = event.payload_field
    value = None if field is None else getattr(event, field)
    body, salt, payload, hashed = _body(event, field), None, None, None
    if value is not None:
        salt, payload = os.urandom(SALT_BYTES), value.text if isinstance(value, Json) else json.dumps(value)
        hashed = payload_hash(salt, payload)
    chained = digest(before.digest, stream, version, topic, at, caller, body, hashed)
    stored = StoredEvent(originator_id=stream, originator_version=version, topic=topic, state=body.encode())
    extra = (
        at,
        caller.principal,
        caller.session,
        caller.request_id,
        caller.reason,
        caller.correlation_id,
        chained,
        salt,
        payload,
        None,
        *(None for _ in FORMAT_COLUMNS),
    )
    return Sealed(stored, extra, chained)


def unseal(row: Any) -> Recorded[Event]:
    """A row (position, stream, version, topic, state, `ENVELOPE_COLUMNS`, `PAYLOAD_COLUMNS`, `FORMAT_COLUMNS`) as a
    recorded event.

    Raises StoreError for an unknown topic (the library would import what a row names) or a body not its own.
    """
    (position, stream, version, topic, state, at, principal, session, request_id, reason, correlation_id, chained) = (
        row[:12]
    )
    salt, payload, hashed = row[12:15]
    event = event_of(stream, version, topic, state, payload)
    if principal is session is request_id is reason is correlation_id is None:
        caller = NOBODY
    else:
        caller = Caller.model_construct(
            principal=principal, session=session, request_id=request_id, reason=reason, correlation_id=correlation_id
        )
    envelope = Envelope.model_construct(
        position=position, stream=stream, version=version, topic=topic, at=at, caller=caller, digest=chained
    )
    return Recorded.model_construct(envelope=envelope, event=event, redacted=hashed is not None and salt is None)


def event_of(stream: str, version: int, topic: str, state: bytes, payload: str | None) -> Event:
    """The event alone, without its envelope. Raises StoreError as `unseal`."""
    known = EVENTS.get(topic)
    if known is None:
        raise StoreError(
            f"event {stream}@{version} has the unknown topic {topic[:80]!r}; a newer holdlog may have written it"
        )
    try:
        fields = json.loads(state.decode())
        if known.payload_field == "value":
            fields["value"] = Json(payload if payload is not None else "null")
        elif known.payload_field is not None and payload is not None:
            fields[known.payload_field] = json.loads(payload)
        return known(**fields)
    except (ValueError, TypeError, AttributeError):  # also pydantic's ValidationError, which is a ValueError
        raise StoreError(f"event {stream}@{version} cannot be read: its body is not that of a {topic}") from None


def expected_digest(row: Any, previous: bytes) -> bytes:
    """The digest that a row (as for `unseal`) must have after `previous`: for auditors and `doctor`."""
    stream, version, topic, state, at = row[1:6]
    caller = Caller.model_construct(
        principal=row[6], session=row[7], request_id=row[8], reason=row[9], correlation_id=row[10]
    )
    salt, payload, hashed = row[12:15]
    if hashed is None and payload is not None:
        hashed = payload_hash(salt, payload)
    return digest(previous, stream, version, topic, at, caller, bytes(state).decode(), hashed)


def _body(event: Event, without: str | None) -> str:
    """Compact JSON of the event but for its payload, and for what is as always."""
    exclude = {without} if without else None
    return event.__pydantic_serializer__.to_json(event, exclude=exclude, exclude_defaults=True).decode()
