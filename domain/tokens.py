"""Tokens: what a caller over HTTP shows, and what it may do. A store has only the hash of a token's text."""

import re
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from holdlog.domain.moment import Moment
from holdlog.domain.names import check_name
from holdlog.domain.records import is_expired
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import utc
from holdlog.domain.state import Decision, Reads, State

SCOPES: Final = ("read", "write", "claim", "metrics", "admin")
"""What a grant allows on the namespaces and resources that its pattern matches. `write` includes `read`, and `admin`
all. `metrics:*` reads the metrics of a server."""
PREFIX: Final = "holdlog_"
"""Scanners for leaked secrets know it."""
_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
_SPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_TEXT: Final = re.compile(rf"{PREFIX}({_NAME.pattern})_[A-Za-z0-9_-]{{43}}")

# --- events


class TokenCreated(NamedTuple):
    """`hash`: of the token's text; nobody is shown it. `expires_at` is in microseconds since 1970."""

    stream: str
    by: str
    hash: str
    allow: tuple[str, ...]
    space: str | None = None
    expires_at: int | None = None


class TokenRevoked(NamedTuple):
    stream: str
    by: str


# --- results


class NewToken(NamedTuple):
    """A token was created. Its text, `token`, is returned this once."""

    name: str
    token: str
    allow: list[str]
    position: int
    space: str | None = None
    expires_at: datetime | None = None
    expires_in_seconds: float | None = None
    status: Literal["ok"] = "ok"


class TokenExists(NamedTuple):
    """The name belongs to a token that is valid."""

    name: str
    hint: str = "A valid token has this name. Choose another name, such as ci-2."
    status: Literal["exists"] = "exists"

    def __bool__(self) -> bool:
        return False


class Revoked(NamedTuple):
    """The token is not valid any more; `already`: it was not before."""

    name: str
    position: int
    already: bool | None = None
    status: Literal["ok"] = "ok"


class NoToken(NamedTuple):
    """There is no token of this name."""

    name: str
    hint: str = "Call token_list to see the names of all tokens."
    status: Literal["not_found"] = "not_found"

    def __bool__(self) -> bool:
        return False


# --- deciders


def declare(command: Any) -> Reads:
    return Reads((token_stream(command.token),))


def create(command: Any, state: State, moment: Moment) -> Decision:
    """Create a token of a name that no valid one has. Raises InvalidError: a result that is remembered for its repeat
    would store the text."""
    if moment.caller.request_id is not None:
        raise InvalidError(
            "request_id: the text of a token is returned once; if in doubt, revoke it and create another"
        )
    record = state.records[token_stream(command.token)]
    if record.exists and not is_expired(record, moment.at):
        return [], TokenExists(command.token)
    expires_at = moment.after(command.ttl_seconds)
    allow = tuple(dict.fromkeys(command.allow))
    event = TokenCreated(record.stream, command.created_by, hash_text(command.text), allow, command.space, expires_at)
    end = utc(expires_at) if expires_at is not None else None
    facts = (list(allow), moment.position + 1, command.space, end, command.ttl_seconds)
    return [event], NewToken(command.token, command.text, *facts)


def revoke(command: Any, state: State, moment: Moment) -> Decision:
    """End a token for ever; also one that has expired."""
    record = state.records[token_stream(command.token)]
    if not record.version:
        return [], NoToken(command.token)
    if not record.exists:
        return [], Revoked(command.token, record.position, already=True)
    return [TokenRevoked(record.stream, command.revoked_by)], Revoked(command.token, moment.position + 1)


# --- rules


def token_stream(name: str) -> str:
    return f"token:{name}"


def write_text(name: str, secret: str) -> str:
    """The text of a token; `secret` has 256 random bits in base64url, so that a hash without salt protects it."""
    return f"{PREFIX}{name}_{secret}"


def read_name(text: str) -> str | None:
    """The name of the token that a text claims to be."""
    match = _TEXT.fullmatch(text)
    return match[1] if match else None


def hash_text(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def check_token_name(text: str) -> str:
    """Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError("must have 1 to 64 characters of a-z, 0-9 and -")
    return text


def check_space(text: str) -> str:
    """Return the name of a space, the first label of its namespaces. Raises ValueError."""
    if not _SPACE.fullmatch(text):
        raise ValueError("must have 1 to 48 characters of a-z, 0-9 and -, and not start with -")
    if text == "threads":
        raise ValueError("must not be threads, which are the namespaces of threads' data")
    return text


def check_grant(text: str) -> str:
    """Return a grant such as `write:build-*`: a scope and a pattern, in which `*` stands for any text. Raises
    ValueError."""
    scope, colon, pattern = text.partition(":")
    if not colon or scope not in SCOPES:
        raise ValueError("must be read, write, claim, metrics or admin, a colon and a pattern, as in write:build-*")
    if any(f",{other}:" in pattern for other in SCOPES):
        raise ValueError("must be one grant; pass each grant separately")
    return f"{scope}:{check_name(pattern)}"
