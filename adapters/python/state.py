"""`State`: what the agents of a network share, as in AgentKit. Its messages and results are a thread of the store, its
data the values in `threads/<id>`."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, overload
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from holdlog.adapters.engine.conversations import require_text
from holdlog.adapters.operations.base import describe
from holdlog.adapters.operations.conversation import AgentResult, Message
from holdlog.adapters.operations.steps import take_steps
from holdlog.adapters.operations.threads import ThreadRead, WriteThread
from holdlog.adapters.python.base import Handle
from holdlog.adapters.python.calls import ATTEMPTS, LONGEST_PAUSE, PAUSE, read_list
from holdlog.adapters.python.store import StateStore
from holdlog.domain.names import THREAD_DATA, check_prefix
from holdlog.domain.refusals import ConflictError, InvalidError
from holdlog.domain.threads import ThreadWritten
from holdlog.projections.results import NoThread, ThreadItem

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Answer = TypeVar("Answer")
AnyMessage = Message | Mapping[str, Any]
AnyResult = AgentResult | Mapping[str, Any]

WRITER: Final = "state"
"""The author of changes made without an agent."""
_MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Message)


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses changes, as these would be lost. Copies are plain dicts."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidError("data: is a copy; change it with edit(), or use kv")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class KeyValues:
    """The keys of the data, as AgentKit's `state.kv`. `set` and `delete` write at once; they raise ConflictError if
    another changed this key since the last `refresh`."""

    def __init__(self, state: "State[Any]") -> None:
        self._state = state

    def get(self, key: str) -> Any:
        """A copy of the value; None if there is none."""
        return deepcopy(self._state._values.get(_check_key(key)))

    def has(self, key: str) -> bool:
        return _check_key(key) in self._state._values

    def all(self) -> dict[str, Any]:
        return deepcopy(self._state._values)

    def set(self, key: str, value: Any) -> None:
        """Write a value, which must be JSON. Raises InvalidError."""
        self._state._write({key: value})

    def delete(self, key: str) -> bool:
        """Returns False if there is no such key."""
        if is_there := self.has(key):
            self._state._write({}, (_check_key(key),))
        return is_there


class State(Generic[T]):
    """One thread, opened by `create_state`. Each change is stored before its call returns, and one that raises did not
    happen. Data are those of the last `refresh`, with the changes of this State. For one thread of a program: another
    opens another State. Raises StoreError and UnavailableError as StateStore does."""

    def __init__(self, store: Handle, thread_id: str, kind: type[T], agent: str | None, is_owner: bool) -> None:
        self.thread_id = thread_id
        self.agent = agent
        """The author of changes. While there is none, the author of a result is its agent."""
        self._store = store
        self._kind = kind
        self._is_owner = is_owner
        self._values: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self.kv = KeyValues(self)
        self.refresh()

    # --- data

    @property
    def data(self) -> T:
        """A copy of the data, which `edit` changes. Raises InvalidError for data that do not fit the model."""
        value: Any = self._copy()
        return ReadOnlyDict(value) if isinstance(value, dict) else value  # type: ignore[return-value]

    @contextmanager
    def edit(self) -> Iterator[T]:
        """A copy of the data to change in a `with` block; the keys that differ at its end are written in one
        transaction, unless it raises. Raises ConflictError if another changed one of these keys since the last
        `refresh`, InvalidError for data that are not JSON or do not fit the model."""
        copy = self._copy()
        before = self._dump(copy)
        yield copy
        after = self._dump(copy)
        changed = {key: value for key, value in after.items() if key not in before or not is_same(value, before[key])}
        removed = tuple(key for key in before if key not in after and key in self._values)
        if changed or removed:
            self._write(changed, removed)

    def update(self, function: Callable[[T], Answer]) -> Answer:
        """Refresh, and edit by a function of the copy; again if another wrote meanwhile, up to 100 times. Returns what
        the function returns."""
        for attempt in range(1, ATTEMPTS + 1):
            self.refresh()
            try:
                with self.edit() as data:
                    return function(data)
            except ConflictError:
                if attempt == ATTEMPTS:
                    raise
            time.sleep(random.uniform(0, min(PAUSE * attempt, LONGEST_PAUSE)))
        raise AssertionError

    def refresh(self) -> bool:
        """Read the current data. Returns whether they differ."""
        records = take_steps(read_list(f"{THREAD_DATA}{self.thread_id}"), self._store._engine)
        versions, self._versions = self._versions, {record.key: record.version for record in records}
        self._values = {record.key: record.value for record in records}
        return versions != self._versions

    # --- history

    @property
    def messages(self) -> list[Message]:
        """All messages that were appended."""
        return [_MESSAGE.validate_python(item.message) for item in self._read_items() if item.message is not None]

    @property
    def results(self) -> list[AgentResult]:
        """The results of agents, the oldest first."""
        return [AgentResult.model_validate(item.result) for item in self._read_items() if item.result is not None]

    def get_results_from(self, index: int) -> list[AgentResult]:
        return self.results[index:]

    def append_message(self, message: AnyMessage) -> None:
        """Raises InvalidError."""
        self._write(messages=(message,))

    def append_result(self, result: AnyResult) -> bool:
        """Returns False if the thread has one with the same checksum. Raises InvalidError."""
        checked = _check(AgentResult, result)
        return bool(self._write(results=(checked,), by=self.agent or checked.agent_name).items.appended)

    def set_results(self, results: Sequence[AnyResult]) -> None:
        """Replace the results, by at most 1,000. The former ones stay in the log. Raises InvalidError."""
        self._write(results=results, clears=True)

    def format_history(self, form: Callable[[AgentResult], Iterable[Message]] | None = None) -> list[Message]:
        """Messages and results in the order in which they were appended, as messages for a model. `form` returns the
        messages of a result; by default its output, then the responses of its tools."""
        history: list[Message] = []
        for item in self._read_items():
            if item.message is not None:
                history.append(_MESSAGE.validate_python(item.message))
            elif item.result is not None:
                result = AgentResult.model_validate(item.result)
                history += [*result.output, *result.tool_calls] if form is None else form(result)
        return history

    def close(self) -> None:
        """Close the store if `create_state` opened it."""
        if self._is_owner and isinstance(self._store, StateStore):
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- steps

    def _start(self, data: Any, messages: Sequence[AnyMessage], results: Sequence[AnyResult]) -> None:
        """Write the first data and items, unless the thread has some."""
        query = ThreadRead.parse({"thread_id": self.thread_id, "limit": 1})
        if self._values or not isinstance(self._store._engine.query(query), NoThread):
            return
        begun = data if isinstance(data, (BaseModel, Mapping)) else self._copy()
        values = self._dump(begun)
        if values or messages or results:
            try:
                self._write(values, messages=messages, results=results)
            except ConflictError:  # another started it meanwhile
                self.refresh()

    def _copy(self) -> Any:
        values = deepcopy(self._values)
        if not issubclass(self._kind, BaseModel):
            return values
        if self._kind.model_config.get("extra") != "allow":  # another release of the program may have had other fields
            values = {name: value for name, value in values.items() if name in self._kind.model_fields}
        return _check(self._kind, values)

    def _dump(self, data: Any) -> dict[str, Any]:
        """The values of the data by key: fields of a model under their own names, as it would read them back."""
        if not isinstance(data, BaseModel):
            return dict(data)
        try:
            fields = data.model_dump(mode="json", warnings=False, exclude=set(type(data).model_computed_fields))
            checked = _check(type(data), fields)
            return checked.model_dump(mode="json", exclude=set(type(data).model_computed_fields))
        except PydanticSerializationError:
            raise InvalidError("data: must be JSON") from None

    def _write(
        self,
        values: Mapping[str, Any] = MappingProxyType({}),
        removed: Iterable[str] = (),
        messages: Sequence[AnyMessage] = (),
        results: Sequence[AnyResult] = (),
        clears: bool = False,
        by: str | None = None,
    ) -> ThreadWritten:
        """Write everything in one transaction, and change the view of the data."""
        namespace = f"{THREAD_DATA}{self.thread_id}"
        operations: list[dict[str, Any]] = [{"op": "set", "key": key, "value": values[key]} for key in values]
        operations += [{"op": "discard", "key": key} for key in removed]
        for operation in operations:
            expected = self._versions.get(_check_key(operation["key"]), 0)
            operation.update(namespace=namespace, expected_version=expected)
        items = {"messages": list(messages), "results": list(results), "clears_results": clears}
        arguments = {"thread_id": self.thread_id, "agent": by or self.agent or WRITER, "operations": operations}
        written: ThreadWritten = self._store._engine.run(WriteThread.parse(arguments | items), self._store._caller)
        for operation, step in zip(operations, written.data, strict=True):
            if operation["op"] == "set":
                self._values[step.key], self._versions[step.key] = deepcopy(operation["value"]), step.version
            else:
                del self._values[step.key], self._versions[step.key]
        return written

    def _read_items(self) -> list[ThreadItem]:
        """All messages, and the current results."""
        items: list[ThreadItem] = []
        after: int | None = 0
        while after is not None:
            query = ThreadRead.parse({"thread_id": self.thread_id, "after_version": after, "limit": 1000})
            page = self._store._engine.query(query)
            if isinstance(page, NoThread):
                return []
            for item in page.items:
                if item.kind == "cleared":
                    items = [earlier for earlier in items if earlier.kind == "message"]
                items.append(item)
            after = page.next_after
        return items


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON."""
    try:
        return to_json(one) == to_json(other)
    except (ValueError, PydanticSerializationError):  # writing it says what is wrong
        return False


def _check_key(key: Any) -> str:
    """The key in NFC, as the store has it. Raises InvalidError."""
    return require_text("key", key, check_prefix)


def _check(kind: type[M], value: Any) -> M:
    """Raises InvalidError, which names the field and not its value."""
    try:
        return kind.model_validate(value, by_name=True)
    except ValidationError as error:
        raise describe(error) from None


@overload
def create_state(
    data: M | type[M],
    *,
    thread_id: str | None = None,
    store: Handle | str | os.PathLike[str] | None = None,
    messages: Sequence[AnyMessage] = (),
    results: Sequence[AnyResult] = (),
    agent: str | None = None,
) -> State[M]: ...


@overload
def create_state(
    data: Mapping[str, Any] | type[dict[str, Any]] | None = None,
    *,
    thread_id: str | None = None,
    store: Handle | str | os.PathLike[str] | None = None,
    messages: Sequence[AnyMessage] = (),
    results: Sequence[AnyResult] = (),
    agent: str | None = None,
) -> State[dict[str, Any]]: ...


def create_state(
    data: Any = None,
    *,
    thread_id: str | None = None,
    store: Handle | str | os.PathLike[str] | None = None,
    messages: Sequence[AnyMessage] = (),
    results: Sequence[AnyResult] = (),
    agent: str | None = None,
) -> State[Any]:
    """Start a thread, or open one, and return its State.

    `data`: a dict, a pydantic model, or the class of a model, whose defaults a new thread has. `thread_id`: without it,
    a new one. `store`: an open StateStore or AsyncStateStore, which stays open, or a path or URL; without it, memory
    that lasts as long as the State. `messages`, `results`: those of a new thread. `agent`: the author of changes.

    If the thread exists, its data, messages and results are those that were stored. Raises InvalidError, also if stored
    data do not fit the model.
    """
    kind = data if isinstance(data, type) else type(data) if isinstance(data, BaseModel) else dict
    handle = store if isinstance(store, Handle) else StateStore(":memory:" if store is None else store)
    state = State[Any](handle, uuid4().hex if thread_id is None else thread_id, kind, agent, handle is not store)
    try:
        state._start(data, messages, results)
        state._copy()  # raises if it does not fit
    except BaseException:
        state.close()
        raise
    return state
