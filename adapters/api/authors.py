"""How surfaces show an author: the name that a caller gave, and the principal that was authenticated for it.

Callers choose their names. Where somebody was authenticated, people see `root (token ci)`, and programs get a field
`principal` next to the name.
"""

import json
import re
import unicodedata
from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event

_STATIC: Final = "static"
_IMITATES: Final = re.compile(r"\(\s*(static\s+)?(token|jwt)\b|^(token|jwt):|^static(\s+token)?$", re.IGNORECASE)


def author(name: str, principal: str | None) -> str:
    """For people: `root (token ci)`; the name alone where nobody was authenticated, or where it is the principal. A
    name that looks as if somebody had been authenticated is quoted."""
    if principal == name:
        return name
    shown = json.dumps(name, ensure_ascii=False) if _IMITATES.search(unicodedata.normalize("NFKC", name)) else name
    return shown if principal is None else f"{shown} ({in_words(principal)})"


def in_words(principal: str) -> str:
    """`token ci`, `jwt ann@example.org`, `static token`."""
    kind, _, name = principal.partition(":")
    return "static token" if principal == _STATIC else f"{kind} {name}" if name else principal


def principal_of(recorded: Recorded[Event]) -> str | None:
    """Who was authenticated as the author of an event (events/choice.py: `done_by`).

    An event about one holder, waiter or author names its principal itself where another call may cause it: the
    envelope of a grant from the queue is that of the release."""
    event = recorded.event
    own = "principal" in type(event).model_fields
    principal: str | None = getattr(event, "principal", None) if own else recorded.envelope.caller.principal
    return principal
