"""A thread: what agents said and found in a run, in order, and the data that they share. It outlives the run.

A *message* or *result* is appended and stays; *data* is a value per key, versioned as a whole: `data_version`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, get_args

from pydantic import Field, Strict, model_validator

from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.message import Event, Message
from holdlog.domain.names import Agent, Name, thread_stream
from holdlog.domain.refusals import DataConflict, DataConflictError, InvalidError, NotFoundError
from holdlog.domain.value import NULL, Json, joined, parts

MAX_APPENDED: Final = 1_000
"""Messages and results of one append."""
MAX_KEYS: Final = 1_000
"""Of data in one change."""
MAX_COPIED: Final = 10_000
"""Messages and results of a fork, and results that stand in place of others."""
MAX_COPIED_CHARACTERS: Final = 32 * 1024 * 1024
"""Of JSON in a fork: while it is written, all other writers wait."""

Checksum = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{32}$")]
"""What tells one result from another: of its agent, output and time (docs/threads.md)."""

# --- events


class ThreadStarted(Event):
    """`parent`, `parent_version`: where it was forked."""

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
    """`agent`: whose result it is; `by`: who wrote it down."""

    topic: ClassVar[str] = "ResultAppended"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    agent: Agent
    checksum: Checksum
    by: Agent


class ResultsCleared(Event):
    """The results before it do not stand any more; messages do."""

    topic: ClassVar[str] = "ResultsCleared"
    by: Agent


class ThreadDataChanged(Event):
    """`value`: an object of the keys that were written with their values; `deleted`: those that have none any more."""

    topic: ClassVar[str] = "ThreadDataChanged"
    payload_field: ClassVar[str | None] = "value"
    value: Json
    written: tuple[Name, ...] = ()
    deleted: tuple[Name, ...] = ()
    by: Agent

    def values(self) -> dict[str, Json]:
        """Of the keys that were written; null for all where they were redacted."""
        return dict.fromkeys(self.written, NULL) | parts(self.value)


ThreadEvent = ThreadStarted | MessageAppended | ResultAppended | ResultsCleared | ThreadDataChanged
Kind = Literal["message", "result", "clear", "data"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
"""Of events, but for the first of a thread."""

# --- commands

Asked = Annotated[str | None, Field(max_length=64)]
"""What tells the same request when it comes again, where the command holds what was made up for it, as an id or a time:
a digest of what was asked for."""


class NewMessage(Message):
    value: Json


class NewResult(Message):
    value: Json
    agent: Agent
    checksum: Checksum


class StartThread(Message):
    """Nothing happens to a thread that was started before; `data` and `items` are those of a new one."""

    thread: Name
    data: dict[Name, Json] = Field(default_factory=dict, max_length=MAX_KEYS)
    items: tuple[NewMessage | NewResult, ...] = Field(default=(), max_length=MAX_APPENDED)
    by: Agent
    asked: Asked = None


class ForkThread(Message):
    """Start a thread with what another one held at a version, or holds."""

    thread: Name
    parent: Name
    parent_version: int | None = Field(default=None, ge=1)
    by: Agent
    asked: Asked = None


class Append(Message):
    """Messages and results, all or none; a result that stands there already is passed over."""

    thread: Name
    items: tuple[NewMessage | NewResult, ...] = Field(min_length=1, max_length=MAX_APPENDED)
    by: Agent
    asked: Asked = None


class ReplaceResults(Message):
    """Let exactly these results stand, in this order."""

    thread: Name
    results: tuple[NewResult, ...] = Field(max_length=MAX_COPIED)
    by: Agent


class ChangeData(Message):
    """`expected_data_version`: that of the last change of data, 0 where there was none; None = whatever it is."""

    thread: Name
    written: dict[Name, Json] = Field(default_factory=dict, max_length=MAX_KEYS)
    deleted: tuple[Name, ...] = Field(default=(), max_length=MAX_KEYS)
    expected_data_version: int | None = Field(default=None, ge=0)
    by: Agent

    @model_validator(mode="after")
    def _not_both(self) -> "ChangeData":
        if not self.written.keys().isdisjoint(self.deleted):
            raise ValueError("deleted: names a key that is written, too")
        return self


ThreadCommand = StartThread | ForkThread | Append | ReplaceResults | ChangeData


class ThreadChanged(NamedTuple):
    """The thread after a command. `appended`, `already`: results and messages that are new, results that were there.
    `deleted`: keys that had a value. `checksums`: of the results that were to be appended. All else as in `Thread`."""

    thread: str
    version: int
    data_version: int
    position: int
    created: bool = False
    appended: int = 0
    already: int = 0
    deleted: tuple[str, ...] = ()
    checksums: tuple[str, ...] = ()
    messages: int = 0
    results: int = 0
    parent: str | None = None
    parent_version: int | None = None


# --- state


class Thread(NamedTuple):
    """What is known of a thread without reading it. `version` 0 = never started. Times: microseconds UTC.

    `data_version`: of the event that changed data last; `cleared`: of the last `ResultsCleared`; 0 where none was.
    `results`: how many stand; `parent_version`: where its parent was forked.
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
    digest: bytes = NO_DIGEST

    @property
    def stream(self) -> str:
        return thread_stream(self.thread)


class Datum(NamedTuple):
    """A key of data; `version` is that of the event that wrote it."""

    key: str
    version: int
    value: Json


class Standing(NamedTuple):
    """What a decision needs to know beside the thread: of the results that it is about, the checksums that stand, in
    their order; of the keys, those that have a value; of data, the keys that changed since the version expected."""

    checksums: Sequence[str] = ()
    keys: Collection[str] = ()
    changed: Sequence[str] = ()


class Copy(NamedTuple):
    """What a thread held at a version. `items`: its messages and results, in order."""

    data: Mapping[str, Json]
    items: Sequence[NewMessage | NewResult]


# --- decide, evolve


def decide(command: ThreadCommand, thread: Thread, standing: Standing, copy: Copy | None = None) -> list[ThreadEvent]:
    """No event: nothing is new. `copy`: for a fork. Raises NotFoundError, InvalidError, DataConflictError."""
    by = command.by
    match command:
        case StartThread(data=data, items=items):
            if thread.version:
                return []
            return [ThreadStarted(by=by), *_changed(data, (), by), *(_appended(item, by) for item in _new(items, ()))]
        case ForkThread(parent=parent, parent_version=version):
            if thread.version:
                raise InvalidError("thread_id: there is a thread of that name; fork to a new one")
            assert copy is not None
            begun = ThreadStarted(by=by, parent=parent, parent_version=version)
            return [begun, *_changed(copy.data, (), by), *(_appended(item, by) for item in copy.items)]
        case Append(items=items):
            require_started(thread)
            return [_appended(item, by) for item in _new(items, standing.checksums)]
        case ReplaceResults(results=results):
            require_started(thread)
            return _replaced(results, standing.checksums, by)
        case ChangeData(written=written, deleted=deleted, expected_data_version=expected):
            require_started(thread)
            _require_data_version(expected, thread, standing)
            return _changed(written, [key for key in dict.fromkeys(deleted) if key in standing.keys], by)


def evolve(thread: Thread, event: ThreadEvent, at: int, digest: bytes) -> Thread:
    """`at` (microseconds UTC) and `digest` come from the event's envelope."""
    version = thread.version + 1
    thread = thread._replace(version=version, updated_by=event.by, updated_at=at, digest=digest)
    match event:
        case ThreadStarted(by=by, parent=parent, parent_version=parent_version):
            return thread._replace(started_by=by, started_at=at, parent=parent, parent_version=parent_version)
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
    """Raises NotFoundError."""
    if not thread.version:
        raise NotFoundError.of_thread(thread.thread)


def kind_of(event: ThreadEvent) -> Kind | None:
    """None: the thread began."""
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


def _require_data_version(expected: int | None, thread: Thread, standing: Standing) -> None:
    if expected is None or expected == thread.data_version:
        return
    raise DataConflictError(
        DataConflict(
            thread_id=thread.thread,
            expected_data_version=expected,
            actual_data_version=thread.data_version,
            changed_keys=tuple(standing.changed),
        )
    )


def _replaced(results: Sequence[NewResult], standing: Sequence[str], by: str) -> list[ThreadEvent]:
    """What stands stays, where it is how the new ones begin."""
    wanted = {it.checksum: it for it in reversed(results)}
    ordered = [wanted[checksum] for checksum in dict.fromkeys(it.checksum for it in results)]
    kept = len(standing)
    if [it.checksum for it in ordered[:kept]] == list(standing):
        return [_appended(item, by) for item in ordered[kept:]]
    return [ResultsCleared(by=by), *(_appended(item, by) for item in ordered)]


def _changed(written: Mapping[str, Json], deleted: Sequence[str], by: str) -> list[ThreadEvent]:
    if not written and not deleted:
        return []
    return [ThreadDataChanged(value=joined(written), written=tuple(written), deleted=tuple(deleted), by=by)]


def _appended(item: NewMessage | NewResult, by: str) -> ThreadEvent:
    if isinstance(item, NewMessage):
        return MessageAppended(value=item.value, by=by)
    return ResultAppended(value=item.value, agent=item.agent, checksum=item.checksum, by=by)


def _new(items: Sequence[NewMessage | NewResult], standing: Sequence[str]) -> list[NewMessage | NewResult]:
    """Without the results that stand there, or came before in the same list."""
    known = set(standing)
    found: list[NewMessage | NewResult] = []
    for item in items:
        if isinstance(item, NewResult):
            if item.checksum in known:
                continue
            known.add(item.checksum)
        found.append(item)
    return found
