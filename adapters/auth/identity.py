"""Hashes of session ids and receipts. Both act as credentials, so only salted hashes are stored and shown.

Standard library only and quick to import: the hook's fast path uses it. `hashlib` loads OpenSSL (6 ms), so it is
imported when it is used.
"""

import re
from typing import Final, Literal, NamedTuple

SessionSource = Literal["meta", "mcp", "header", "option", "process", "shell", "hook"]
"""Where a session id comes from: `_meta` of an MCP request, Mcp-Session-Id, the header Holdlog-Session, `--session` or
`session=`, the process itself, a command typed in a shell, or the host that runs a hook. Equal texts from different
sources are different sessions."""

SALT: Final = "session_salt"
"""Name of the store's entry (`Reader.meta`) that holds the salt."""

_CHARACTERS: Final = 16
"""64 bits of a hash: enough to distinguish the sessions of one store."""
_HASHED: Final = re.compile(rf"[a-z]+-[0-9a-f]{{{_CHARACTERS}}}")


class SessionId(NamedTuple):
    """The text that identifies a session, and its source."""

    source: SessionSource
    text: str


class Identity:
    """Hashes what identifies a caller, with the store's salt, so that all processes on the store get the same hash."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def session(self, source: SessionSource, text: str) -> str:
        """Hash a session id as it is stored and shown: the source and a short hash, such as `mcp-3f9a0b1c2d4e5f60`."""
        return f"{source}-{self._hash(f'{source} {text}')}"

    def receipt(self, text: str) -> str:
        """Hash a receipt as it is stored; it is never shown."""
        return self._hash(f"receipt {text}")

    def _hash(self, text: str) -> str:
        import hashlib

        return hashlib.sha256(f"{self._salt} {text}".encode()).hexdigest()[:_CHARACTERS]


def is_hashed(session: str) -> bool:
    """Whether a text has the form of a hashed session. Release 0.1 recorded some sessions as they were given."""
    return _HASHED.fullmatch(session) is not None


def new_receipt() -> str:
    """Generate a random receipt, short enough for an agent to copy."""
    import secrets

    return secrets.token_hex(6)
