"""What the writer adds to every event, and the digest that chains a stream's events.

Both formats are fixed: docs/decisions/0004-envelope-and-digest.md, docs/decisions/0030-log-format-2.md.
"""

import hashlib
from typing import Final, Generic, NamedTuple, TypeVar

from pydantic_core import to_json

from holdlog.domain.message import Caller, Event

AnyEvent = TypeVar("AnyEvent", bound=Event, covariant=True)

NO_DIGEST = b""
"""The previous digest of a stream's first event."""

FORMAT: Final = 2
"""Log format of new events."""


class CheckedClaim(NamedTuple):
    """A claim that a write relied on; `version` is that of the grant. `former_session`: salted hash of the ended
    session that held it, if the writer acted for that session."""

    resource: str
    version: int
    former_session: str | None = None


class Basis(NamedTuple):
    """What a write relied on. `operation`: `set`, `merge`, `increment`, `append`, `patch`, `delete`, `clear` or
    `revert`; None for other events. `based_on`: the expected version. `forced`: there was a value, and the write was to
    succeed whatever its version."""

    operation: str | None = None
    based_on: int | None = None
    forced: bool = False
    guard: tuple[CheckedClaim, ...] = ()


NO_BASIS: Final = Basis()


class Envelope(NamedTuple):
    """Where and when an event was recorded, and who caused it.

    `position` (in the whole log) and `version` (in its stream) start at 1; `at` is microseconds since 1970 and never
    less than that of the previous event; `digest` is 32 bytes. `clock`: the writer's wall clock if it differs from
    `at` by more than a second. The other fields are those of `Basis`; None: not recorded, as in events of format 1.
    """

    position: int
    stream: str
    version: int
    topic: str
    at: int
    caller: Caller
    digest: bytes
    format: int = 1
    clock: int | None = None
    operation: str | None = None
    based_on: int | None = None
    forced: bool | None = None
    guard: tuple[CheckedClaim, ...] | None = None

    @property
    def is_forced(self) -> bool:
        """`forced`, but for the write that created a key: earlier builds recorded it for that one, too."""
        return bool(self.forced) and self.version > 1


class Recorded(NamedTuple, Generic[AnyEvent]):
    """An event as recorded in the log. `redacted`: its payload was removed and reads as null."""

    envelope: Envelope
    event: AnyEvent
    redacted: bool = False


def payload_hash(salt: bytes, payload: str) -> bytes:
    """SHA-256 over salt and payload, kept when a text is redacted. The salt hinders guessing short texts."""
    return hashlib.sha256(salt + payload.encode()).digest()


class Digested(NamedTuple):
    """The input of the digest of a format 2 event, in this order; values are those of the row.

    `guard`: the fencing conditions as JSON. `body`: the event's JSON without its payload. `payload`, `reason`: their
    hashes in lower-case hexadecimal, None if an event has none."""

    stream: str
    version: int
    topic: str
    at: int
    clock: int | None
    principal: str | None
    session: str | None
    request_id: str | None
    correlation_id: str | None
    operation: str | None
    based_on: int | None
    forced: int | None
    guard: str | None
    body: str
    payload: str | None
    reason: str | None


def digest_2(previous: bytes, event: Digested) -> bytes:
    """Format 2: SHA-256 over the compact UTF-8 JSON list of a tag, the previous digest and the event's fields."""
    return hashlib.sha256(to_json([_TAG_2, previous.hex(), *event])).digest()


_TAG_2: Final = "holdlog/2"


def digest(
    previous: bytes, stream: str, version: int, topic: str, at: int, caller: Caller, body: str, payload: bytes | None
) -> bytes:
    """Format 1: SHA-256 over the compact UTF-8 JSON list of the event's fields.

    `previous`: digest of the stream's previous event (`NO_DIGEST` for the first). `body`: the event's JSON without
    its payload. `payload`: `payload_hash`, None if an event has none. Digests are in lower-case hexadecimal.
    """
    fields = [
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
    return hashlib.sha256(to_json(fields)).digest()
