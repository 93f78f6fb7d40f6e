"""AgentKit's four history hooks of a network, for coroutines: `AsyncThreadHistory`."""

from collections.abc import Sequence
from typing import Self

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.threads.conversation import AgentResult
from holdlog.adapters.api.validation import NAME, text
from holdlog.adapters.python.state.history_hooks import AnyUserMessage, HistoryHooks, results_in
from holdlog.adapters.python.state.repository import (
    AnyResult,
    new_name,
    thread_changed,
)
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.threads.commands import Append, ThreadChanged, ThreadCommand


class AsyncThreadHistory(HistoryHooks):
    """The hooks that a network calls to store its history. Each append is durable when it returns: append results as
    they arrive, and a run that fails loses none. As a context manager it closes a store that it opened."""

    async def create_thread(self, thread_id: str | None = None, *, data: object = None) -> str:
        """Start a thread if it does not exist; return its id. `data`: the initial data of a new thread, a dict or
        model."""
        name = new_name(thread_id)
        await self._run(self._starting(name, data))
        return name

    async def get(self, thread_id: str) -> list[AgentResult]:
        """The current results in order, including user messages; empty if the thread does not exist."""
        name = text(thread_id, "thread_id", NAME)
        return await self._repository.engine.read_async(Query(lambda reader: results_in(reader, name), large=True))

    async def append_user_message(self, thread_id: str, message: AnyUserMessage) -> bool:
        """Store a user message as a result of the agent `user`, once per message id; False if it was stored before.
        Starts the thread if needed."""
        return await self._append(self._user_message_command(thread_id, message)) == 1

    async def append_results(self, thread_id: str, results: Sequence[AnyResult]) -> int:
        """Store each result once; return how many are new. Starts the thread if needed."""
        new = 0
        for command in self._appending(thread_id, results):
            new += await self._append(command)
        return new

    async def close(self) -> None:
        """Close the store if it was given as a path or URL."""
        self._repository.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _append(self, command: Append) -> int:
        try:
            changed = await self._run(command)
        except NotFoundError:
            await self._run(self._starting(command.thread))
            changed = await self._run(command)
        return changed.appended

    async def _run(self, command: ThreadCommand) -> ThreadChanged:
        engine = self._repository.engine
        return await engine.write_async(CommandRequest(command, thread_changed), engine.caller)
