"""A thread with one event of each kind, and some more, of messages and results as agents say them."""

from typing import Any, Final

from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.api.threads.conversation import AgentResult, TextMessage, new_message, new_result
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.threads.commands import ChangeData, NewMessage, NewResult, ThreadCommand
from holdlog.domain.value import Json
from tests.support import threads
from tests.support.commands import run

Place = Store | Engine
"""The second where waiters are to hear of it."""

KINDS: Final = [
    "ThreadStarted",
    "ThreadDataChanged",
    "MessageAppended",
    "ResultAppended",
    "ThreadDataChanged",
    "ResultsCleared",
    "ResultAppended",
]
"""Of the events of `story`, in order."""


def said(content: str) -> NewMessage:
    return new_message(TextMessage(role="user", content=content))


def result(content: str, agent: str = "writer") -> NewResult:
    output: list[Any] = [TextMessage(role="assistant", content=content)]
    return new_result(AgentResult(agent_name=agent, output=output))


def start(place: Place, thread: str = "run-7", by: str = "ann", caller: Caller = NOBODY, **data: Any) -> None:
    _do(place, threads.start(thread, by, **data), caller)


def append(place: Place, *items: NewMessage | NewResult, thread: str = "run-7", by: str = "ann") -> None:
    _do(place, threads.append(*items, thread=thread, by=by))


def change_data(
    place: Place,
    written: dict[str, Any],
    *deleted: str,
    thread: str = "run-7",
    by: str = "ann",
    caller: Caller = NOBODY,
) -> None:
    values = {key: Json.of(value) for key, value in written.items()}  # of any name, "by" too
    _do(place, ChangeData(thread=thread, written=values, deleted=deleted, by=by), caller)


def fork(place: Place, thread: str, parent: str = "run-7", by: str = "ann") -> None:
    _do(place, threads.fork(thread, parent, by=by))


def story(place: Place, thread: str = "run-7", by: str = "ann") -> None:
    start(place, thread, by, plan="search", files={"a.py": "1"})
    append(place, said("which file?"), result("a.py"), thread=thread, by=by)
    change_data(place, {"plan": "write"}, "files", thread=thread, by=by)
    _do(place, threads.replace(result("b.py"), thread=thread, by=by))


def _do(place: Place, command: ThreadCommand, caller: Caller = NOBODY) -> None:
    if isinstance(place, Engine):
        place.write(CommandRequest(command, lambda outcome: outcome), caller)
    else:
        run(place, command, caller)
