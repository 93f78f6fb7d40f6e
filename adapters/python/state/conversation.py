"""The conversation of a thread: its messages and current results, each read once."""

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from holdlog.adapters.api.threads.conversation import AgentResult, Message, default_format
from holdlog.adapters.python.state.repository import ThreadRepository, message_from, result_from
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.thread import MessageAppended, ResultAppended
from holdlog.domain.times import utc
from holdlog.domain.value import Json

Format = Callable[[AgentResult], Iterable[Message]]

_PAGE = 1_000


class HistoryItem(NamedTuple):
    """A message, or the result of an `agent`. `value` is None when it was redacted."""

    version: int
    value: Json | None
    at: datetime
    agent: str | None = None

    def messages(self, form: Format) -> Iterable[Message]:
        if self.agent is not None:
            return form(self.result())
        return [] if self.value is None else [message_from(self.value)]

    def result(self) -> AgentResult:
        """The result; if redacted, only its agent and time."""
        assert self.agent is not None
        if self.value is None:
            return AgentResult(agent_name=self.agent, created_at=self.at)
        return result_from(self.value)


def history_item(recorded: Recorded[Event]) -> HistoryItem:
    event = recorded.event
    assert isinstance(event, MessageAppended | ResultAppended)
    agent = event.agent if isinstance(event, ResultAppended) else None
    value = None if recorded.redacted else event.value
    return HistoryItem(recorded.envelope.version, value, utc(recorded.envelope.at), agent)


def messages_of(items: Sequence[HistoryItem]) -> list[Message]:
    return [message_from(it.value) for it in items if it.agent is None and it.value is not None]


def results_of(items: Sequence[HistoryItem]) -> list[AgentResult]:
    return [it.result() for it in items if it.agent is not None]


def formatted(items: Iterable[HistoryItem], form: Format | None) -> list[Message]:
    return [message for it in items for message in it.messages(form or default_format)]


class Conversation:
    """The current messages and results. Thread-safe."""

    def __init__(self, repository: ThreadRepository, thread: str) -> None:
        self._repository = repository
        self._thread = thread
        self._lock = threading.Lock()
        self._messages: list[HistoryItem] = []
        self._results: list[HistoryItem] = []

    def messages(self) -> list[HistoryItem]:
        with self._lock:
            self._repository.read(self._read_messages)
            return list(self._messages)

    def results(self) -> list[HistoryItem]:
        with self._lock:
            self._repository.read(self._read_results)
            return list(self._results)

    def all(self) -> list[HistoryItem]:
        """All items in the order of appending."""

        def read(reader: Reader) -> None:
            self._read_messages(reader)
            self._read_results(reader)

        with self._lock:
            self._repository.read(read)
            return sorted([*self._messages, *self._results])

    def last_results(self, count: int) -> list[HistoryItem]:
        """The newest `count` results. Reads only these."""

        def read(reader: Reader) -> list[HistoryItem]:
            cleared = reader.thread(self._thread).cleared
            found = reader.thread_events(self._thread, ("result",), cleared, None, count, newest=True)
            return [history_item(it) for it in reversed(found)]

        return self._repository.read(read)

    def _read_messages(self, reader: Reader) -> None:
        after = self._messages[-1].version if self._messages else 0
        while page := reader.thread_events(self._thread, ("message",), after, None, _PAGE, newest=False):
            self._messages += map(history_item, page)
            after = self._messages[-1].version

    def _read_results(self, reader: Reader) -> None:
        after = reader.thread(self._thread).cleared
        if self._results and self._results[0].version <= after:
            self._results = [it for it in self._results if it.version > after]
        if self._results:
            after = self._results[-1].version
        while page := reader.thread_events(self._thread, ("result",), after, None, _PAGE, newest=False):
            self._results += map(history_item, page)
            after = self._results[-1].version
