"""Formats answers to questions about what happened. The names in them come from agents, so they are escaped."""

from datetime import datetime

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.questions.responses import HoldEntry, ResourceHistory, WaitEntry
from holdlog.adapters.cli.texts import duration, marked, moment, short, table

_HEADS = ("resource", "agent", "kind", "from", "to", "for", "outcome", "note")


def describe_history(found: ResourceHistory) -> str:
    """One table of holds and waits, newest first."""
    rows = [(it.claimed_at, _hold(it)) for it in found.holds] + [(it.queued_at, _wait(it)) for it in found.waits]
    rows.sort(key=lambda row: row[0], reverse=True)
    if not rows:
        return f"nobody held or waited for {marked(found.resource)} in that time"
    return table([_HEADS, *(row for _, row in rows)])


def _hold(hold: HoldEntry) -> tuple[str, ...]:
    return (
        marked(hold.resource),
        author(marked(hold.held_by), hold.held_by_principal),
        "shared" if hold.mode == "shared" else "held",
        moment(hold.claimed_at),
        _end(hold.ended_at),
        duration(hold.held_for_seconds),
        _outcome(hold),
        _note(hold.end_note if hold.end_note is not None else hold.note),
    )


def _outcome(hold: HoldEntry) -> str:
    """How a hold ended; hooks only release, and record changes while they hold."""
    end = _ending(hold)
    if hold.changed is None or end == hold.changed:
        return end
    return hold.changed if end == "released" else f"{end}, {hold.changed}"


def _ending(hold: HoldEntry) -> str:
    match hold.outcome:
        case None:
            return "not ended"
        case "forced":
            return f"taken by {marked(hold.forced_by or '')}"
        case "expired" if hold.collected is False:
            return "expired before it was used"
        case "moved" if hold.moved_to:
            return f"moved to {marked(hold.moved_to)}"
        case outcome:
            return outcome


def _wait(wait: WaitEntry) -> tuple[str, ...]:
    return (
        marked(wait.resource),
        author(marked(wait.agent), wait.principal),
        "waited",
        moment(wait.queued_at),
        _end(wait.ended_at),
        "" if wait.waited_seconds is None else duration(wait.waited_seconds),
        {"granted": "granted", "left": "gave up", "absent": "did not return"}.get(wait.outcome or "", "still waits"),
        _note(wait.note),
    )


def _end(at: datetime | None) -> str:
    return "" if at is None else moment(at)


def _note(note: str | None) -> str:
    return "" if note is None else short(note)
