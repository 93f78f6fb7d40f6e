"""Spells agenthold's texts as holdlog allows them. A text that holdlog allows stays as it is."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from holdlog.domain.claims.resource import canonical
from holdlog.domain.names import MAX_AGENT, MAX_NAME, MAX_NOTE, agent_name, label, name, note

_DEFAULT: Final = "file://default/"
"""The workspace of bare paths in agenthold; holdlog stores them without a workspace."""
_HASH_DIGITS: Final = 16


@lru_cache(4096)
def spelled_name(text: str) -> str:
    return _spelled(text, name, MAX_NAME)


@lru_cache(4096)
def spelled_agent(text: str) -> str:
    return _spelled(text, agent_name, MAX_AGENT)


def spelled_resource(key: str) -> str | None:
    """The resource of a claim; None if it cannot be a resource, or would be a subtree in holdlog."""
    resource = key.removeprefix(_DEFAULT)
    try:
        return resource if canonical(resource) == resource and not resource.endswith("/") else None
    except ValueError:
        return None


def shortened_label(text: object) -> str | None:
    return _shortened(text, label, MAX_AGENT)


def shortened_note(text: object) -> str | None:
    return _shortened(text, note, MAX_NOTE)


def _spelled(text: str, rule: Callable[[str], str], limit: int) -> str:
    """The text if the rule keeps it; else percent-encoded and, because that may be cut, with a hash of it."""
    try:
        if rule(text) == text:
            return text
    except ValueError:
        pass
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{quote(text, safe='')[: limit - _HASH_DIGITS - 1]}-{digits}"


def _shortened(text: object, rule: Callable[[str], str], limit: int) -> str | None:
    """Free text that the rule allows: only printable characters, and not longer than its limit. None: nothing is
    left."""
    if not isinstance(text, str):
        return None
    printable = "".join(it if it.isprintable() else " " for it in text).strip()[:limit].strip()
    try:
        return rule(printable)
    except ValueError:
        return None
