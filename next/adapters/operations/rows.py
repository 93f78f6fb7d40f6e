"""Rows of the stores as results."""

from typing import Any, Final

from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.stores import sql
from holdlog.domain import records
from holdlog.domain.names import end_of_range, split_stream
from holdlog.domain.results import NotFound, utc
from holdlog.projections.results import EventEntry, HistoryEntry, StateRecord

NO_LIMIT: Final = 2**62
PAGE_CHARACTERS: Final = 500_000
"""Text of the values on a page, which has at least one value."""
PAGE_EVENTS: Final = 1_000
"""Events that are read for a page of the log."""
MAX_TRANSACTION: Final = 100_000
"""Events of the longest transaction that comes on one page."""


def show_record(row: Any, now: int) -> StateRecord:
    stream, version, at, meta, payload, expires_at = row[:6]
    about = from_json(meta)
    value = from_json(payload).get("value") if payload is not None else None
    namespace, key = split_stream(stream)
    by, principal = about.get("by"), about.get("principal")
    ends, left = (utc(expires_at), max(0, expires_at - now) / 1_000_000) if expires_at is not None else (None, None)
    return StateRecord(namespace, key, value, version, by, utc(at), ends, left, principal)


def is_live(row: Any, now: int) -> bool:
    """Whether the key of the row has a value: not deleted, nor expired, recorded or not."""
    exists, expires_at = row[6], row[5]
    return bool(exists) and (expires_at is None or expires_at > now)


def show_any(row: Any, now: int) -> StateRecord:
    """Like `show_record`; a deleted or expired key has no value."""
    record = show_record(row, now)
    if is_live(row, now):
        return record
    return record._replace(value=None, version=record.version + bool(row[6]), expires_in_seconds=None)


def describe_deletion(namespace: str, key: str, row: Any) -> NotFound:
    """What is known of a value that was deleted, or expired."""
    version, at, about, expires_at, exists = row[1], row[2], from_json(row[3]), row[5], row[6]
    return NotFound(namespace, key, version + bool(exists), about.get("by"), utc(expires_at if exists else at))


def read_page(view: Reader, query: str, prefix: str, after: str, limit: int) -> tuple[list[Any], bool]:
    """The rows of a page, which also ends after so many characters, and whether there are more."""
    parameters = {"first": prefix, "end": end_of_range(prefix), "after": after, "now": view.now(), "limit": limit + 1}
    rows: list[Any] = []
    size = 0
    for row in view.read(query, parameters):
        size += len(row[4] or "")
        if rows and (len(rows) == limit or size > PAGE_CHARACTERS):
            return rows, True
        rows.append(row)
    return rows, False


def read_history(reader: Reader, stream: str, before: int, limit: int) -> tuple[list[HistoryEntry], bool]:
    """Versions before one, the newest first, and whether there are more."""
    rows = reader.read(sql.HISTORY, {"stream": stream, "before": before, "limit": limit + 1})
    entries: list[HistoryEntry] = []
    by = from_json(rows[limit][3]).get("by") if len(rows) > limit else ""
    for version, topic, at, meta, payload, position in reversed(rows[:limit]):
        get = from_json(meta).get
        by = get("by") or by  # an expiry is that of its writer
        content = from_json(payload) if payload is not None else {}
        kind = records.EVENT_TYPES[topic] if payload is not None else "redact"
        basis = get("based_on"), get("forced"), get("principal")
        value, reason = content.get("value"), content.get("reason")
        entries.append(HistoryEntry(version, value, by, utc(at), kind, position, reason, *basis))
    return entries[::-1], len(rows) > limit


def read_position(reader: Reader) -> int:
    rows = reader.read(sql.HEAD, {})
    return int(rows[0][0]) if rows else 0


def show_event(row: Any) -> EventEntry:
    position, stream, version, topic, at, meta, payload = row[:7]
    fields = from_json(meta) | (from_json(payload) if payload is not None else {})
    if "expires_at" in fields:
        fields["expires_at"] = utc(fields["expires_at"])
    if "due" in fields:
        fields["due"] = utc(fields["due"])
    if stream.startswith("record:"):
        namespace, key = split_stream(stream)
        fields |= {"namespace": namespace, "key": key}
    elif stream.startswith("claim:"):
        fields["resource"] = stream.removeprefix("claim:")
    return EventEntry(position, f"{stream}@{version}", stream, version, topic, utc(at), fields.pop("by", None), fields)


def read_transactions(view: Reader, after: int) -> tuple[list[Any], bool]:
    """Whole transactions after a position, of up to 1,000 events or one longer, and whether the log ends there. The
    events of a transaction have one time."""
    rows = block = view.read(sql.EVENTS, {"after": after, "limit": PAGE_EVENTS})
    while len(block) == PAGE_EVENTS and rows[0][4] == rows[-1][4] and len(rows) < MAX_TRANSACTION:
        block = view.read(sql.EVENTS, {"after": rows[-1][0], "limit": PAGE_EVENTS})
        rows = rows + block
    if len(block) < PAGE_EVENTS:
        return rows, True
    whole = [row for row in rows if row[4] != rows[-1][4]]  # the last transaction may have been cut
    return whole or rows, False
