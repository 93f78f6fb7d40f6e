"""Formats that all commands share. All text that agents wrote is escaped: terminals interpret control characters."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from holdlog.adapters.operating_system.files import escape, format_duration

NEXT_STEP: Final = "the first claim or set creates it, for example: holdlog claim README.md"
WIDEST_VALUE: Final = 60
"""Characters of a value in a table."""
_MARKS: Final = {"ok": ("✓", "ok", 32), "warning": ("!", "!", 33), "bad": ("✗", "x", 31)}
_to_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def print_note(line: str) -> None:
    """Print a line for the user on standard error; results go to standard output."""
    sys.stderr.write(f"holdlog: {escape(line, allowed='')}\n")


def print_text(text: str) -> None:
    sys.stdout.write(f"{escape(text)}\n")


def print_json(fields: object) -> None:
    """Print an object as JSON, on one line."""
    sys.stdout.write(f"{escape(_to_json(fields))}\n")
    sys.stdout.flush()


def show_value(value: object, redacted: bool | None = None) -> str:
    """A value as JSON, cut to the width of a table."""
    text = "redacted" if redacted else _to_json(value)
    return text if len(text) <= WIDEST_VALUE else text[: WIDEST_VALUE - 1] + "…"


def show_author(name: str | None, principal: str | None = None) -> str:
    """`root (token ci)` for the agent `root` with the principal `token:ci`."""
    return f"{name} ({principal.replace(':', ' ')})" if principal else name or ""


def show_time(time: datetime) -> str:
    """UTC, to the millisecond."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03} UTC"


def show_clock(time: datetime) -> str:
    """As `show_time`, without the date if it is today."""
    text = show_time(time)
    return text.partition(" ")[2] if time.astimezone(UTC).date() == datetime.now(UTC).date() else text


def show_since(time: datetime, seconds: float) -> str:
    return f"since {show_clock(time)} ({format_duration(seconds)})"


def show_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns, one line for each row, without columns that are empty."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    cells = [tuple(escape(cell, allowed="") for cell in row) for row in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def show_fields(fields: dict[str, Any]) -> str:
    """`name value, name value`, without status and hint."""
    texts = {name: value if isinstance(value, str) else _to_json(value) for name, value in fields.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items() if name not in ("status", "hint"))


def show_finding(level: str, name: str, text: str, stream: TextIO) -> str:
    """A line of a diagnosis, with a mark: `ok`, `warning` or `bad`."""
    mark, plain, colour = _MARKS[level]
    try:
        mark.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        mark = f"{plain:<2}"
    if is_coloured(stream):
        mark = f"\x1b[{colour}m{mark}\x1b[0m"
    return f"{mark} {name:<9} {escape(text, allowed='')}"


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream shows colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


Event = dict[str, Any]
_ENVELOPE = ("position", "id", "stream", "version", "kind", "at", "by", "principal", "session", "correlation_id")


def show_line(event: Event) -> str:
    """Position, time and sentence of an event. A refusal has a dash instead of a position. For an expiry, the time is
    when the lease ended."""
    at = show_time(datetime.fromisoformat(event.get("due") or event["at"]))
    if "code" in event:
        key = f"{event.get('namespace')}/{event['key']}" if "key" in event else ""
        what, message = event.get("resource") or key, event.get("message") or ""
        what = message if what in message else f"{what}: {message}" if message else what
        return escape(f"-  {at}  {event.get('by') or 'a caller'} was refused ({event['code']}): {what}", allowed="")
    return escape(f"{event['position']}  {at}  {show_sentence(event)}", allowed="")


def show_sentence(event: Event) -> str:
    """A sentence that says who did what, and why."""
    is_of_others = "forced_by" in event or event["kind"] in ("OfferExpired", "ClaimUnqueued")
    caller = None if is_of_others else event.get("principal")  # of the call, which need not be the holder's
    who = show_author(event.get("by"), event.get("of_principal") if "of_session" in event else caller)
    return f"{_show_change(event, who)}{_show_reason(event)}"


def _show_change(event: Event, who: str) -> str:
    resource = event.get("resource")
    value = f"{event.get('namespace')}/{event.get('key')}"
    match event["kind"]:
        case "ValueWritten":
            content = f": {show_value(event['value'])}" if "value" in event else " (redacted)"
            return f"{who} wrote {value}{content}{' by force' if event.get('forced') else ''}"
        case "ValueDeleted":
            return f"{who} deleted {value}"
        case "ValueExpired":
            return f"the value of {value} expired"
        case "ClaimGranted":
            verb = "got" if "ticket" in event else "claimed"
            return f"{who} {verb} {resource}{', shared' if event.get('mode') == 'shared' else ''}"
        case "ClaimReleased" if "forced_by" in event:
            return f"{who} lost {resource}, taken by {show_author(event['forced_by'], event.get('principal'))}"
        case "ClaimReleased":
            outcome = event.get("outcome", "released")
            return f"{who} released {resource}{'' if outcome == 'released' else f', {outcome}'}"
        case "ClaimExpired":
            return f"{who} lost {resource}: the claim expired"
        case "ClaimQueued":
            return f"{who} waits for {', '.join([str(resource), *event.get('also', ())])}"
        case "ClaimUnqueued":
            return f"{who} left the queue for {resource}"
        case "FileChanged":
            return f"{who} {'changed' if event.get('sha256') else 'removed'} {resource}"
        case "MessageAppended":
            return f"{who} added a message to thread {event.get('thread')}"
        case "ResultAppended":
            return f"{who} added a result to thread {event.get('thread')}"
        case "Imported":
            return f"the log of store {event['store']} was imported up to position {event['last']}"
        case _:
            pass
    hidden = (*_ENVELOPE, "reason")
    fields = {name: content for name, content in event.items() if name not in hidden and content is not None}
    return f"{who} {event['kind']} {show_fields(fields)}".strip()


def _show_reason(event: Event) -> str:
    reason = event.get("reason") or event.get("note")
    return f" ({reason})" if reason else ""
