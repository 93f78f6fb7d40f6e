"""Earlier states of threads: a State at an earlier version, and the changes of a key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

from holdlog.adapters.api.threads.conversation import AgentResult, Message
from holdlog.adapters.api.validation import whole
from holdlog.adapters.python.state.conversation import (
    Format,
    HistoryItem,
    formatted,
    history_item,
    messages_of,
    results_of,
)
from holdlog.adapters.python.state.repository import ThreadRepository
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.threads.past import data_at, items_at
from holdlog.domain.threads.thread import Thread, ThreadDataChanged, require_started
from holdlog.domain.times import utc
from holdlog.domain.value import Json

T = TypeVar("T")


@dataclass(frozen=True)
class DataChange:
    """One change of a key. `value` is None if the key was `deleted` or the value was redacted."""

    version: int
    value: Any
    deleted: bool
    by: str
    at: datetime
    position: int
    redacted: bool = False


def changes(repository: ThreadRepository, thread: str, key: str, limit: int, before: int | None) -> list[DataChange]:
    def read(reader: Reader) -> list[DataChange]:
        require_started(reader.thread(thread))
        found = reader.thread_events(thread, ("data",), 0, before, limit, newest=True, key=key)
        return [_change(it, key) for it in found]

    return repository.read(read)


def _change(recorded: Recorded[Event], key: str) -> DataChange:
    event, envelope = recorded.event, recorded.envelope
    assert isinstance(event, ThreadDataChanged)
    deleted = key in event.deleted
    value = None if deleted else event.values()[key].value
    at = utc(envelope.at)
    return DataChange(envelope.version, value, deleted, event.by, at, envelope.position, recorded.redacted)


class StateAt(Generic[T]):
    """A thread at one version; it never changes. Changes to its data stay in memory."""

    def __init__(
        self,
        repository: ThreadRepository,
        thread: Thread,
        version: int,
        stored: dict[str, Json],
        read: Callable[[dict[str, Json]], T],
    ) -> None:
        self._repository = repository
        self._stored = stored
        self._read = read
        self.thread_id = thread.thread
        self.version = version

    def __repr__(self) -> str:
        return f"<StateAt {self.thread_id} version={self.version}>"

    @cached_property
    def data(self) -> T | dict[str, Any]:
        """A copy of the data; as plain JSON if it does not fit the model."""
        try:
            return self._read(self._stored)
        except InvalidError:
            return self.raw

    @property
    def raw(self) -> dict[str, Any]:
        return {key: value.value for key, value in self._stored.items()}

    @property
    def results(self) -> list[AgentResult]:
        return results_of(self._items)

    @property
    def messages(self) -> list[Message]:
        return messages_of(self._items)

    def format_history(self, form: Format | None = None) -> list[Message]:
        return formatted(self._items, form)

    @cached_property
    def _items(self) -> list[HistoryItem]:
        def read(reader: Reader) -> list[HistoryItem]:
            return [history_item(it) for it in items_at(reader, self.thread_id, self.version)]

        return self._repository.read(read)


def state_at(
    repository: ThreadRepository,
    name: str,
    version: int | None,
    position: int | None,
    time: datetime | str | None,
    as_data: Callable[[dict[str, Json]], T],
) -> StateAt[T]:
    if (version is not None) + (position is not None) + (time is not None) != 1:
        raise InvalidError("at: takes exactly one of version, position and time")
    at = None if time is None else _microseconds(time)
    if position is not None:
        whole(position, "position")

    def read(reader: Reader) -> StateAt[T]:
        thread = reader.thread(name)
        require_started(thread)
        wanted = whole(version, "version") if version is not None else reader.version_at(thread.stream, position, at)
        if wanted > thread.version:
            raise InvalidError(f"version: the thread ends at version {thread.version}; pass that or less")
        if wanted == 0:
            raise NotFoundError(f"thread {name} was started later", {"thread_id": name})
        return StateAt(repository, thread, wanted, data_at(reader, thread, wanted), as_data)

    return repository.read(read)


def _microseconds(time: datetime | str) -> int:
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else time
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, (zoned - utc(0)) // (utc(1) - utc(0)))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise InvalidError("time: must be a datetime, or RFC 3339 text such as 2026-01-31T12:00:00Z") from None
