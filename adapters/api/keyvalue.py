"""What the key-value calls of HTTP and MCP have in common: how long a value lives, and who wrote it."""

from typing import Final

from holdlog.domain.message import Caller
from holdlog.domain.names import allowed_agent_name

DEFAULT_TTL: Final = 30 * 24 * 60 * 60
"""Seconds that a value lives where nothing is said, as with echoValue."""


def author(caller: Caller, otherwise: str) -> str:
    """Who writes where the call does not say: its token, if it has one whose name agents can have."""
    try:
        return allowed_agent_name(caller.principal or otherwise)
    except ValueError:
        return otherwise
