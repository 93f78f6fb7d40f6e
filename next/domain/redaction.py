"""Redaction: texts leave the log, and their hashes stay, so that the digests verify."""

import json
from typing import Any, Final, NamedTuple

from holdlog.domain.log import TextsRedacted
from holdlog.domain.names import split_stream
from holdlog.domain.refusals import InvalidError

MAX_TEXTS: Final = 200
"""Texts of one event, because other writers wait meanwhile."""
_LEAST_PART: Final = 8
"""Characters of a text that may not be part of the reason; a shorter one may not be the reason."""


class Text(NamedTuple):
    """What people wrote into an event: the payload of a row of the log."""

    position: int
    stream: str
    version: int
    meta: str
    payload: str


def redact(texts: list[Text], stream: str, by: str, reason: str) -> list[TextsRedacted]:
    """Redact former texts. `stream`: that of events about this store. Raises InvalidError for a reason that repeats a
    text."""
    for text in texts:
        if any(part == reason or (len(part) >= _LEAST_PART and part in reason) for part in list_parts(text)):
            raise InvalidError("reason: contains the text that it is about, or a part of it; say why without it")
    return [TextsRedacted(stream, by, tuple(text.position for text in texts), reason)] if texts else []


def list_parts(text: Text) -> list[str]:
    """All texts within a payload, except the names of members."""
    parts: list[str] = []
    rest: list[Any] = [json.loads(text.payload)]
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict | list):
            rest += part.values() if isinstance(part, dict) else part
    return parts


def list_quotes(text: Text) -> list[str]:
    """Parts of remembered results, as JSON, that name the stream of the text or quote it."""
    if text.stream.startswith("record:"):
        return [json.dumps(split_stream(text.stream))[:-1] + ","]
    return [json.dumps(text.stream.partition(":")[2]), *map(json.dumps, list_parts(text))]
