"""Removes redacted texts from views, and from the tables next to the log."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from holdlog.adapters.stores.sql.text import NONE, Parameters, PendingStatements
from holdlog.domain.agent import Profile
from holdlog.domain.record import Record
from holdlog.domain.store_log import SearchText
from holdlog.domain.threads.thread import Thread
from holdlog.projections import fold

_RECORD: Final = (
    "UPDATE current SET value = :redacted WHERE namespace = :namespace AND key = :key AND version = :version"
    " AND live = 1"
)
_THREAD: Final = "UPDATE thread_data SET value = :redacted WHERE thread = :thread AND version = :version AND live = 1"
_AGENT: Final = "UPDATE agents SET purpose = NULL WHERE agent = :agent AND version = :version"
_FOUND: Final = {True: "strpos({}, :text) > 0", False: "{} = :text"}
_FORGET_NOTES: Final = {
    within: [f"UPDATE {table} SET note = NULL WHERE {found.format('note')}" for table in ("leases", "losses")]
    + [f"DELETE FROM refusals WHERE {found.format('what')}"]
    for within, found in _FOUND.items()
}
_STOP_REBUILD: Final = "DELETE FROM meta WHERE name = 'rebuild'"
_SELECT_OUTCOMES: Final = (
    "SELECT principal, session, request_id, outcome FROM requests WHERE strpos(outcome, :text) > 0"
)
_PUT_OUTCOME: Final = """UPDATE requests SET outcome = :outcome
    WHERE principal = :principal AND session = :session AND request_id = :request_id"""


class ViewChange(NamedTuple):
    """A statement that changes the view `table`."""

    table: str
    statement: str
    parameters: Parameters


def redact_view(stream: str, version: int, redacted: str | None = None) -> ViewChange | None:
    """The statement that removes the payload of an event from the view of its stream; None if no view has it.
    `redacted`: what the view has in place of a value; a text if the view is of an older schema."""
    match fold.initial(stream):
        case Record(namespace=namespace, key=key):
            parameters = {"namespace": namespace, "key": key, "version": version, "redacted": redacted}
            return ViewChange("current", _RECORD, parameters)
        case Thread(thread=thread):
            return ViewChange("thread_data", _THREAD, {"thread": thread, "version": version, "redacted": redacted})
        case Profile(agent=agent):
            return ViewChange("agents", _AGENT, {"agent": agent, "version": version})
        case _:
            return None


def forget_texts(unit: PendingStatements, texts: Sequence[SearchText]) -> None:
    """Remove texts from notes of leases and losses, refusals, and outcomes, whose value then reads as redacted. Stop a
    rebuild that runs: it may have read them."""
    unit.later(_STOP_REBUILD, NONE)
    for text in texts:
        for statement in _FORGET_NOTES[text.within]:
            unit.later(statement, {"text": text.text})
        for *address, outcome in unit.rows(_SELECT_OUTCOMES, {"text": to_json(text.text).decode()[1:-1]}):
            changed = to_json(_without(from_json(outcome), text)).decode()
            names = dict(zip(("principal", "session", "request_id"), address, strict=True))
            unit.later(_PUT_OUTCOME, {**names, "outcome": changed})


def _without(outcome: Any, text: SearchText) -> Any:
    """The JSON value, with an empty text in place of each text that contains this one."""
    if isinstance(outcome, str):
        return "" if text.is_in(outcome) else outcome
    if isinstance(outcome, dict):
        return {name: _without(part, text) for name, part in outcome.items()}
    return [_without(part, text) for part in outcome] if isinstance(outcome, list) else outcome
