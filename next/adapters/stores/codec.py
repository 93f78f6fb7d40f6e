"""How an event is a row of the log: envelope, payload and digest (docs/audit.md)."""

import json
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as quote
from typing import Any, Final, NamedTuple

from holdlog.domain.records import ValueDeleted, ValueExpired, ValueWritten
from holdlog.domain.refusals import StoreError
from holdlog.domain.state import Caller
from holdlog.domain.values import Json

SALT_BYTES: Final = 16
FIRST_DIGEST: Final = bytes(32)
"""What the first event of a log follows."""
CONTENT: Final[dict[Any, tuple[str, ...]]] = {
    ValueWritten: ("value", "reason"),
    ValueDeleted: ("reason",),
    ValueExpired: (),
}
"""All kinds of events, and their fields that people write texts into: only these can be redacted."""
TOPICS: Final[dict[str, Any]] = {kind.__name__: kind for kind in CONTENT}
"""Closed: an unknown topic is an error, never an import."""
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ABOUT_CALLER: Final = ("session", "principal", "request_id", "correlation_id")


class Row(NamedTuple):
    """A row of the table `events`. `meta` and `payload` are JSON objects; payload and salt are None after a redaction,
    when `payload_hash` replaces them."""

    position: int
    stream: str
    version: int
    topic: str
    at: int
    meta: str
    payload: str | None
    salt: bytes | None
    payload_hash: bytes | None
    digest: bytes


def encode_event(event: Any, caller: Caller) -> tuple[str, str]:
    """Envelope and payload of an event. The payload has the fields that people write texts into."""
    content = CONTENT[type(event)]
    meta, payload = _describe(caller), ""
    for name, value in zip(event._fields, event, strict=True):
        if value is None or value is False or name == "stream":
            continue
        kind = type(value)
        if kind is Json or kind is int:
            text = value
        elif kind is str:
            text = quote(value)
        else:
            text = "true" if value is True else _dump(value)
        if name in content:
            payload += f',"{name}":{text}'
        else:
            meta += f',"{name}":{text}'
    return f"{{{meta[1:]}}}", f"{{{payload[1:]}}}"


@lru_cache(256)
def _describe(caller: Caller) -> str:
    """The members of an envelope that say who called."""
    members = zip(_ABOUT_CALLER, caller, strict=True)
    return "".join(f',"{name}":{quote(value)}' for name, value in members if value)


def decode_event(stream: str, topic: str, meta: str, payload: str | None) -> Any:
    """The event of a row. A redacted one lacks the fields of its payload. Raises StoreError for an unknown topic."""
    if (kind := TOPICS.get(topic)) is None:
        raise StoreError(f"the log has an event of the unknown kind {topic[:60]}; update holdlog")
    fields = json.loads(meta) | (json.loads(payload) if payload is not None else {})
    if "value" in CONTENT[kind]:
        fields["value"] = Json(_dump(fields["value"])) if payload is not None else Json("null")
    return kind(stream=stream, **{name: fields[name] for name in kind._fields if name in fields})


def hash_payload(payload: str, salt: bytes) -> bytes:
    """The hash that remains when payload and salt are redacted: the salt keeps short texts from being guessed."""
    return sha256(salt + payload.encode()).digest()


def digest_event(
    previous: bytes, position: int, stream: str, version: int, topic: str, at: int, meta: str, payload_hash: bytes
) -> bytes:
    """The digest of an event. Two levels, so that an extract that leaves out events is verified by their hashes."""
    header = f"{position}\n{stream}\n{version}\n{topic}\n{at}\n{meta}\n"
    return sha256(previous + sha256(header.encode() + payload_hash).digest()).digest()
