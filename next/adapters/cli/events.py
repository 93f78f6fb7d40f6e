"""Events and refusals for people, a line each."""

from datetime import datetime
from typing import Any

from holdlog.adapters.cli.texts import escape, show_author, show_fields, show_time, show_value

Event = dict[str, Any]
_ENVELOPE = ("position", "id", "stream", "version", "kind", "at", "by", "principal", "session", "correlation_id")


def show_line(event: Event) -> str:
    """Position, time and what happened. A refusal has a dash instead of a position. An expiry has the time when it was
    due."""
    at = show_time(datetime.fromisoformat(event.get("due") or event["at"]))
    if "code" in event:
        what = event.get("message") or event.get("resource") or f"{event.get('namespace')}/{event.get('key')}"
        return escape(f"-  {at}  {event.get('by') or 'a caller'} was refused ({event['code']}): {what}", kept="")
    return escape(f"{event['position']}  {at}  {show_sentence(event)}", kept="")


def show_sentence(event: Event) -> str:
    """Who did what."""
    who = show_author(event.get("by"), event.get("principal"))
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
            return f"{who} lost {resource}, taken by {event['forced_by']}"
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
        case _:
            pass
    fields = {name: content for name, content in event.items() if name not in _ENVELOPE and content is not None}
    return f"{who} {event['kind']} {show_fields(fields)}".strip()


def _show_reason(event: Event) -> str:
    reason = event.get("reason") or event.get("note")
    return f" ({reason})" if reason else ""
