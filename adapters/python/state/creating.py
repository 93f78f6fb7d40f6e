"""`create_state`: start or reopen a thread."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from holdlog.adapters.python.state.cloning import append_all
from holdlog.adapters.python.state.data import kind_of
from holdlog.adapters.python.state.repository import (
    AnyMessage,
    AnyResult,
    AnyStore,
    ThreadRepository,
    new_name,
    require_agent,
)
from holdlog.adapters.python.state.shown import ModelType
from holdlog.adapters.python.state.state import WRITER, State
from holdlog.domain.threads.commands import MAX_APPENDED, StartThread

M = TypeVar("M", bound=BaseModel)


@overload
def create_state(
    data: M | type[M],
    *,
    thread_id: str | None = None,
    store: AnyStore | None = None,
    results: Sequence[AnyResult] = (),
    messages: Sequence[AnyMessage] = (),
    agent: str | None = None,
) -> State[M]: ...


@overload
def create_state(
    data: Mapping[str, Any] | type[dict[str, Any]] | None = None,
    *,
    thread_id: str | None = None,
    store: AnyStore | None = None,
    results: Sequence[AnyResult] = (),
    messages: Sequence[AnyMessage] = (),
    agent: str | None = None,
) -> State[dict[str, Any]]: ...


def create_state(
    data: object = None,
    *,
    thread_id: str | None = None,
    store: AnyStore | None = None,
    results: Sequence[AnyResult] = (),
    messages: Sequence[AnyMessage] = (),
    agent: str | None = None,
) -> State[Any]:
    """Start a thread, or reopen one, and return its State.

    `data`: a dict, a pydantic model, or a model class (a new thread then starts with the defaults of the class).
    `thread_id`: None = a generated id. `store`: None = memory that lasts as long as the State; a StateStore or
    AsyncStateStore; or the path or URL of one, which the State then opens and closes. `messages`, `results`: the
    initial conversation, messages first. `agent`: the author of changes.

    If the thread exists, `data`, `results` and `messages` are ignored, except that `data` selects the model. Raises
    InvalidError for content that cannot be stored, and if stored data do not fit the model; then nothing changed, and
    `create_state(dict, …)` returns a State that shows the data.
    """
    name = new_name(thread_id)
    kind = kind_of(data, name)
    require_agent(agent)
    repository = ThreadRepository(store)
    try:
        if not repository.read(lambda reader: reader.thread(name)).version:
            _start(repository, name, kind, messages, results, agent or WRITER)
        return State(repository, name, kind, agent)
    except BaseException:
        repository.close()
        raise


def _start(
    repository: ThreadRepository,
    name: str,
    kind: ModelType[Any],
    messages: Sequence[AnyMessage],
    results: Sequence[AnyResult],
    by: str,
) -> None:
    """Start the thread with as many items as one command may contain, then append the rest."""
    items = repository.items(messages, results)
    data = kind.beginning()
    repository.require_size(data)
    started = repository.run(lambda: StartThread(thread=name, data=data, items=items[:MAX_APPENDED], by=by))
    if started.created:
        append_all(repository, name, items[MAX_APPENDED:], by)
