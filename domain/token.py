"""A token: admits a caller by name, with its grants and expiry. Contains only the hash of its secret."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, get_args

from pydantic import AfterValidator, Field, Strict

from holdlog.domain.message import Command, Event
from holdlog.domain.names import Agent, name, token_stream
from holdlog.domain.refusals import InvalidError, NotFoundError

MAX_ALLOWED: Final = 64
"""Grants of one token."""
MAX_LIFETIME_SECONDS: Final = 10 * 365 * 24 * 60 * 60
MAX_OVERLAP_SECONDS: Final = 30 * 24 * 60 * 60
Scope = Literal[
    "read",
    "write",
    "claim",
    "admin",
    "read-values",
    "read-claims",
    "read-threads",
    "write-values",
    "write-threads",
    "metrics",
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
FIRST_SCOPES: Final[tuple[Scope, ...]] = ("read", "write", "claim", "admin")
"""The scopes of release 0.1. A pattern of that release may contain the name of a later scope."""

SEVERAL: Final = "must be one grant; pass each grant separately"

_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
_SPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


def token_name(text: str) -> str:
    """Return a valid token name. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError("must have 1 to 64 characters of a-z, 0-9 and -")
    return text


def space_name(text: str) -> str:
    """Return a valid space name. Raises ValueError."""
    if not _SPACE.fullmatch(text):
        raise ValueError("must have 1 to 48 characters of a-z, 0-9 and -, and not start with -")
    return text


def allowed(text: str) -> str:
    """Return a grant such as `write:build-*`: scope and name pattern; only `*` is special. Raises ValueError.

    The kind of a name belongs to the scope (`read-values:`), because a name may contain colons: `read:values:x` remains
    a grant for the name `values:x`."""
    scope, colon, pattern = text.partition(":")
    if not colon or scope not in SCOPES:
        raise ValueError(
            f"must be {', '.join(SCOPES[:-1])} or {SCOPES[-1]}, a colon and a pattern, as in write:build-*"
        )
    if any(f",{other}:" in pattern for other in FIRST_SCOPES):
        raise ValueError(SEVERAL)
    if scope == "metrics" and pattern != "*":
        raise ValueError("must be metrics:*, because metrics cover the whole server")
    return f"{scope}:{name(pattern)}"


def newly_allowed(text: str) -> str:
    """Like `allowed`, but for a new token. Raises ValueError."""
    text = allowed(text)
    if any(f",{other}:" in text for other in SCOPES):
        raise ValueError(SEVERAL)
    return text


TokenName = Annotated[str, Strict(), AfterValidator(token_name)]
SpaceName = Annotated[str, Strict(), AfterValidator(space_name)]
Allowed = Annotated[str, Strict(), AfterValidator(allowed)]
Allow = Annotated[tuple[Allowed, ...], Field(min_length=1, max_length=MAX_ALLOWED)]
NewlyAllowed = Annotated[str, Strict(), AfterValidator(newly_allowed)]
NewAllow = Annotated[tuple[NewlyAllowed, ...], Field(min_length=1, max_length=MAX_ALLOWED)]
Hash = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of the whole text of a token, in hexadecimal."""

# --- events


class TokenIssued(Event):
    """A token was issued. `expires_at`: microseconds UTC. `space`: the only one it admits to; None: the main store."""

    topic: ClassVar[str] = "TokenIssued"
    private_fields: ClassVar[frozenset[str]] = frozenset({"hash"})
    hash: Hash
    allow: Allow
    expires_at: int | None = None
    space: SpaceName | None = None
    by: Agent


class TokenRotated(Event):
    """The token got another secret; the previous one stays valid until `overlap_until` (microseconds UTC)."""

    topic: ClassVar[str] = "TokenRotated"
    private_fields: ClassVar[frozenset[str]] = frozenset({"hash"})
    hash: Hash
    overlap_until: int
    by: Agent


class TokenRevoked(Event):
    topic: ClassVar[str] = "TokenRevoked"
    by: Agent


TokenEvent = TokenIssued | TokenRotated | TokenRevoked

# --- commands


class IssueToken(Command):
    """`lifetime_seconds` None: the token never expires."""

    kind: ClassVar[str] = "issue_token"
    name: TokenName
    hash: Hash
    allow: NewAllow
    lifetime_seconds: float | None = Field(default=None, gt=0, le=MAX_LIFETIME_SECONDS)
    space: SpaceName | None = None
    by: Agent


class RotateToken(Command):
    """Give a token another secret. `overlap_seconds`: how long the previous secret stays valid next to the new one."""

    kind: ClassVar[str] = "rotate_token"
    name: TokenName
    hash: Hash
    overlap_seconds: float = Field(default=0, ge=0, le=MAX_OVERLAP_SECONDS)
    by: Agent


class RevokeToken(Command):
    kind: ClassVar[str] = "revoke_token"
    name: TokenName
    by: Agent


TokenCommand = IssueToken | RotateToken | RevokeToken

# --- state


class Token(NamedTuple):
    """`version` 0 = never issued. Times: microseconds UTC; `rotated_at` and `revoked_at` None: it was not.

    `previous_hash` is valid until `previous_until`."""

    name: str
    version: int = 0
    hash: str = ""
    previous_hash: str | None = None
    previous_until: int | None = None
    allow: tuple[str, ...] = ()
    expires_at: int | None = None
    space: str | None = None
    issued_by: str = ""
    issued_at: int = 0
    rotated_at: int | None = None
    revoked_at: int | None = None

    @property
    def stream(self) -> str:
        return token_stream(self.name)

    @property
    def is_known(self) -> bool:
        """Issued, and not revoked since; it may have expired."""
        return self.version > 0 and self.revoked_at is None

    def hashes(self, at: int) -> Iterator[str]:
        """The hashes that are valid at a time."""
        if not self.is_known or has_ended(self, at):
            return
        yield self.hash
        if self.previous_hash is not None and self.previous_until is not None and at < self.previous_until:
            yield self.previous_hash


class TokenChanged(NamedTuple):
    """The token after a command. `already`: nothing had to change."""

    token: Token
    position: int
    already: bool = False


# --- decide, evolve


def decide(command: TokenCommand, token: Token, at: int) -> list[TokenEvent]:
    """Decide at a time (microseconds UTC). No event: it was already revoked. Raises NotFoundError, InvalidError."""
    if isinstance(command, IssueToken):
        if token.is_known:
            raise InvalidError("name: a token with this name exists; rotate it, or revoke it first")
        lifetime = command.lifetime_seconds
        expires_at = None if lifetime is None else at + round(lifetime * 1_000_000)
        issued = TokenIssued(
            hash=command.hash, allow=command.allow, expires_at=expires_at, space=command.space, by=command.by
        )
        return [issued]
    if token.version == 0:
        raise NotFoundError(f"token {token.name} does not exist", {"token": token.name})
    if isinstance(command, RevokeToken):
        return [TokenRevoked(by=command.by)] if token.is_known else []
    if not token.is_known or has_ended(token, at):
        ended = "has expired; revoke it, then issue it again" if token.is_known else "was revoked; issue it again"
        raise InvalidError(f"name: the token {ended}")
    return [
        TokenRotated(hash=command.hash, overlap_until=at + round(command.overlap_seconds * 1_000_000), by=command.by)
    ]


def evolve(token: Token, event: TokenEvent, at: int) -> Token:
    """`at` (microseconds UTC) comes from the event's envelope."""
    token = token._replace(version=token.version + 1)
    match event:
        case TokenIssued(hash=hashed, allow=allow, expires_at=expires_at, space=space, by=by):
            return Token(
                token.name,
                token.version,
                hashed,
                allow=allow,
                expires_at=expires_at,
                space=space,
                issued_by=by,
                issued_at=at,
            )
        case TokenRotated(hash=hashed, overlap_until=until):
            return token._replace(hash=hashed, previous_hash=token.hash, previous_until=until, rotated_at=at)
        case TokenRevoked():
            return token._replace(revoked_at=at)


# --- rules


def has_ended(token: Token, at: int) -> bool:
    return token.expires_at is not None and token.expires_at <= at
