"""`State`: what the agents and tools of a network share: their conversation, and data. AgentKit's, but kept."""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdlog.adapters.api.threads.conversation import AgentResult, Message
from holdlog.adapters.api.validation import NAME, page_size, text, whole
from holdlog.adapters.python.state import past
from holdlog.adapters.python.state.cloning import cloned
from holdlog.adapters.python.state.data import ModelType
from holdlog.adapters.python.state.kv import KeyValues
from holdlog.adapters.python.state.past import DataChange, StateAt
from holdlog.adapters.python.state.place import (
    AnyMessage,
    AnyResult,
    ThreadRepository,
    new_name,
    require_agent,
    result_item,
)
from holdlog.adapters.python.state.said import Conversation, Format, formatted, messages_of, results_of
from holdlog.adapters.python.state.shared import SharedData
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.commands import Append, ForkThread, NewMessage, NewResult, ReplaceResults, ThreadChanged

T = TypeVar("T")
Answer = TypeVar("Answer")

WRITER = "state"
"""Who writes where nobody was named."""


class State(Generic[T]):
    """One thread, shared: made by `create_state`. Each change is kept the moment it is made.

    Synchronous, also in coroutines: a call takes as long as one of the store. Safe in threads. Every method raises
    StoreError and UnavailableError as those of `StateStore` do; a change that raises did not happen, and shows nowhere.
    """

    def __init__(self, repository: ThreadRepository, thread: str, kind: ModelType[T], agent: str | None) -> None:
        """Of a thread that was started; else NotFoundError. `create_state` starts it."""
        self._repository = repository
        self._thread = thread
        self._kind = kind
        self._agent = agent
        self._conversation = Conversation(repository, thread)
        self._data = SharedData(repository, thread, kind, lambda: self.agent)

    # --- who and where

    @property
    def thread_id(self) -> str:
        return self._thread

    @property
    def agent(self) -> str:
        """Who writes, in the log. Where none is set, a result is written by the agent whose it is."""
        return self._agent or WRITER

    @agent.setter
    def agent(self, name: str | None) -> None:
        self._agent = require_agent(name)

    @property
    def data_version(self) -> int:
        """Of the data that is shown: the version of the event that changed it last; 0 = nothing did."""
        return self._data.live.version

    @property
    def version(self) -> int:
        """How many events the thread has now."""
        return self._repository.read(lambda reader: reader.thread(self._thread)).version

    # --- data

    @property
    def data(self) -> T:
        """What stood at the last `refresh`, with all that this State changed. Change it as any object: each change is
        written at once, all of its top-level key.

        Raises DataConflictError when somebody else changed the data in between (then `refresh`), InvalidError for what
        is no JSON or does not fit the model. What is assigned is copied.
        """
        return self._data.live.root

    @data.setter
    def data(self, value: T) -> None:
        """All of it, as one change."""
        self._data.replace(value)

    @property
    def kv(self) -> KeyValues:
        """The keys of `data`, one by one: `get`, `set`, `delete`, `has`, `all`."""
        return KeyValues(lambda: self._data.live)

    @property
    def raw(self) -> dict[str, Any]:
        """The data as it stands in the log now, whether it fits the model or not."""
        return self._data.raw()

    def refresh(self) -> bool:
        """Show what stands now. True: that is something else. Objects of before still show what they did, and refuse
        to be changed. Raises InvalidError when it does not fit the model: then nothing changed."""
        return self._data.refresh()

    def update(self, function: Callable[[T], Answer]) -> Answer:
        """Read, decide, write: `function` changes a copy of the data as it stands now, and all that it changed is one
        event. Again, with what stands then, when somebody wrote in between; after 100 attempts DataConflictError.

        Returns what `function` returned; a frozen model takes the place of the data. `function` leaves `state.data` and
        `state.kv` as they are: raises InvalidError.
        """
        return self._data.update(function)

    def history(self, key: str, limit: int = 100, before_version: int | None = None) -> list[DataChange]:
        """What happened to a key of the data, newest first; empty when nothing did."""
        before = None if before_version is None else whole(before_version, "before_version")
        return past.changes(self._repository, self._thread, text(key, "key", NAME), page_size(limit), before)

    # --- what was said

    @property
    def messages(self) -> list[Message]:
        """Those that were appended, not those of results; as of now, whoever appended them."""
        return messages_of(self._conversation.messages())

    @property
    def results(self) -> list[AgentResult]:
        """Those that stand now, whoever appended them. Copies."""
        return results_of(self._conversation.results())

    def get_results_from(self, index: int) -> list[AgentResult]:
        """`results[index:]`."""
        return results_of(self._conversation.results()[index:])

    def last_results(self, count: int) -> list[AgentResult]:
        """The newest, in their order. Reads no more than these, however long the thread is."""
        return results_of(self._conversation.last_results(page_size(count)))

    def append_message(self, message: AnyMessage) -> None:
        """Raises InvalidError."""
        self._append(self._repository.items([message], ()), self.agent)

    def append_result(self, result: AnyResult) -> bool:
        """False: it stands there already, by its checksum. Raises InvalidError."""
        made = result_item(result)
        self._repository.require_size([made.value])
        return self._append((made,), self._agent or made.agent).appended == 1

    def set_results(self, results: Sequence[AnyResult]) -> None:
        """Let these stand. Where they begin with what stands, only the rest is new. 10 000 at most."""
        items = tuple(result_item(it) for it in results)
        self._repository.require_size([item.value for item in items])
        self._repository.run(lambda: ReplaceResults(thread=self._thread, results=items, by=self.agent))

    def format_history(self, form: Format | None = None) -> list[Message]:
        """Messages and results in the order in which they came, for a model. `form`: what is told of a result; without
        it, its output and then what its tools answered. (AgentKit has all messages first.)"""
        return formatted(self._conversation.all(), form)

    # --- others

    def clone(self) -> "State[T]":
        """A copy in memory of what stands now, all of one version: its changes are nobody else's."""
        return State(cloned(self._repository, self._thread, self.agent), self._thread, self._kind, self._agent)

    def fork(self, thread_id: str | None = None, *, version: int | None = None) -> "State[T]":
        """A new thread in the same store that begins as this one stands, or stood at a version. Raises InvalidError
        when there is one of that name, or there is too much to copy."""
        name = new_name(thread_id)
        parent = {"parent": self._thread, "parent_version": version}
        try:
            self._repository.run(lambda: ForkThread(thread=name, by=self.agent, **parent))  # type: ignore[arg-type]
        except InvalidError as error:
            if (message := str(error)).startswith("parent_version: "):
                raise InvalidError(message.removeprefix("parent_")) from None  # by the name that it has here
            raise
        return State(self._repository, name, self._kind, self._agent)

    def at(
        self, version: int | None = None, *, position: int | None = None, time: datetime | str | None = None
    ) -> StateAt[T]:
        """As it was at a version, at a position of the log, or at a time. Raises InvalidError, NotFoundError."""
        return past.state_at(self._repository, self._thread, version, position, time, self._kind.read)

    def close(self) -> None:
        """Let go of a store that was opened for this State: one that was given as a path, or that of one run."""
        self._repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<State {self._thread} data_version={self.data_version}>"

    # --- steps

    def _append(self, items: tuple[NewMessage | NewResult, ...], by: str) -> ThreadChanged:
        return self._repository.run(lambda: Append(thread=self._thread, items=items, by=by))
