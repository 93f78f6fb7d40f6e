"""Formats events for people: one line per event, worded like the events on the web page."""

import json
from datetime import datetime
from typing import Any, Final

from holdlog.adapters.api.authors import author
from holdlog.adapters.cli.texts import by_force, duration, marked, moment_at, positions, short
from holdlog.domain.times import microseconds

Event = dict[str, Any]
"""A view of an event as JSON, or `event_fields` of it (api/events/event_view.py)."""

_WIDEST_LIST: Final = 160
"""Maximum characters of a list of keys; longer ones are cut."""


def line_of(event: Event) -> str:
    """One line: position, time and what happened. An expiry is shown at the time when it was due, not when it was
    noticed. A refused call (cli/refusals.py) has a dash instead of a position."""
    if event["kind"] == "Refusal":
        who = marked(event["by"]) or "a caller"
        return f"-  {moment_at(_time(event['at']))}  {who} was refused ({event['code']}): {event['what']}"
    redacted = " (redacted)" if event.get("redacted") else ""
    return f"{event['position']}  {time_of(event)}  {sentence_of(event)}{redacted}"


def time_of(event: Event) -> str:
    """The time to show for an event."""
    return moment_at(_time(event["due"] if "due" in event else event["at"]))


def _time(given: str | int) -> int:
    return given if isinstance(given, int) else microseconds(datetime.fromisoformat(given))


def sentence_of(event: Event) -> str:
    """Who did what."""
    who = author(marked(event["by"]), event.get("principal"))
    family = event["stream"].partition(":")[0]
    return _FAMILIES.get(family, _of_unknown)(event, who) or _of_unknown(event, who)


def _of_claim(event: Event, who: str) -> str:
    match event["kind"]:
        case "ClaimReleased" if "forced_by" in event:
            holder = author(marked(event["agent"]), event.get("holder_principal"))
            return f"{holder} lost {_resource(event)}, taken by {who}{_note(event)}"
        case "ClaimReleased":
            return f"{who} released {_resource(event)}{_outcome(event)}{_note(event)}"
        case "ClaimGranted":
            verb = "got" if "ticket" in event else "claimed"
            return f"{who} {verb} {_resource(event)}{_shared(event)}{_note(event)}"
        case "ClaimResumed":
            return f"{who} resumed {_resource(event)}{_shared(event)} from a session that ended{_note(event)}"
        case "ClaimExpired":
            unused = "" if event["collected"] else " before it was used"
            return f"{who} lost {_resource(event)}: the claim expired{unused}"
        case "ClaimQueued":
            return f"{who} waits for {_wanted(event)}{_shared(event)}{_note(event)}"
        case "ClaimUnqueued":
            why = {"absent": ", away too long", "granted": ", got another resource"}.get(event["why"], "")
            return f"{who} left the queue for {_resource(event)}{why}"
        case "FileChanged":
            digest = event.get("sha256")
            return (
                f"{who} {'changed' if digest else 'removed'} {_resource(event)}{f' to {digest[:12]}' if digest else ''}"
            )
        case _:
            return ""


def _of_value(event: Event, who: str) -> str:
    match event["kind"]:
        case "ValueWritten":
            value = "" if event.get("redacted") else f": {short(event['value'])}"
            return f"{who} wrote {_record(event)}{value}{_until(event)}{_undone(event)}{_forced(event)}{_reason(event)}"
        case "ValueDeleted":
            return f"{who} deleted {_record(event)}{_undone(event)}{_forced(event)}{_reason(event)}"
        case "ValueExpired":
            return f"{who}'s value expired: {_record(event)}"
        case _:
            return ""


def _of_thread(event: Event, who: str) -> str:
    thread = f"thread {event['thread']}"
    match event["kind"]:
        case "ThreadStarted":
            parent = f" from {event['parent']} (version {event['parent_version']})" if "parent" in event else ""
            return f"{who} started {thread}{parent}"
        case "MessageAppended":
            return f"{who} added a message to {thread}"
        case "ResultAppended":
            of = "" if event["agent"] == event["by"] else f" of {marked(event['agent'])}"
            return f"{who} added a result{of} to {thread}"
        case "ResultsCleared":
            return f"{who} cleared the results of {thread}"
        case "ThreadDataChanged":
            done = [f"{verb} {_listed(event[name])}" for verb, name in _DATA_CHANGES.items() if name in event]
            return f"{who} changed the data of {thread}: {'; '.join(done)}{_reason(event)}"
        case _:
            return ""


def _of_agent(event: Event, who: str) -> str:
    profile = ", ".join(event[name] for name in ("name", "model", "purpose") if event.get(name))
    return f"{who} registered: {profile}"


def _of_token(event: Event, who: str) -> str:
    match event["kind"]:
        case "TokenIssued":
            space = f" in space {event['space']}" if "space" in event else ""
            return f"{who} issued token {event['name']} for {', '.join(event['allow'])}{space}{_until(event)}"
        case "TokenRotated":
            end = _time(event["overlap_until"])
            has_overlap = end > _time(event["at"])
            overlap = f"; the old secret is valid until {moment_at(end)}" if has_overlap else ""
            return f"{who} rotated token {event['name']}{overlap}"
        case "TokenRevoked":
            return f"{who} revoked token {event['name']}"
        case _:
            return ""


def _of_store(event: Event, who: str) -> str:
    match event["kind"]:
        case "PayloadRedacted":
            versions = ", ".join(
                f"{first}" if first == last else f"{first} to {last}" for first, last in event["versions"]
            )
            return f"{who} redacted the {event['part']} of {event['target']}, version {versions}{_reason(event)}"
        case "LogForked":
            return f"this log is a copy of store {event['source']}, made at its position {event['at_position']}"
        case "RetentionChanged":
            kept = f"are kept for {duration(event['seconds'])}" if "seconds" in event else "are kept"
            return f"{who} decided: former values of {event['namespace']} {kept}{_reason(event)}"
        case _:
            return ""


def _of_unknown(event: Event, who: str) -> str:
    return f"{who} {event['kind']} {event['stream']}"


_FAMILIES: Final = {
    "claim": _of_claim,
    "record": _of_value,
    "thread": _of_thread,
    "agent": _of_agent,
    "token": _of_token,
    "store": _of_store,
}
"""The function for each kind of stream, by the first word of the stream's name."""
_DATA_CHANGES: Final = {"wrote": "written", "deleted": "deleted"}


def _until(event: Event) -> str:
    return f", until {moment_at(_time(event['expires_at']))}" if "expires_at" in event else ""


def _forced(event: Event) -> str:
    """That a write overwrote or deleted what its author may not have read. Updates read it."""
    operation = event.get("operation")
    shown = event.get("forced") and operation in ("set", "delete")
    return f" ({by_force(operation, event['version']).removeprefix('deleted ')})" if shown else ""


def _undone(event: Event) -> str:
    return f", undoing {positions(*event['undoes'])}" if "undoes" in event else ""


def _resource(event: Event) -> str:
    return marked(event["resource"])


def _record(event: Event) -> str:
    return f"{event['namespace']}/{event['key']}"


def _wanted(event: Event) -> str:
    """The resources that a ticket waits for: all of several, or one of several."""
    others, word = (event["also"], " and ") if "also" in event else (event.get("alternatives", ()), " or ")
    return word.join(map(marked, (event["resource"], *others)))


def _shared(event: Event) -> str:
    return " (shared)" if event["mode"] == "shared" else ""


def _outcome(event: Event) -> str:
    outcome = "" if event["outcome"] == "released" else f", {event['outcome']}"
    to = f" to {marked(event['moved_to'])}" if "moved_to" in event else ""
    return outcome + to


def _note(event: Event) -> str:
    return f": {event['note']}" if event.get("note") else ""


def _reason(event: Event) -> str:
    return f" (reason: {event['reason']})" if event.get("reason") else ""


def _listed(keys: list[str]) -> str:
    text = json.dumps(keys, ensure_ascii=False)[1:-1] if any(" " in key for key in keys) else ", ".join(keys)
    return text if len(text) <= _WIDEST_LIST else text[: _WIDEST_LIST - 1] + "…"
