"""A thread: messages and results of agents in a run, in order, and the data that they share. It outlives the run.

A *message* or *result* is appended and stays; *data* is a value per key, versioned as a whole: `data_version`.
"""

from typing import Annotated, ClassVar, Final, Literal, NamedTuple, get_args

from pydantic import Field, Strict

from holdlog.domain.message import Event
from holdlog.domain.names import Agent, Name, thread_stream
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.value import NULL, REDACTED, Json, parts

Checksum = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{32}$")]
"""Identifies a result: computed from its agent, output and time (docs/threads.md)."""

# --- events


class ThreadStarted(Event):
    """A thread started. `parent`, `parent_version`: the thread and version that it was forked from."""

    topic: ClassVar[str] = "ThreadStarted"
    by: Agent
    parent: Name | None = None
    parent_version: int | None = None


class MessageAppended(Event):
    topic: ClassVar[str] = "MessageAppended"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    by: Agent


class ResultAppended(Event):
    """A result of an agent was appended. `agent`: whose result it is; `by`: who recorded it."""

    topic: ClassVar[str] = "ResultAppended"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    agent: Agent
    checksum: Checksum
    by: Agent


class ResultsCleared(Event):
    """The results before it are no longer current; messages are."""

    topic: ClassVar[str] = "ResultsCleared"
    by: Agent


class ThreadDataChanged(Event):
    """Keys of the data were written or deleted. `value`: an object of the written keys and their values; `deleted`:
    keys that no longer have a value."""

    topic: ClassVar[str] = "ThreadDataChanged"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    written: tuple[Name, ...] = ()
    deleted: tuple[Name, ...] = ()
    by: Agent

    def values(self) -> dict[str, Json]:
        """The values of the written keys; `REDACTED` for all if they were."""
        return dict.fromkeys(self.written, REDACTED if self.value is REDACTED else NULL) | parts(self.value)


ThreadEvent = ThreadStarted | MessageAppended | ResultAppended | ResultsCleared | ThreadDataChanged
ItemKind = Literal["message", "result", "clear", "data"]
KINDS: Final[tuple[ItemKind, ...]] = get_args(ItemKind)
"""The kinds of events, except the first of a thread."""

# --- state


class Thread(NamedTuple):
    """The summary of a thread, without its content. `version` 0 = never started. Times: microseconds UTC.

    `data_version`: of the last event that changed data; `cleared`: of the last `ResultsCleared`; 0 if there was none.
    `results`: how many are current; `parent_version`: where its parent was forked.
    """

    thread: str
    version: int = 0
    data_version: int = 0
    cleared: int = 0
    messages: int = 0
    results: int = 0
    started_by: str = ""
    started_at: int = 0
    updated_by: str = ""
    updated_at: int = 0
    parent: str | None = None
    parent_version: int | None = None
    started_by_principal: str | None = None
    updated_by_principal: str | None = None

    @property
    def stream(self) -> str:
        return thread_stream(self.thread)


class Datum(NamedTuple):
    """A key of data; `version` is that of the event that wrote it."""

    key: str
    version: int
    value: Json


# --- evolve


def evolve(thread: Thread, event: ThreadEvent, at: int, principal: str | None = None) -> Thread:
    """`at` (microseconds UTC) and `principal` come from the event's envelope."""
    version = thread.version + 1
    thread = thread._replace(version=version, updated_by=event.by, updated_by_principal=principal, updated_at=at)
    match event:
        case ThreadStarted(by=by, parent=parent, parent_version=parent_version):
            thread = thread._replace(started_by=by, started_by_principal=principal, started_at=at)
            return thread._replace(parent=parent, parent_version=parent_version)
        case MessageAppended():
            return thread._replace(messages=thread.messages + 1)
        case ResultAppended():
            return thread._replace(results=thread.results + 1)
        case ResultsCleared():
            return thread._replace(cleared=version, results=0)
        case ThreadDataChanged():
            return thread._replace(data_version=version)


# --- rules


def require_started(thread: Thread) -> None:
    """Raise NotFoundError if the thread was never started."""
    if not thread.version:
        raise NotFoundError.of_thread(thread.thread)


def kind_of(event: ThreadEvent) -> ItemKind | None:
    """The kind of an event; None for the start of the thread."""
    match event:
        case MessageAppended():
            return "message"
        case ResultAppended():
            return "result"
        case ResultsCleared():
            return "clear"
        case ThreadDataChanged():
            return "data"
        case ThreadStarted():
            return None
