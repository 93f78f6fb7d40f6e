"""AgentKit's four history hooks of a network, over a store: `ThreadHistory` and `AsyncThreadHistory`."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.threads.conversation import USER, AgentResult, UserMessage
from holdlog.adapters.api.validation import NAME, checked, text
from holdlog.adapters.python.state.cloning import in_parts
from holdlog.adapters.python.state.conversation import history_item, results_of
from holdlog.adapters.python.state.data import kind_of
from holdlog.adapters.python.state.repository import (
    AnyResult,
    AnyStore,
    ThreadRepository,
    new_name,
    require_agent,
    thread_changed,
)
from holdlog.adapters.python.state.state import WRITER
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.threads.commands import Append, NewResult, StartThread, ThreadChanged, ThreadCommand
from holdlog.domain.threads.past import items_at

AnyUserMessage = UserMessage | Mapping[str, Any]


class _Hooks:
    """The commands and reads of both. `agent`: the author; None = the agent of each result, and `user`."""

    def __init__(self, store: AnyStore, *, agent: str | None = None) -> None:
        """Open the store that keeps the history. `store`: a StateStore, an AsyncStateStore, or the path or URL of
        one."""
        self._repository = ThreadRepository(store)
        self._agent = require_agent(agent)

    def _starting(self, thread_id: str, data: object = None) -> StartThread:
        begun = kind_of(data, thread_id).beginning()
        self._repository.require_size(begun)
        return checked(lambda: StartThread(thread=thread_id, data=begun, by=self._agent or WRITER), by="agent")

    def _user_message_command(self, thread_id: str, message: AnyUserMessage) -> Append:
        given = message if isinstance(message, UserMessage) else checked(lambda: UserMessage.model_validate(message))
        return self._appending(thread_id, [given.result()], USER)[0]

    def _appending(self, thread_id: str, results: Sequence[AnyResult], by: str | None = None) -> list[Append]:
        name = text(thread_id, "thread_id", NAME)
        items = self._repository.items((), results)
        return [Append(thread=name, items=part, by=self._agent or by or _whose(part)) for part in in_parts(items)]


def _whose(items: Sequence[Any]) -> str:
    found = {item.agent for item in items if isinstance(item, NewResult)}
    return found.pop() if len(found) == 1 else WRITER


def _results(reader: Reader, thread_id: str) -> list[AgentResult]:
    thread = reader.thread(thread_id)
    return results_of([history_item(it) for it in items_at(reader, thread_id, thread.version)])


class ThreadHistory(_Hooks):
    """The hooks that a network calls to store its history. Each append is durable when it returns: append results as
    they arrive, and a run that fails loses none. As a context manager it closes a store that it opened. Thread-safe."""

    def create_thread(self, thread_id: str | None = None, *, data: object = None) -> str:
        """Start a thread if it does not exist; return its id. `data`: the initial data of a new thread, a dict or
        model."""
        name = new_name(thread_id)
        self._run(self._starting(name, data))
        return name

    def get(self, thread_id: str) -> list[AgentResult]:
        """The current results in order, including user messages; empty if the thread does not exist."""
        name = text(thread_id, "thread_id", NAME)
        return self._repository.read(lambda reader: _results(reader, name))

    def append_user_message(self, thread_id: str, message: AnyUserMessage) -> bool:
        """Store a user message as a result of the agent `user`, once per message id; False if it was stored before.
        Starts the thread if needed."""
        return self._append(self._user_message_command(thread_id, message)) == 1

    def append_results(self, thread_id: str, results: Sequence[AnyResult]) -> int:
        """Store each result once; return how many are new. Starts the thread if needed."""
        return sum(self._append(command) for command in self._appending(thread_id, results))

    def close(self) -> None:
        """Close the store if it was given as a path or URL."""
        self._repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, command: Append) -> int:
        try:
            return self._run(command).appended
        except NotFoundError:
            self._run(self._starting(command.thread))
            return self._run(command).appended

    def _run(self, command: ThreadCommand) -> ThreadChanged:
        return self._repository.run(lambda: command)


class AsyncThreadHistory(_Hooks):
    """`ThreadHistory` for coroutines: the same hooks, awaitable."""

    async def create_thread(self, thread_id: str | None = None, *, data: object = None) -> str:
        name = new_name(thread_id)
        await self._run(self._starting(name, data))
        return name

    async def get(self, thread_id: str) -> list[AgentResult]:
        name = text(thread_id, "thread_id", NAME)
        return await self._repository.engine.read_async(Query(lambda reader: _results(reader, name), large=True))

    async def append_user_message(self, thread_id: str, message: AnyUserMessage) -> bool:
        return await self._append(self._user_message_command(thread_id, message)) == 1

    async def append_results(self, thread_id: str, results: Sequence[AnyResult]) -> int:
        return sum([await self._append(command) for command in self._appending(thread_id, results)])

    async def close(self) -> None:
        self._repository.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _append(self, command: Append) -> int:
        try:
            return (await self._run(command)).appended
        except NotFoundError:
            await self._run(self._starting(command.thread))
            return (await self._run(command)).appended

    async def _run(self, command: ThreadCommand) -> ThreadChanged:
        engine = self._repository.engine
        return await engine.write_async(CommandRequest(command, thread_changed), engine.caller)
