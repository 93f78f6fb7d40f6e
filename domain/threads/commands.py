"""Commands on threads and their outcomes."""

from typing import Annotated, ClassVar, Final, NamedTuple

from pydantic import Field, model_validator

from holdlog.domain.message import Command, Event, Message
from holdlog.domain.names import Agent, AllowedAgent, Name
from holdlog.domain.threads.thread import Checksum, MessageAppended, ResultAppended
from holdlog.domain.value import Json

MAX_APPENDED: Final = 1_000
"""Messages and results in one append."""
MAX_KEYS: Final = 1_000
"""Keys of data in one change."""
MAX_COPIED: Final = 10_000
"""Messages and results in a fork, and results that replace others."""
MAX_COPIED_CHARACTERS: Final = 32 * 1024 * 1024
"""Characters of JSON in a fork, and in results that replace others: all other writers wait while they are written."""
MAX_REPLAYED: Final = 10_000
"""Changes of data that a fork reads to find the data at an earlier version."""

RequestDigest = Annotated[str | None, Field(max_length=64, serialization_alias="asked")]
"""A digest of the request, which identifies a repetition if the command contains generated parts, such as an id or a
time. The alias is part of stored fingerprints."""


class NewMessage(Message):
    value: Json


class NewResult(Message):
    value: Json
    agent: Agent
    checksum: Checksum


class StartThread(Command):
    """Start a thread with `data` and `items`; does nothing if it was already started."""

    kind: ClassVar[str] = "start_thread"
    thread: Name
    data: dict[Name, Json] = Field(default_factory=dict, max_length=MAX_KEYS)
    items: tuple[NewMessage | NewResult, ...] = Field(default=(), max_length=MAX_APPENDED)
    by: AllowedAgent
    request_digest: RequestDigest = None


class ForkThread(Command):
    """Start a thread with the content of another one at a version, or now."""

    kind: ClassVar[str] = "fork_thread"
    thread: Name
    parent: Name
    parent_version: int | None = Field(default=None, ge=1)
    by: AllowedAgent
    request_digest: RequestDigest = None


class Append(Command):
    """Append messages and results, all or none; skips results that already exist."""

    kind: ClassVar[str] = "append"
    thread: Name
    items: tuple[NewMessage | NewResult, ...] = Field(min_length=1, max_length=MAX_APPENDED)
    by: AllowedAgent
    request_digest: RequestDigest = None


class ReplaceResults(Command):
    """Replace all results of the thread by these, in this order."""

    kind: ClassVar[str] = "replace_results"
    thread: Name
    results: tuple[NewResult, ...] = Field(max_length=MAX_COPIED)
    by: AllowedAgent

    @model_validator(mode="after")
    def _bounded(self) -> "ReplaceResults":
        if sum(len(it.value.text) for it in self.results) > MAX_COPIED_CHARACTERS:
            raise ValueError(f"results: must have at most {MAX_COPIED_CHARACTERS} characters together")
        return self


class ChangeData(Command):
    """Write and delete keys of a thread's data. `expected_data_version`: that of the last data change, 0 if there was
    none; None = any."""

    kind: ClassVar[str] = "change_data"
    thread: Name
    written: dict[Name, Json] = Field(default_factory=dict, max_length=MAX_KEYS)
    deleted: tuple[Name, ...] = Field(default=(), max_length=MAX_KEYS)
    expected_data_version: int | None = Field(default=None, ge=0)
    by: AllowedAgent

    @model_validator(mode="after")
    def _not_both(self) -> "ChangeData":
        if not self.written.keys().isdisjoint(self.deleted):
            raise ValueError("deleted: must not name a key that the same call writes")
        return self


ThreadCommand = StartThread | ForkThread | Append | ReplaceResults | ChangeData


class ThreadChanged(NamedTuple):
    """The thread after a command. `appended`: number of new messages and results. `already`: of results that
    existed. `deleted`: keys that had a value. `checksums`: of the results to append. Other fields as in `Thread`."""

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


def item_of(event: Event) -> NewMessage | NewResult:
    """The item that appends a message or result of a thread to another one."""
    if isinstance(event, ResultAppended):
        return NewResult(value=event.value, agent=event.agent, checksum=event.checksum)
    assert isinstance(event, MessageAppended)
    return NewMessage(value=event.value)
