"""Shared by the key-value calls of HTTP and MCP: default lifetime and author of a value."""

from typing import Final

from holdlog.domain.message import Caller
from holdlog.domain.names import allowed_agent_name

DEFAULT_TTL: Final = 30 * 24 * 60 * 60
"""Default lifetime of a value in seconds, as in echoValue."""


def author(caller: Caller, otherwise: str) -> str:
    """The default author: the principal of the caller's token if it is an allowed agent name, else `otherwise`."""
    try:
        return allowed_agent_name(caller.principal or otherwise)
    except ValueError:
        return otherwise
