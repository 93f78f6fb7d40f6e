"""Rows of the stores as results."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.stores import sql
from holdlog.domain.names import end_of_range, split_stream
from holdlog.domain.records import EVENT_TYPES
from holdlog.domain.results import NotFound, utc
from holdlog.projections.results import EventEntry, HistoryEntry, RefusalEntry, StateRecord

NO_LIMIT: Final = 2**62
PAGE_CHARACTERS: Final = 500_000
"""Text of the values on a page, which has at least one value."""
PAGE_EVENTS: Final = 1_000
"""Events that are read for a page of the log."""
FIRST_ROWS: Final = 16
"""Rows that are read at once before their size is known."""


def show_record(row: Any, now: int) -> StateRecord:
    stream, version, at, meta, payload, expires_at = row[:6]
    fields = from_json(meta)
    value = from_json(payload).get("value") if payload is not None else None
    namespace, key = split_stream(stream)
    by, principal = fields.get("by"), fields.get("principal")
    redacted = True if payload is None else None
    return StateRecord(namespace, key, value, version, by, utc(at), *show_expiry(expires_at, now), principal, redacted)


def show_expiry(expires_at: int | None, now: int) -> tuple[datetime | None, float | None]:
    """When something expires, and in how many seconds."""
    return (None, None) if expires_at is None else (utc(expires_at), max(0, expires_at - now) / 1_000_000)


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
    version, at, fields, expires_at, exists = row[1], row[2], from_json(row[3]), row[5], row[6]
    return NotFound(namespace, key, version + bool(exists), fields.get("by"), utc(expires_at if exists else at))


def scan(
    reader: Reader, query: str, parameters: dict[str, Any], rows: int, cursor: str = "after", payload: int = 4
) -> Iterator[Any]:
    """The rows of a query, read in blocks of about PAGE_CHARACTERS, so that long texts do not fill the memory. The
    first column is the `cursor`; `rows`: that are needed; `payload`: its column."""
    limit = min(rows, FIRST_ROWS)
    while block := reader.read(query, parameters | {"limit": limit}):
        yield from block
        if len(block) < limit:
            return
        parameters = parameters | {cursor: block[-1][0]}
        average = sum(len(row[payload] or "") for row in block) // limit + 1
        limit = max(1, min(8 * limit, PAGE_EVENTS, PAGE_CHARACTERS // average))


def read_page(snapshot: Reader, query: str, prefix: str, after: str, limit: int) -> tuple[list[Any], bool]:
    """The rows of a page, and whether there are more."""
    parameters = {"first": prefix, "end": end_of_range(prefix), "after": after, "now": snapshot.now()}
    return cut_page(scan(snapshot, query, parameters, limit + 1), limit)


def cut_page(rows: Iterable[Any], limit: int, payload: int = 4) -> tuple[list[Any], bool]:
    """The first rows, up to a number and PAGE_CHARACTERS, and whether there are more."""
    page: list[Any] = []
    size = 0
    for row in rows:
        size += len(row[payload] or "")
        if page and (len(page) == limit or size > PAGE_CHARACTERS):
            return page, True
        page.append(row)
    return page, False


def read_history(reader: Reader, stream: str, before: int, limit: int) -> tuple[list[HistoryEntry], bool]:
    """Versions before one, the newest first, and whether there are more."""
    rows = reader.read(sql.HISTORY, {"stream": stream, "before": before, "limit": limit + 1})
    entries: list[HistoryEntry] = []
    by = from_json(rows[limit][3]).get("by") if len(rows) > limit else ""
    for version, topic, at, meta, payload, position in reversed(rows[:limit]):
        get, kind = from_json(meta).get, EVENT_TYPES[topic] if payload is not None else "redact"
        by = get("by") or by  # an expiry is that of its writer
        content = from_json(payload) if payload is not None else {}
        value, reason, basis = content.get("value"), content.get("reason"), get("based_on")
        at, forced, principal = utc(at), get("forced"), get("principal")
        entries.append(HistoryEntry(version, value, by, at, kind, position, reason, basis, forced, principal))
    return entries[::-1], len(rows) > limit


def find_version(reader: Reader, stream: str, position: int) -> Any:
    """The row of the last event of a stream until a position, which starts with stream and version; None without."""
    rows = reader.read(sql.RECORD_AT, {"stream": stream, "position": position})
    return rows[0] if rows else None


def read_position(reader: Reader) -> int:
    rows = reader.read(sql.HEAD, {})
    return int(rows[0][0]) if rows else 0


def show_event(row: Any) -> EventEntry:
    position, stream, version, topic, at, meta, payload = row[:7]
    fields = from_json(meta) | (from_json(payload) if payload is not None else {})
    fields |= _name_subject(stream)
    if "resource" in fields:
        fields["agent"] = fields.get("by")
    if "expires_at" in fields:
        fields["expires_at"] = utc(fields["expires_at"])
    if "due" in fields:
        fields["due"] = utc(fields["due"])
    if topic == "TokenCreated":
        del fields["hash"]
    return EventEntry(position, f"{stream}@{version}", stream, version, topic, utc(at), fields.pop("by", None), fields)


def show_refusal(row: Any) -> RefusalEntry:
    position, at, code, stream, meta, _ = row
    return RefusalEntry(position, code, utc(at), **from_json(meta), **_name_subject(stream))


def _name_subject(stream: str) -> dict[str, str]:
    """What an event or refusal is about."""
    kind, _, name = stream.partition(":")
    if kind == "record":
        return dict(zip(("namespace", "key"), split_stream(stream), strict=True))
    if kind == "claim":
        return {"resource": name}
    return {kind: name} if kind in ("thread", "token") else {}
