"""How surfaces show an author: the name that the caller chose, and the principal that was authenticated.
People see `root (token ci)` for an authenticated author; programs get a field `principal` next to the name.
"""

import json
import re
import unicodedata
from functools import cache, lru_cache
from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event

_STATIC: Final = "static"
_IMITATES: Final = re.compile(r"\(\s*(static\s+)?(token|jwt)\b|^(token|jwt):|^static(\s+token)?$", re.IGNORECASE)


@lru_cache(4096)
def author(name: str, principal: str | None) -> str:
    """Format an author for people: `root (token ci)`; the name alone if nobody was authenticated or the name is the
    principal. A name that imitates an authenticated author is quoted."""
    if principal == name:
        return name
    shown = json.dumps(name, ensure_ascii=False) if _IMITATES.search(unicodedata.normalize("NFKC", name)) else name
    return shown if principal is None else f"{shown} ({in_words(principal)})"


def in_words(principal: str) -> str:
    """Format a principal: `token ci`, `jwt ann@example.org`, `static token`."""
    kind, _, name = principal.partition(":")
    return "static token" if principal == _STATIC else f"{kind} {name}" if name else principal


def principal_of(recorded: Recorded[Event]) -> str | None:
    """The principal that was authenticated for the author of an event (events/event_filter.py: `done_by`).
    An event about one holder, waiter or author has a principal field if another call may cause it: the envelope of a
    grant from the queue belongs to the release.
    """
    event = recorded.event
    principal: str | None = event.principal if _names_principal(type(event)) else recorded.envelope.caller.principal  # type: ignore[attr-defined]
    return principal


@cache
def _names_principal(kind: type[Event]) -> bool:
    return "principal" in kind.model_fields
