"""Token texts, and the principals of stored tokens. A text is shown once; only its hash is stored."""

import hashlib
import hmac
import logging
import re
import secrets
from typing import Final, NamedTuple

from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.principal import Principal
from holdlog.domain.refusals import InvalidError
from holdlog.domain.token import Token

PREFIX: Final = "holdlog_"
"""A prefix that scanners for leaked secrets can detect."""

_TEXT: Final = re.compile(rf"{PREFIX}([a-z0-9-]{{1,64}})_[A-Za-z0-9_-]{{43}}")
_NOBODYS: Final = "0" * 64

_log = logging.getLogger("holdlog")


class Fresh(NamedTuple):
    """A new token. `text` is for its bearer alone, `hash` for the store."""

    text: str
    hash: str


def fresh(name: str) -> Fresh:
    """Generate a token with 256 random bits: it cannot be guessed, so a plain hash is enough (no salt, no work
    factor)."""
    text = f"{PREFIX}{name}_{secrets.token_urlsafe(32)}"
    return Fresh(text, hash_of(text))


def hash_of(text: str) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def name_in(text: str) -> str | None:
    """The name of the token that a text claims to be; None if it does not have the form of a stored token."""
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def bearer(hashed: str, token: Token, at: int) -> Principal | None:
    """The principal that a text with this hash authenticates at a time (microseconds UTC), or None. `expires_at` is the
    expiry of this very text.

    A token that was never issued takes as long to check as one with a wrong secret.
    """
    first, *previous = (*token.hashes(at), _NOBODYS)[:2]
    is_current = hmac.compare_digest(hashed, first)
    is_previous = hmac.compare_digest(hashed, previous[0] if previous else _NOBODYS)
    if not (is_current or is_previous):
        return None
    try:
        grants = Grants.parse(token.allow)
    except InvalidError as error:
        _log.warning("the token %s cannot be used here: %s", token.name, error)
        return None
    ends = [token.expires_at, None if is_current else token.previous_until]
    return Principal(
        f"token:{token.name}", grants, token.space, min((it for it in ends if it is not None), default=None)
    )
