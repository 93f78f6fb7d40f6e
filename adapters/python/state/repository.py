"""Threads in an open store, for the library."""

import atexit
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.threads.conversation import (
    MESSAGE,
    AgentResult,
    Message,
    kept_result,
    message_of,
    new_message,
    new_result,
    result_of,
)
from holdlog.adapters.api.threads.payloads import digest_of, finding_at
from holdlog.adapters.api.validation import AGENT, NAME, caller, checked, text
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.commands import Outcome
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError, TooLargeError
from holdlog.domain.threads.commands import NewMessage, NewResult, ThreadChanged, ThreadCommand
from holdlog.domain.value import Json

Answer = TypeVar("Answer")
AnyStore = StateStore | AsyncStateStore | str | Path
AnyMessage = Message | Mapping[str, Any]
AnyResult = AgentResult | Mapping[str, Any]

_NO_LIMIT: Final = Settings(max_value_bytes=2**31)
"""For a store in memory, which one run uses."""

_dropped: Final[list[Engine]] = []
"""Stores without users that were not closed. Python may notice this at any point, even during a write to the same file,
for which closing would wait. So the next repository closes them, or the end of the process."""
_used: "Final[weakref.WeakSet[ThreadRepository]]" = weakref.WeakSet()
"""Repositories that opened a file or a database."""


def _close_dropped() -> None:
    with suppress(IndexError):  # another thread took the last one
        while _dropped:
            _dropped.pop().close()


@atexit.register
def _close_all() -> None:
    for repository in list(_used):
        repository.close()
    _close_dropped()


class ThreadRepository:
    """The threads of a store. `store`: None = a new store in memory. A store opened here is closed after its last
    user."""

    def __init__(self, store: AnyStore | None) -> None:
        _close_dropped()
        self._store = store  # keeps the store open as long as this object lives
        if isinstance(store, StateStore | AsyncStateStore):
            self.engine: Engine = store._engine
            self._own: weakref.finalize[..., Any] | None = None
        elif store is None:
            self.engine = open_holdlog(MEMORY, _NO_LIMIT)
            self._own = weakref.finalize(self, self.engine.close)
        else:
            self.engine = open_holdlog(store)
            self._own = weakref.finalize(self, _dropped.append, self.engine)
            _used.add(self)

    def close(self) -> None:
        """Close the store if this object opened it."""
        if self._own is not None and self._own.detach():
            self.engine.close()

    def run(self, make: Callable[[], ThreadCommand], request_id: str | None = None) -> ThreadChanged:
        """Run a command. Raises refusals; InvalidError for a command that breaks a rule."""
        who = caller(self.engine.caller, request_id=request_id)
        return self.engine.write(CommandRequest(checked(make, by="agent"), thread_changed), who)

    def read(self, answer: Callable[[Reader], Answer]) -> Answer:
        """Run a query on one snapshot."""
        return self.engine.read(Query(answer, large=True))

    def require_size(self, values: Mapping[str, Json] | Sequence[Json]) -> None:
        """Check the size of values. Raises TooLargeError."""
        limit = self.engine.settings.max_value_bytes
        for value in values.values() if isinstance(values, Mapping) else values:
            if value.is_above(limit):
                raise TooLargeError(limit)

    def items(self, messages: Sequence[AnyMessage], results: Sequence[AnyResult]) -> tuple[NewMessage | NewResult, ...]:
        """Check items to append. Raises InvalidError."""
        made: list[NewMessage | NewResult] = [message_item(message) for message in messages]
        made += [result_item(result) for result in results]
        self.require_size([item.value for item in made])
        return tuple(made)


def thread_changed(outcome: Outcome) -> ThreadChanged:
    assert isinstance(outcome, ThreadChanged)
    return outcome


def message_item(message: AnyMessage) -> NewMessage:
    """A message to append. Raises InvalidError if it is not a message or could not be read back."""

    def make() -> NewMessage:
        return new_message(MESSAGE.validate_python(message.exported() if isinstance(message, BaseModel) else message))

    return _made(make, "message")


def result_item(result: AnyResult) -> NewResult:
    """A result to append, also in the form that `AgentResult.export` returns. Raises InvalidError."""
    if not isinstance(result, AgentResult | Mapping):
        raise InvalidError("result: must be an AgentResult, or a dict of its fields")

    def make() -> NewResult:
        if isinstance(result, AgentResult):
            exported = result.export()
            AgentResult.model_validate(_without_checksum(exported))  # somebody may have changed its lists
            return kept_result(exported)
        return new_result(AgentResult.model_validate(_without_checksum(result)))

    return _made(make, "result")


def digest_without_time(result: AnyResult, by: str) -> str | None:
    """Identifies a repeated request to append a result whose time is that of the call; None: it has a time."""
    given = result if isinstance(result, AgentResult) else AgentResult.model_validate(_without_checksum(result))
    if "created_at" in given.model_fields_set:
        return None
    generated = ("created_at", "createdAt", "checksum")
    return digest_of("append", by, {name: part for name, part in given.export().items() if name not in generated})


def _without_checksum(exported: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in exported.items() if name != "checksum"}


def message_from(value: Json) -> Message:
    return _made(lambda: message_of(value), "a kept message")


def result_from(value: Json) -> AgentResult:
    return _made(lambda: result_of(value), "a kept result")


def _made(make: Callable[[], Answer], what: str) -> Answer:
    try:
        return make()
    except ValidationError as error:
        raise InvalidError(finding_at(error, what, tagged=what.endswith("message"))) from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise InvalidError(f"{what}: contains what JSON cannot represent") from None


def new_name(given: str | None) -> str:
    """Check the id of a thread; None = generate one."""
    return uuid.uuid4().hex if given is None else text(given, "thread_id", NAME)


def require_agent(given: str | None) -> str | None:
    return None if given is None else text(given, "agent", AGENT)
