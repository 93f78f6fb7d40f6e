"""The data of a thread for one State: how it is refreshed, edited and updated, and its keys."""

import inspect
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from holdlog.adapters.api.validation import NAME, text
from holdlog.adapters.python.calls import UPDATE_ATTEMPTS, back_off
from holdlog.adapters.python.state.repository import ThreadRepository
from holdlog.adapters.python.state.shown import ModelType, ShownData
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DataConflictError, InvalidError
from holdlog.domain.threads.commands import ChangeData
from holdlog.domain.threads.past import data_at
from holdlog.domain.threads.thread import require_started
from holdlog.domain.value import Json

T = TypeVar("T")
Answer = TypeVar("Answer")


class SharedData(Generic[T]):
    """Holds the data of a thread for one State. `shown`: what the State shows now; another object after a `refresh`
    that finds other data. `by` returns the author."""

    shown: ShownData[T]

    def __init__(self, repository: ThreadRepository, thread: str, kind: ModelType[T], by: Callable[[], str]) -> None:
        self._repository = repository
        self._thread = thread
        self._kind = kind
        self._by = by
        self._lock = threading.RLock()
        self._updating = threading.local()
        self.shown = repository.read(self._loaded)

    def refresh(self) -> bool:
        """Load the current data; False if it did not change. Raises InvalidError if it does not fit the model."""
        with self._lock:
            was, self.shown = self.shown, self._repository.read(lambda reader: self._loaded(reader, self.shown))
            return self.shown is not was

    def replace(self, data: T) -> None:
        with self._lock:
            self.shown.replace(data, self.shown.version)

    @contextmanager
    def edit(self) -> Iterator[T]:
        shown, version, draft = self._draft()
        yield draft
        shown.replace(draft, version)

    def update(self, function: Callable[[T], Answer]) -> Answer:
        self._require_no_update()
        for attempt in range(1, UPDATE_ATTEMPTS):
            try:
                return self._update_once(function)
            except DataConflictError:
                time.sleep(back_off(attempt))
        return self._update_once(function)

    def raw(self) -> dict[str, Any]:
        """The current data in the log."""
        _, stored = self._repository.read(self._stored)
        return {key: value.value for key, value in stored.items()}

    def _draft(self) -> tuple[ShownData[T], int, T]:
        with self._lock:
            shown = self.shown
            return shown, shown.version, shown.draft()

    def _update_once(self, function: Callable[[T], Answer]) -> Answer:
        self.refresh()
        shown, version, draft = self._draft()
        self._updating.now = True
        try:
            given = function(draft)
        finally:
            self._updating.now = False
        if inspect.iscoroutine(given):
            given.close()
        if inspect.isawaitable(given) or inspect.isgenerator(given) or inspect.isasyncgen(given):
            raise InvalidError("update: does not accept an async function or a generator; pass a plain function")
        shown.replace(self._kind.replaced(draft, given), version)
        return given

    def _require_no_update(self) -> None:
        """Refuse a change by the function itself: each attempt would conflict with it."""
        if getattr(self._updating, "now", False):
            raise InvalidError("update: its function must change the data it receives, not the State")

    def _stored(self, reader: Reader) -> tuple[int, dict[str, Json]]:
        thread = reader.thread(self._thread)
        require_started(thread)
        return thread.data_version, data_at(reader, thread, thread.version)

    def _loaded(self, reader: Reader, known: ShownData[T] | None = None) -> ShownData[T]:
        if known is not None and reader.thread(self._thread).data_version == known.version:
            return known
        version, stored = self._stored(reader)
        return ShownData(self._kind, stored, version, self._write, self._lock)

    def _write(self, written: Mapping[str, Json], deleted: Collection[str], expected: int) -> int:
        self._require_no_update()
        self._repository.require_size(written)
        changed = self._repository.run(
            lambda: ChangeData(
                thread=self._thread,
                written=dict(written),
                deleted=tuple(deleted),
                expected_data_version=expected,
                by=self._by(),
            )
        )
        return changed.data_version


class KeyValues:
    """The stored value of each key as JSON, with the method names of AgentKit. A key that `data` has only by a default
    of its model has no value here."""

    def __init__(self, shown: Callable[[], ShownData[Any]]) -> None:
        self._shown = shown

    def set(self, key: str, value: Any) -> None:
        """Store a value. Raises DataConflictError if another caller changed the data, InvalidError if it is not
        JSON."""
        self._shown().assign({text(key, "key", NAME): value})

    def get(self, key: str, default: Any = None) -> Any:
        """A copy of the value, which the caller may change; only `set` stores changes."""
        found = self._shown().stored.get(text(key, "key", NAME))
        return default if found is None else found.value

    def delete(self, key: str) -> bool:
        """Delete a key; False if it had no value. Raises as `set`."""
        shown = self._shown()
        key = text(key, "key", NAME)
        with shown.lock:
            was = key in shown.stored
            shown.assign({}, [key])
            return was

    def has(self, key: str) -> bool:
        return text(key, "key", NAME) in self._shown().stored

    def all(self) -> dict[str, Any]:
        """Copies of all values, in the order of their keys."""
        return {key: value.value for key, value in sorted(self._shown().stored.items())}
