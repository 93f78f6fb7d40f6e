"""`State`: the conversation and the data that the agents of a network share. Its names are those of AgentKit's
State."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from holdlog.adapters.api.threads.conversation import AgentResult, Message
from holdlog.adapters.api.threads.payloads import digest_of
from holdlog.adapters.api.validation import NAME, page_size, text, whole
from holdlog.adapters.python.state import past
from holdlog.adapters.python.state.cloning import cloned
from holdlog.adapters.python.state.conversation import Conversation, Format, formatted, messages_of, results_of
from holdlog.adapters.python.state.past import DataChange, StateAt
from holdlog.adapters.python.state.repository import (
    AnyMessage,
    AnyResult,
    ThreadRepository,
    digest_without_time,
    new_name,
    require_agent,
    result_item,
)
from holdlog.adapters.python.state.shared import KeyValues, SharedData
from holdlog.adapters.python.state.shown import ModelType
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.commands import Append, ForkThread, NewMessage, NewResult, ReplaceResults, ThreadChanged

T = TypeVar("T")
Answer = TypeVar("Answer")

WRITER = "state"
"""The author of changes made without an agent."""


class State(Generic[T]):
    """One shared thread, created by `create_state`. Each change is stored before the call returns.

    Synchronous, also in coroutines: a call takes as long as one of the store. Thread-safe. Every method raises
    StoreError and UnavailableError as those of `StateStore` do; a change that raises did not happen and is not visible
    anywhere.
    """

    def __init__(self, repository: ThreadRepository, thread: str, kind: ModelType[T], agent: str | None) -> None:
        """Open a thread that exists. Raises NotFoundError. `create_state` starts a thread."""
        self._repository = repository
        self._thread = thread
        self._kind = kind
        self._agent = agent
        self._conversation = Conversation(repository, thread)
        self._data = SharedData(repository, thread, kind, lambda: self.agent)

    # --- identity

    @property
    def thread_id(self) -> str:
        return self._thread

    @property
    def agent(self) -> str:
        """The author of changes in the log. While none is set, the author of a result is its agent."""
        return self._agent or WRITER

    @agent.setter
    def agent(self, name: str | None) -> None:
        self._agent = require_agent(name)

    @property
    def data_version(self) -> int:
        """The version of the last event that changed `data`, as of the last `refresh`; 0 if there was none."""
        return self._data.shown.version

    @property
    def version(self) -> int:
        """The current number of events in the thread."""
        return self._repository.read(lambda reader: reader.thread(self._thread)).version

    # --- data

    @property
    def data(self) -> T:
        """The data as of the last `refresh`, with the changes of this State. Assigning or deleting an attribute of a
        model, or a key of a dict, is one event at once; assigned values are copied. Dicts, lists and sets inside refuse
        changes, and models inside are copies: use `edit`.

        An assignment raises DataConflictError if another caller changed the data since then (call `refresh`),
        InvalidError for a value that is not JSON or does not fit the model.
        """
        return self._data.shown.view

    @data.setter
    def data(self, value: T) -> None:
        """Replace all data as one change."""
        self._data.replace(value)

    def edit(self) -> AbstractContextManager[T]:
        """A copy of `data` to change in a `with` block; one event stores all its changes when the block ends. If the
        block raises, nothing changes.

        Raises DataConflictError if the data has changed since the last `refresh`, InvalidError for data that cannot be
        stored; nothing has changed then. A frozen model cannot be edited: assign `data`, or use `update`.
        """
        return self._data.edit()

    @property
    def kv(self) -> KeyValues:
        """The keys of `data`: `get`, `set`, `delete`, `has`, `all`."""
        return KeyValues(lambda: self._data.shown)

    @property
    def raw(self) -> dict[str, Any]:
        """The current data in the log, even if it does not fit the model."""
        return self._data.raw()

    def refresh(self) -> bool:
        """Load the current data; True if it differs. Objects obtained earlier keep their content and refuse changes.
        Raises InvalidError if the data does not fit the model; `data` then stays as it was."""
        return self._data.refresh()

    def update(self, function: Callable[[T], Answer]) -> Answer:
        """Refresh, then `edit` by a function: `function` changes a copy of the current data, and one event stores all
        its changes. If another caller wrote meanwhile, it runs again with the new data; after 100 attempts it raises
        DataConflictError.

        Returns what `function` returns; if that is a frozen model, it replaces the data. `function` must not change
        `state.data` or `state.kv`: that raises InvalidError.
        """
        return self._data.update(function)

    def history(self, key: str, limit: int = 100, before_version: int | None = None) -> list[DataChange]:
        """The changes of a key of the data, newest first."""
        before = None if before_version is None else whole(before_version, "before_version")
        return past.changes(self._repository, self._thread, text(key, "key", NAME), page_size(limit), before)

    # --- conversation

    @property
    def messages(self) -> list[Message]:
        """All appended messages of the thread, without those in results."""
        return messages_of(self._conversation.messages())

    @property
    def results(self) -> list[AgentResult]:
        """Copies of all current results of the thread."""
        return results_of(self._conversation.results())

    def get_results_from(self, index: int) -> list[AgentResult]:
        """`results[index:]`."""
        return results_of(self._conversation.results()[index:])

    def last_results(self, count: int) -> list[AgentResult]:
        """The newest `count` results, oldest first. Reads only these, however long the thread is."""
        return results_of(self._conversation.last_results(page_size(count)))

    def append_message(self, message: AnyMessage, *, request_id: str | None = None) -> None:
        """Append a message. A repeated call with the same `request_id` appends nothing. Raises InvalidError."""
        self._append(self._repository.items([message], ()), self.agent, request_id)

    def append_result(self, result: AnyResult, *, request_id: str | None = None) -> bool:
        """Append a result; False if the thread has one with the same checksum. A repeated call with the same
        `request_id` returns what the first one did. Raises InvalidError."""
        made = result_item(result)
        self._repository.require_size([made.value])
        by = self._agent or made.agent
        digest = None if request_id is None else digest_without_time(result, by)
        return self._append((made,), by, request_id, digest).appended == 1

    def set_results(self, results: Sequence[AnyResult], *, request_id: str | None = None) -> None:
        """Replace the results, at most 10,000. If the given ones begin with the current ones, only the rest is
        appended."""
        items = tuple(result_item(it) for it in results)
        self._repository.require_size([item.value for item in items])
        self._repository.run(lambda: ReplaceResults(thread=self._thread, results=items, by=self.agent), request_id)

    def format_history(self, form: Format | None = None) -> list[Message]:
        """Messages and results in the order of appending, as messages for a model. (AgentKit lists all messages first.)

        `form` returns the messages for a result; by default its output, then the responses of its tools.
        """
        return formatted(self._conversation.all(), form)

    # --- copies

    def clone(self) -> "State[T]":
        """A copy of the current thread in memory, read as one snapshot. Changes to the copy stay in the copy."""
        return State(cloned(self._repository, self._thread, self.agent), self._thread, self._kind, self._agent)

    def fork(
        self, thread_id: str | None = None, *, version: int | None = None, request_id: str | None = None
    ) -> "State[T]":
        """Start a thread in the same store with the content of this one, now or at `version`. Raises InvalidError if a
        thread has that name or there is too much to copy."""
        fork: dict[str, Any] = {"parent": self._thread, "parent_version": version}
        if thread_id is None:
            fork["request_digest"] = digest_of("fork", self.agent, self._thread, version)
        name = new_name(thread_id)
        try:
            name = self._repository.run(lambda: ForkThread(thread=name, by=self.agent, **fork), request_id).thread
        except InvalidError as error:
            if (message := str(error)).startswith("parent_version: "):
                raise InvalidError(message.removeprefix("parent_")) from None  # the name of the argument here
            raise
        return State(self._repository, name, self._kind, self._agent)

    def at(
        self, version: int | None = None, *, position: int | None = None, time: datetime | str | None = None
    ) -> StateAt[T]:
        """The thread at a version, at a position of the log, or at a time. Raises InvalidError, NotFoundError."""
        return past.state_at(self._repository, self._thread, version, position, time, self._kind.read)

    def close(self) -> None:
        """Close the store if `create_state` opened it: one given as a path, or the memory of one run."""
        self._repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<State {self._thread} data_version={self.data_version}>"

    # --- steps

    def _append(
        self, items: tuple[NewMessage | NewResult, ...], by: str, request_id: str | None, digest: str | None = None
    ) -> ThreadChanged:
        return self._repository.run(
            lambda: Append(thread=self._thread, items=items, by=by, request_digest=digest), request_id
        )
