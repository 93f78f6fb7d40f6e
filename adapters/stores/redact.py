"""Redaction in the tables of both stores: removes texts and their salts from the log, and texts from remembered
requests and losses."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.stores.chain import PAGE
from holdlog.adapters.stores.codec import hash_payload
from holdlog.domain.redaction import MAX_TEXTS, Quotes, Text
from holdlog.domain.refusals import InvalidError

Execute = Callable[[str, dict[str, Any]], list[Any]]
_COLUMNS: Final = "SELECT position, stream, version, meta, payload, salt FROM events WHERE"
_TEXT: Final = f"{_COLUMNS} stream = :stream AND version = :version"
_OLD_TEXTS: Final = (
    f"{_COLUMNS} position > :after AND at <= :before AND payload <> '{{}}' AND ((stream >= 'claim:' AND stream <"
    " 'claim;') OR (stream >= 'record:' AND stream < 'record;')) ORDER BY position LIMIT :limit"
)
_CURRENT_VERSION: Final = (
    "SELECT version FROM current WHERE stream = :stream AND exists_now = 1"
    " AND (expires_at IS NULL OR expires_at > :now)"
)
_LIVE_NOTES: Final = "SELECT version, note FROM claims WHERE resource = :resource"
_PRESENT: Final = (
    "SELECT position FROM events WHERE payload IS NOT NULL"
    " AND position IN (SELECT CAST(value AS BIGINT) FROM json_each(:positions)) ORDER BY position"
)
_REDACT: Final = "UPDATE events SET payload = NULL, salt = NULL, payload_hash = :hash WHERE position = :position"
_RESULTS: Final = (
    "SELECT principal, request_id, result FROM requests WHERE (principal, request_id) > (:principal, :request_id)"
    " AND position >= :since AND result <> '' ORDER BY principal, request_id LIMIT :limit"
)
_FORGET: Final = (
    "UPDATE requests SET fingerprint = '', result = '' WHERE principal = :principal AND request_id = :request_id"
)
_LOSSES: Final = "SELECT session, principal, agent, lost FROM holders WHERE lost IS NOT NULL"
_PUT_LOSSES: Final = (
    "UPDATE holders SET lost = :lost WHERE session = :session AND principal = :principal AND agent = :agent"
)


def find_text(reader: Reader, stream: str, version: int) -> list[Text]:
    """The text of an event; empty if it has none or was redacted. Raises InvalidError if the log has no such event."""
    rows = reader.read(_TEXT, {"stream": stream, "version": version})
    if not rows:
        raise InvalidError("event: the log has no such event; an id is like record:order-1/card@3")
    return [Text(*row) for row in rows if row[4] not in (None, "{}")]


def find_old_texts(reader: Reader, before: int, after: int) -> list[Text]:
    """Texts in values and claims of events up to a time, after a position: up to MAX_TEXTS, in order."""
    rows = reader.read(_OLD_TEXTS, {"after": after, "before": before, "limit": MAX_TEXTS})
    return [Text(*row) for row in rows]


def is_current(reader: Reader, text: Text) -> bool:
    """Whether the text is a current value, or the note of a live claim (also one that came from its ticket). A text
    that is not current never becomes current again."""
    kind, _, name = text.stream.partition(":")
    if kind == "claim":
        note = json.loads(text.payload).get("note")
        rows = reader.read(_LIVE_NOTES, {"resource": name})
        return any(version == text.version or (note is not None and note == live) for version, live in rows)
    return (text.version,) in map(tuple, reader.read(_CURRENT_VERSION, {"stream": text.stream, "now": reader.now()}))


def list_quoting_requests(execute: Execute, quotes: Quotes, since: int) -> Iterator[dict[str, str]]:
    """The keys of remembered requests after the position `since` whose results contain one of the texts."""
    key = {"principal": "", "request_id": ""}
    while rows := execute(_RESULTS, key | {"since": since, "limit": PAGE}):
        for principal, request_id, result in rows:
            key = {"principal": principal, "request_id": request_id}
            if quotes.match(json.loads(result)):
                yield key


def remove_texts(execute: Execute, texts: list[Text], quoting: list[dict[str, str]], since: int) -> tuple[int, ...]:
    """Remove former texts from the tables, in a transaction. `quoting`: what `list_quoting_requests` returned when
    the log ended at `since`. Returns the positions of the texts that were still there."""
    positions = json.dumps([text.position for text in texts])
    present = tuple(position for (position,) in execute(_PRESENT, {"positions": positions}))
    quotes, keys = Quotes(texts), [*quoting]
    for text in texts:
        execute(_REDACT, {"position": text.position, "hash": hash_payload(text.payload, bytes(text.salt))})
        meta = json.loads(text.meta)
        if "request_id" in meta:
            keys.append({"principal": meta.get("principal", ""), "request_id": meta["request_id"]})
    for key in (*keys, *list_quoting_requests(execute, quotes, since)):
        execute(_FORGET, key)
    for session, principal, agent, text in execute(_LOSSES, {}):
        lost = json.dumps([(*loss[:3], None if loss[3] in quotes.notes else loss[3]) for loss in json.loads(text)])
        if lost != text:
            execute(_PUT_LOSSES, {"lost": lost, "session": session, "principal": principal, "agent": agent})
    return present
