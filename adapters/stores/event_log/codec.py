"""Encodes events as rows of the log, and decodes them. The eventsourcing library's transcoder is not used: it corrupts
values that look like its own type tags."""

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from pydantic_core import from_json

from holdlog.domain.envelope import (
    FORMAT,
    Basis,
    CheckedClaim,
    Digested,
    Envelope,
    Recorded,
    digest,
    digest_2,
    payload_hash,
)
from holdlog.domain.message import Caller, Event
from holdlog.domain.refusals import StoreError
from holdlog.domain.value import REDACTED, Json
from holdlog.projections.fold import EVENTS

SALT_BYTES = 16
UNREADABLE: Final = (ValueError, TypeError, AttributeError, KeyError, OverflowError)
"""Exceptions that code which trusts column types may raise for a row that another program wrote."""

_REMEMBERED: Final = 1024
"""Callers kept while events are decoded."""
_CLOCKS_DIFFER: Final = 1_000_000
"""Microseconds. If the writer's clock is behind the time of the event by more than this, its reading is recorded in
`clock`."""


class EncodedEvent(NamedTuple):
    """An event as a row of the log: its position, which the library calls `id`, the library's four columns, then ours.
    A frozen dataclass, as the library has, takes six times as long to make.

    `id`: 0 until the event is inserted.
    `payload_hash` and `reason_hash` are set only if the text and its salt were redacted; what follows them was added by
    log format 2 and is null for events of format 1.
    """

    id: int
    originator_id: str
    originator_version: int
    topic: str
    state: bytes
    at: int
    principal: str | None
    session: str | None
    request_id: str | None
    reason: str | None
    correlation_id: str | None
    digest: bytes
    salt: bytes | None = None
    payload: str | None = None
    payload_hash: bytes | None = None
    format: int | None = None
    clock: int | None = None
    operation: str | None = None
    based_on: int | None = None
    forced: int | None = None
    guard: str | None = None
    reason_salt: bytes | None = None
    reason_hash: bytes | None = None


_TYPES: Final = {name: hint for name, hint in get_type_hints(EncodedEvent).items() if name != "id"}
COLUMNS: Final[dict[str, type]] = {name: (*get_args(hint), hint)[0] for name, hint in _TYPES.items()}
"""The columns of an event, without its position, and the types of their values."""
REQUIRED: Final = tuple(name for name, hint in _TYPES.items() if not get_args(hint))
"""Columns that are never null."""
FORMAT_COLUMNS: Final = EncodedEvent._fields[-8:]
"""Columns that log format 2 added."""


def encode(
    event: Event, stream: str, version: int, previous: bytes, basis: Basis, at: int, clock: int, caller: Caller
) -> EncodedEvent:
    """Encode an event. `previous`: the digest of the event before it in its stream. `at`: the time of the event;
    `clock`: the writer's clock, which may be behind `at`."""
    principal, session, request_id, reason = caller.principal, caller.session, caller.request_id, caller.reason
    recorded_clock = clock if at - clock > _CLOCKS_DIFFER else None
    forced = 1 if basis.forced else None
    guard = _guard_text(basis.guard) if basis.guard else None
    field = event.payload_field
    value = None if field is None else getattr(event, field)
    body = event.__pydantic_serializer__.to_json(
        event, exclude=None if field is None else {field}, exclude_defaults=True
    )
    salt, payload, payload_digest, reason_salt, reason_digest = None, None, None, None, None
    if value is not None:
        salt, payload = os.urandom(SALT_BYTES), value.text if isinstance(value, Json) else json.dumps(value)
        payload_digest = payload_hash(salt, payload).hex()
    if reason is not None:
        reason_salt = os.urandom(SALT_BYTES)
        reason_digest = payload_hash(reason_salt, reason).hex()
    # fmt: off
    chained = digest_2(previous, Digested(
        stream, version, event.topic, at, recorded_clock, principal, session, request_id, caller.correlation_id,
        basis.operation, basis.based_on, forced, guard, body.decode(), payload_digest, reason_digest,
    ))
    return EncodedEvent(
        0, stream, version, event.topic, body, at, principal, session, request_id, reason, caller.correlation_id,
        chained, salt, payload, None, FORMAT, recorded_clock, basis.operation, basis.based_on, forced, guard,
        reason_salt, None,
    )
    # fmt: on


def decode(row: Any) -> Recorded[Event]:
    """Decode a row (the fields of `EncodedEvent`) into a recorded event.

    Raises StoreError for an unknown topic (the library would import any name in a row), a body that does not match its
    topic, or the format of a newer version of holdlog.
    """
    position, stream, version, topic, state, at, principal, session, request_id, reason, correlation_id, chained = row[
        :12
    ]
    salt, payload, hashed, number, clock, operation, based_on, forced, guard = row[12:21]
    event = event_of(stream, version, topic, state, payload)
    caller = _caller(principal, session, request_id, reason, correlation_id)
    if number is None:  # the digest of format 1 does not cover the columns that follow
        envelope = Envelope(position, stream, version, topic, at, caller, chained)
    else:
        if number != FORMAT:
            raise _unknown_format(stream, version, number)
        conditions = () if guard is None else _conditions(stream, version, guard)
        envelope = Envelope(
            position, stream, version, topic, at, caller, chained, number, clock, operation, based_on, forced == 1,
            conditions,
        )  # fmt: skip
    return Recorded(envelope, event, hashed is not None and salt is None)


@lru_cache(_REMEMBERED)
def _caller(
    principal: str | None, session: str | None, request_id: str | None, reason: str | None, correlation_id: str | None
) -> Caller:
    """A caller as the log has it, not checked again. Most events of a page have the same."""
    return Caller.model_construct(
        principal=principal, session=session, request_id=request_id, reason=reason, correlation_id=correlation_id
    )


def _conditions(stream: str, version: int, guard: str) -> tuple[CheckedClaim, ...]:
    try:
        return tuple(CheckedClaim(**it) for it in from_json(guard))
    except (ValueError, TypeError):
        raise StoreError(f"event {stream}@{version} cannot be read: its fencing conditions are not JSON") from None


def _unknown_format(stream: str, version: int, number: object) -> StoreError:
    return StoreError(f"event {stream}@{version} has format {number}; a newer holdlog may have written it")


def event_of(stream: str, version: int, topic: str, state: bytes, payload: str | None) -> Event:
    """Decode the event alone, without its envelope. Raises StoreError in the same cases as `decode`."""
    known = EVENTS.get(topic)
    if known is None:
        raise StoreError(
            f"event {stream}@{version} has the unknown topic {topic[:80]!r}; a newer holdlog may have written it"
        )
    try:
        fields = from_json(state)
        if known.payload_field == "value":
            fields["value"] = REDACTED if payload is None else Json(payload)
        elif known.payload_field is not None and payload is not None:
            fields[known.payload_field] = from_json(payload)
        return known.model_validate(fields)
    except (ValueError, TypeError, AttributeError):  # also pydantic's ValidationError, which is a ValueError
        raise StoreError(f"event {stream}@{version} cannot be read: its body does not match {topic}") from None


def expected_digest(row: Any, previous: bytes) -> bytes:
    """The digest that a row (as for `decode`) must have after `previous`; for auditors and `doctor`.

    A payload or reason that is present is hashed again; the stored hash is used only if the text was redacted. Raises
    StoreError for the format of a newer version of holdlog, ValueError for a text and salt that do not belong together.
    """
    _position, stream, version, topic, state, at, principal, session, request_id, reason, correlation_id = row[:11]
    hashed = text_hash(*row[12:15])
    body = bytes(state).decode()
    number, clock, operation, based_on, forced, guard, reason_salt, reason_hash = row[15:23]
    if number is None:
        if any(column is not None for column in row[16:23]):
            return b""  # the digest of format 1 does not cover these columns, so they must be empty
        caller = _caller(principal, session, request_id, reason, correlation_id)
        return digest(previous, stream, version, topic, at, caller, body, hashed)
    if number != FORMAT:
        raise _unknown_format(stream, version, number)
    reason_hashed = text_hash(reason_salt, reason, reason_hash)
    return digest_2(
        previous,
        Digested(
            stream,
            version,
            topic,
            at,
            clock,
            principal,
            session,
            request_id,
            correlation_id,
            operation,
            based_on,
            forced,
            guard,
            body,
            hashed.hex() if hashed is not None else None,
            reason_hashed.hex() if reason_hashed is not None else None,
        ),
    )


def is_intact(row: Any, previous: bytes) -> bool:
    """Whether a row has its expected digest; False also for what cannot be read. Raises StoreError as
    `expected_digest`."""
    try:
        return bool(expected_digest(row, previous) == row[11])
    except UNREADABLE:
        return False


def text_hash(salt: bytes | None, text: str | None, redacted: bytes | None) -> bytes | None:
    """The hash of a text; the stored one if it was redacted. None: there is no text. Raises ValueError for a text and
    salt that do not belong together, TypeError if they have other types."""
    if text is None and salt is None:
        return redacted
    # Salt and text are hashed as one: without the exact length, the end of one could become the beginning of the other.
    if text is None or salt is None or redacted is not None or len(salt) != SALT_BYTES:
        raise ValueError("a text has exactly one salt, or it was redacted and only its hash is left")
    return payload_hash(salt, text)


def _guard_text(guard: Sequence[CheckedClaim]) -> str:
    return _compact([{name: it for name, it in one._asdict().items() if it is not None} for one in guard])


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
