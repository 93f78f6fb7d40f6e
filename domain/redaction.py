"""Redaction: texts leave the log, and their hashes stay, so that the digests verify. Also the events about a log."""

import json
from typing import Any, Final, NamedTuple

from holdlog.domain.claims.results import Claimed
from holdlog.domain.names import split_stream
from holdlog.domain.refusals import InvalidError

MAX_TEXTS: Final = 200
"""Texts of one event, because other writers wait meanwhile."""
_LEAST_PART: Final = 6
"""Characters of a text that may not be part of the reason; a shorter one may not be the reason."""
_PREVIOUS_NOTE: Final = Claimed._fields.index("previous_note")

# --- events


class Imported(NamedTuple):
    """All earlier events come from the store with the id `store`, whose log ended at position `last` with `digest`."""

    stream: str
    store: str
    last: int
    digest: str


class TextsRedacted(NamedTuple):
    """The events at these positions lost payload and salt."""

    stream: str
    by: str
    positions: tuple[int, ...]
    reason: str | None = None


# --- rules


class Text(NamedTuple):
    """What people wrote into an event: the payload of a row of the log."""

    position: int
    stream: str
    version: int
    meta: str
    payload: str
    salt: bytes


def require_other(reason: str, text: Text) -> None:
    """Raises InvalidError for a reason that repeats the text, or a part of it."""
    parts: list[Any] = [json.loads(text.payload)]
    for part in parts:  # which grows
        said = str(part) if type(part) in (str, int, float) else ""
        if said and (said == reason or (len(said) >= _LEAST_PART and said in reason)):
            raise InvalidError("reason: contains the text that it is about, or a part of it; say why without it")
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


class Quotes:
    """Finds these texts in the results of remembered requests, which are lists."""

    def __init__(self, texts: list[Text]) -> None:
        self.notes = {json.loads(text.payload).get("note") for text in texts if text.stream.startswith("claim:")}
        values = [text for text in texts if text.stream.startswith("record:")]
        self._positions = {text.position for text in values}
        self._versions = {(*split_stream(text.stream), text.version) for text in values}

    def match(self, result: list[Any]) -> bool:
        """Whether a result has one of the values, which its update or transaction may have left unchanged, or one of
        the notes: the previous one, or one of a waiter or a loss."""
        if type(result[0]) is list and any(tuple(step[:3]) in self._versions for step in result[0]):
            return True
        if any(type(part) is int and part in self._positions for part in result[-3:-2]):
            return True
        rows = [row for part in result[-3:-1] if type(part) is list for row in part if type(row) is list]
        notes = [row[-1] for row in rows] + ([result[_PREVIOUS_NOTE]] if result[-1] == "claimed" else [])
        return any(type(note) is str and note in self.notes for note in notes)
