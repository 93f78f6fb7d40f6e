"""Threads: messages and results of agents, in order. The data of a thread are values in `threads/<id>`, which only
`write` changes."""

from typing import Any, Literal, NamedTuple

from holdlog.domain.moment import Moment
from holdlog.domain.records import declare_steps, transact
from holdlog.domain.results import Lost, Step
from holdlog.domain.state import Decision, Reads, State
from holdlog.domain.values import Json, require_size

# --- events


class MessageAppended(NamedTuple):
    stream: str
    by: str
    message: Json


class ResultAppended(NamedTuple):
    """The result of one agent's turn. A thread has only one result with a `checksum`; None: it has no time, and repeats
    of it are appended."""

    stream: str
    by: str
    result: Json
    checksum: str | None = None


class ResultsCleared(NamedTuple):
    """The results before it are no longer those of the thread."""

    stream: str
    by: str


# --- results


class Appended(NamedTuple):
    """What was appended, and how many results the thread had already. `version` is that of the thread."""

    thread_id: str
    version: int
    appended: int
    already: int
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class ThreadWritten(NamedTuple):
    """What was appended, and what was written of the data."""

    data: list[Step]
    items: Appended
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


# --- deciders


def declare_append(command: Any) -> Reads:
    stream = thread_stream(command.thread_id)
    names = (name_result(stream, checksum) for _, checksum in command.new_results or () if checksum is not None)
    return Reads((stream,), results=tuple(names))


def append(command: Any, state: State, moment: Moment) -> Decision:
    """Append messages, then results that the thread does not have. Raises InvalidError."""
    return append_items(command, state, moment, clears=False)


def declare_write(command: Any) -> Reads:
    data, items = declare_steps(command), declare_append(command)
    return data._replace(streams=data.streams + items.streams, results=items.results)


def write(command: Any, state: State, moment: Moment) -> Decision:
    """Change the data of a thread, and append to it. Raises ConflictError, InvalidError."""
    changes, written = transact(command, state, moment)
    moment = moment._replace(position=moment.position + len(changes))
    events, appended = append_items(command, state, moment, command.clears_results)
    return [*changes, *events], ThreadWritten(written.results, appended)


# --- rules


def append_items(command: Any, state: State, moment: Moment, clears: bool) -> Decision:
    """`clears`: the results of the command replace those that the thread has."""
    stream = thread_stream(command.thread_id)
    events: list[Any] = [ResultsCleared(stream, command.agent)] if clears else []
    for message in command.messages or ():
        require_size(message, moment.max_value_bytes, "messages")
        events.append(MessageAppended(stream, command.agent, message))
    checksums: set[str] = set()
    already = 0
    for result, checksum in command.new_results or ():
        require_size(result, moment.max_value_bytes, "results")
        if checksum is not None:
            if checksum in checksums or (not clears and state.records[name_result(stream, checksum)].exists):
                already += 1
                continue
            checksums.add(checksum)
        events.append(ResultAppended(stream, command.agent, result, checksum))
    record, count = state.records[stream], len(events)
    position = moment.position + count if events else record.position
    return events, Appended(command.thread_id, record.version + count, count - clears, already, position)


def thread_stream(thread_id: str) -> str:
    return f"thread:{thread_id}"


def name_result(stream: str, checksum: str) -> str:
    """Under which `State.records` says whether a thread has a result."""
    return f"{stream} {checksum}"
