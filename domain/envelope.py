"""What the writer adds to every event, and the digest that chains the events of a stream.

The format is fixed: docs/decisions/0004-envelope-and-digest.md.
"""

import hashlib
from json import JSONEncoder
from typing import Generic, TypeVar

from holdlog.domain.message import Caller, Event, Message

AnyEvent = TypeVar("AnyEvent", bound=Event, covariant=True)

_compact = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

NO_DIGEST = b""
"""Stands for the digest before the first event of a stream."""


class Envelope(Message):
    """Where, when and through whom an event was recorded.

    `position` (in the whole log) and `version` (in its stream) start at 1; `at` is microseconds since 1970, and never
    smaller than that of the event before; `digest` is 32 bytes.
    """

    position: int
    stream: str
    version: int
    topic: str
    at: int
    caller: Caller
    digest: bytes


class Recorded(Message, Generic[AnyEvent]):
    """An event as it stands in the log. `redacted`: its payload was taken out, and stands as null."""

    envelope: Envelope
    event: AnyEvent
    redacted: bool = False


def payload_hash(salt: bytes, payload: str) -> bytes:
    """SHA-256 over salt and payload: what stays of a value that is redacted. The salt hinders guessing short values."""
    return hashlib.sha256(salt + payload.encode()).digest()


def digest(
    previous: bytes, stream: str, version: int, topic: str, at: int, caller: Caller, body: str, payload: bytes | None
) -> bytes:
    """SHA-256 over the compact UTF-8 JSON list of all that an event says.

    `previous`: digest of the stream's event before (`NO_DIGEST` for the first). `body`: the event's JSON without its
    payload. `payload`: `payload_hash`, None where an event has none. Digests enter as lower-case hexadecimal.
    """
    said = [
        previous.hex(),
        stream,
        version,
        topic,
        at,
        caller.principal,
        caller.session,
        caller.request_id,
        caller.reason,
        caller.correlation_id,
        body,
        payload.hex() if payload is not None else None,
    ]
    return hashlib.sha256(_compact(said).encode()).digest()
