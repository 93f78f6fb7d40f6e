"""The commands and reads of AgentKit's history hooks, for `ThreadHistory` and `AsyncThreadHistory`."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdlog.adapters.api.threads.conversation import USER, AgentResult, UserMessage
from holdlog.adapters.api.validation import NAME, checked, text
from holdlog.adapters.python.state.cloning import in_parts
from holdlog.adapters.python.state.conversation import history_item, results_of
from holdlog.adapters.python.state.data import kind_of
from holdlog.adapters.python.state.repository import (
    AnyResult,
    AnyStore,
    ThreadRepository,
    require_agent,
)
from holdlog.adapters.python.state.state import WRITER
from holdlog.domain.ports import Reader
from holdlog.domain.threads.commands import Append, NewResult, StartThread
from holdlog.domain.threads.past import items_at

AnyUserMessage = UserMessage | Mapping[str, Any]


class HistoryHooks:
    """Builds the commands. `agent`: the author; None = the agent of each result, and `user`."""

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


def results_in(reader: Reader, thread_id: str) -> list[AgentResult]:
    thread = reader.thread(thread_id)
    return results_of([history_item(it) for it in items_at(reader, thread_id, thread.version)])
