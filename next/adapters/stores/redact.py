"""Redaction in the tables: texts and their salts leave the log and what remembers them elsewhere. For both stores."""

import json
from typing import Any, Final

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import hash_payload
from holdlog.domain.moment import Caller
from holdlog.domain.names import end_of_range
from holdlog.domain.redaction import MAX_TEXTS, Text, list_quotes, redact
from holdlog.domain.refusals import InvalidError
from holdlog.domain.state import Record
from holdlog.projections.fold import fold

_TEXT: Final = (
    "SELECT position, stream, version, meta, payload FROM events WHERE stream = :stream AND version = :version"
)
_OLD_TEXTS: Final = (
    "SELECT position, stream, version, meta, payload FROM events WHERE position > :after AND at <= :before"
    " AND payload <> '{}' AND ((stream >= :claims AND stream < :claims_end) OR (stream >= :values AND stream <"
    " :values_end)) ORDER BY position LIMIT :limit"
)
_RANGES: Final = {
    "claims": "claim:",
    "claims_end": end_of_range("claim:"),
    "values": "record:",
    "values_end": end_of_range("record:"),
}
_CURRENT_VERSION: Final = (
    "SELECT version FROM current WHERE stream = :stream AND exists_now = 1"
    " AND (expires_at IS NULL OR expires_at > :now)"
)
_LIVE_NOTES: Final = "SELECT version, note FROM claims WHERE resource = :resource"
_RECORD: Final = "SELECT stream, version, position FROM current WHERE stream = :stream"
_SALT: Final = "SELECT salt FROM events WHERE position = :position"
_REDACT: Final = "UPDATE events SET payload = NULL, salt = NULL, payload_hash = :hash WHERE position = :position"
_FORGET: Final = "UPDATE requests SET fingerprint = '', result = '' WHERE"
_FORGET_CAUSE: Final = f"{_FORGET} principal = :principal AND request_id = :request_id"
_FORGET_RESULTS: Final = f"{_FORGET} result <> replace(result, :quote, '')"
_FORGET_LOSSES: Final = "UPDATE holders SET lost = replace(lost, :quote, 'null') WHERE lost IS NOT NULL"


def find_text(view: Reader, stream: str, version: int) -> list[Text]:
    """The text of an event; none if it was redacted. Raises InvalidError if the log has no such event."""
    rows = view.read(_TEXT, {"stream": stream, "version": version})
    if not rows:
        raise InvalidError("event: the log has no such event")
    return [Text(*row) for row in rows if row[4] is not None]


def find_old_texts(view: Reader, before: int, after: int) -> list[Text]:
    """Texts in values and claims of events up to a time, after a position: up to MAX_TEXTS, in order."""
    return [
        Text(*row) for row in view.read(_OLD_TEXTS, {"after": after, "before": before, "limit": MAX_TEXTS} | _RANGES)
    ]


def is_current(view: Reader, text: Text) -> bool:
    """Whether it is a current value, or the note of a live claim, which may come from its ticket. A former text never
    becomes one again."""
    kind, _, name = text.stream.partition(":")
    if kind == "claim":
        note = json.loads(text.payload).get("note")
        rows = view.read(_LIVE_NOTES, {"resource": name})
        return any(version == text.version or (note is not None and note == live) for version, live in rows)
    return (text.version,) in map(tuple, view.read(_CURRENT_VERSION, {"stream": text.stream, "now": view.now()}))


def redact_texts(engine: Engine, caller: Caller, texts: list[Text], by: str, reason: str) -> tuple[int, int]:
    """Redact former texts in one transaction. Returns how many, and the position of the event that says so. Raises
    InvalidError."""
    execute = engine.store.execute
    with engine.write_alone() as batch:
        stream = f"store:{execute(sql.STORE_ID, {})[0][0]}"
        batch.state.records[stream] = Record(*next(iter(execute(_RECORD, {"stream": stream})), (stream,)))
        salts = {text.position: execute(_SALT, {"position": text.position})[0][0] for text in texts}
        texts = [it for it in texts if it.payload != "{}" and salts[it.position] is not None]  # others were faster
        position = batch.head.position
        for event in redact(texts, stream, by, reason):
            engine.append(event, fold(batch.state, event, position := position + 1), caller, batch)
        for text in texts:
            hashed = hash_payload(text.payload, bytes(salts[text.position]))
            execute(_REDACT, {"position": text.position, "hash": hashed})
            about: dict[str, Any] = json.loads(text.meta)
            cause = {"principal": about.get("principal", ""), "request_id": about.get("request_id", "")}
            execute(_FORGET_CAUSE, cause)
        for quote in sorted({quote for text in texts for quote in list_quotes(text)}):
            execute(_FORGET_RESULTS, {"quote": quote})
            execute(_FORGET_LOSSES, {"quote": quote})
    return len(texts), position
