"""How an event is a row of the log: envelope, payload and digest (docs/audit.md)."""

import json
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as quote
from typing import Any, Final, NamedTuple

from holdlog.domain.moment import Caller
from holdlog.domain.names import AUTHORS, value_stream
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.state import Record
from holdlog.domain.values import Json, dump, encode

SALT_BYTES: Final = 16
FIRST_DIGEST: Final = bytes(32)
"""What the first event of a log follows."""
CONTENT: Final[dict[str, tuple[str, ...]]] = {
    "ValueWritten": ("value", "reason"),
    "ValueDeleted": ("reason",),
    "ValueExpired": (),
    "ClaimGranted": ("note",),
    "ClaimReleased": ("note",),
    "ClaimExpired": (),
    "OfferExpired": (),
    "ClaimQueued": ("note",),
    "ClaimUnqueued": (),
    "ClaimHandedOver": (),
    "FileChanged": (),
    "MessageAppended": ("message",),
    "ResultAppended": ("result", "checksum"),
    "ResultsCleared": (),
    "TokenCreated": (),
    "TokenRevoked": (),
    "Imported": (),
    "TextsRedacted": ("reason",),
}
"""All kinds of events (an unknown one is an error, never an import), and their fields that people write texts into:
only these can be redacted."""
_LONGEST_MESSAGE: Final = 500
FOREIGN: Final = "foreign:"
"""What topics and streams of other applications start with. No view has them."""


class Foreign(NamedTuple):
    """An event of another application."""

    stream: str
    topic: str
    payload: str


_OTHER_SUBJECTS: Final = (("thread", "thread_id"), ("token", "token"))
_ABOUT_CALLER: Final = ("session", "principal", "request_id", "correlation_id")


def encode_event(event: Any, caller: Caller) -> tuple[str, str]:
    """Envelope and payload of an event. The payload has the fields that people write texts into."""
    content = CONTENT[type(event).__name__]
    meta, payload = _describe(caller), ""
    for name, value in zip(event._fields, event, strict=True):
        if value is None or value is False or value == () or name == "stream":
            continue
        kind = type(value)
        if kind is Json or kind is int:
            text = value
        elif kind is str:
            text = quote(value)
        else:
            text = "true" if value is True else dump(value)
        if name in content:
            payload += f',"{name}":{text}'
        else:
            meta += f',"{name}":{text}'
    return f"{{{meta[1:]}}}", f"{{{payload[1:]}}}"


def encode_refusal(
    command: Any, refusal: Any, position: int, at: int, caller: Caller
) -> tuple[int, int, str, str, str]:
    """The row of a refused command, from the error or the result: names, and no value."""
    is_error = isinstance(refusal, HoldlogError)
    detail = refusal.detail if is_error else refusal
    fields = vars(command) if hasattr(command, "__dict__") else command._asdict()  # a model looks for what it lacks
    subject = command if "key" in fields or "resource" in fields else detail
    key, resource = getattr(subject, "key", None), getattr(subject, "resource", None)
    stream = value_stream(subject.namespace, key) if key is not None else f"claim:{resource}" if resource else ""
    for kind, name in _OTHER_SUBJECTS:
        stream = f"{kind}:{fields[name]}" if name in fields else stream
    by = next(filter(None, map(fields.get, AUTHORS)), "")
    held_by = None if is_error else getattr(detail, "held_by", None)
    message = str(refusal)[:_LONGEST_MESSAGE] if is_error else f"held by {held_by}" if held_by else ""
    texts = "".join(f',"{name}":{quote(text)}' for name, text in (("by", by), ("message", message)) if text)
    code = refusal.code if is_error else refusal.status
    return position, at, code, stream, f"{{{(_describe(caller) + texts)[1:]}}}"


@lru_cache(256)
def _describe(caller: Caller) -> str:
    """The members of an envelope that say who called."""
    members = ((name, getattr(caller, name)) for name in _ABOUT_CALLER)
    return "".join(f',"{name}":{quote(value)}' for name, value in members if value)


def decode_record(
    stream: str, version: int, position: int, exists: int, expires_at: int | None, payload: str | None = None
) -> Record:
    """The record of a row of the view `current`, with its value if the payload of its event is there, too."""
    value = encode(json.loads(payload)["value"]) if exists and payload is not None else None
    return Record(stream, version, position, bool(exists), expires_at, value)


def hash_payload(payload: str, salt: bytes) -> bytes:
    """The hash that remains when payload and salt are redacted: the salt keeps short texts from being guessed."""
    return sha256(salt + payload.encode()).digest()


def digest_event(
    previous: bytes, position: int, stream: str, version: int, topic: str, at: int, meta: str, payload_hash: bytes
) -> bytes:
    """The digest of an event. Two levels, so that an extract that leaves out events is verified by their hashes."""
    header = f"{position}\n{stream}\n{version}\n{topic}\n{at}\n{meta}\n"
    return sha256(previous + sha256(header.encode() + payload_hash).digest()).digest()
