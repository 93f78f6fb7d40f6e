"""The data of a thread as one State shows it, and how it is refreshed and changed."""

import inspect
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from holdlog.adapters.python.calls import UPDATE_ATTEMPTS, back_off
from holdlog.adapters.python.state.data import ModelType
from holdlog.adapters.python.state.live import Live
from holdlog.adapters.python.state.repository import ThreadRepository
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DataConflictDetail, DataConflictError, InvalidError
from holdlog.domain.threads.commands import ChangeData, ThreadChanged
from holdlog.domain.threads.past import data_at
from holdlog.domain.threads.thread import require_started
from holdlog.domain.value import Json

T = TypeVar("T")
Answer = TypeVar("Answer")


class SharedData(Generic[T]):
    """Holds the data of a thread for one State. `live`: the objects shown now, replaced when a read finds other data.
    `by` returns the author."""

    live: Live[T]

    def __init__(self, repository: ThreadRepository, thread: str, kind: ModelType[T], by: Callable[[], str]) -> None:
        self._repository = repository
        self._thread = thread
        self._kind = kind
        self._by = by
        self._lock = threading.RLock()
        self._updating = threading.local()
        self.live = repository.read(self._loaded)

    def refresh(self) -> bool:
        """Load the current data; False if it did not change. Raises InvalidError if it does not fit the model."""
        with self._lock:
            was, self.live = self.live, self._repository.read(lambda reader: self._loaded(reader, self.live))
            return self.live is not was

    def replace(self, value: T) -> None:
        """Write all differences as one event. Live objects obtained earlier belong to the previous version."""
        with self._lock:
            live = self.live
            written, deleted = live.difference(value)
            outcome = self._change(written, deleted, live.version)
            if written or deleted:
                stored = {key: json for key, json in {**live.stored, **written}.items() if key not in deleted}
                self.live = self._kind.live(stored, outcome.data_version, self._change, self._lock)

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

    def _update_once(self, function: Callable[[T], Answer]) -> Answer:
        with self._lock:
            self.refresh()
            live, version, copy = self.live, self.live.version, self.live.copy()
        self._updating.now = True
        try:
            given = function(copy)
        finally:
            self._updating.now = False
        if inspect.iscoroutine(given):
            given.close()
        if inspect.isawaitable(given) or inspect.isgenerator(given) or inspect.isasyncgen(given):
            raise InvalidError("update: does not accept an async function or a generator; pass a plain function")
        with self._lock:
            if self.live is not live or live.version != version:
                raise DataConflictError(self._overtaken(version))
            self.replace(self._kind.replaced(copy, given))
        return given

    def _require_no_update(self) -> None:
        """Refuse a change by the function itself: each attempt would conflict with it."""
        if getattr(self._updating, "now", False):
            raise InvalidError("update: its function must change the data it receives, not the State")

    def _overtaken(self, version: int) -> DataConflictDetail:
        """Describe a conflict with another thread that uses the same State."""
        return DataConflictDetail(
            thread_id=self._thread,
            expected_data_version=version,
            actual_data_version=self.live.version,
            changed_keys=(),
        )

    def _stored(self, reader: Reader) -> tuple[int, dict[str, Json]]:
        thread = reader.thread(self._thread)
        require_started(thread)
        return thread.data_version, data_at(reader, thread, thread.version)

    def _loaded(self, reader: Reader, known: Live[T] | None = None) -> Live[T]:
        if known is not None and reader.thread(self._thread).data_version == known.version:
            return known
        version, stored = self._stored(reader)
        return self._kind.live(stored, version, self._change, self._lock)

    def _change(self, written: Mapping[str, Json], deleted: Collection[str], expected: int) -> ThreadChanged:
        self._require_no_update()
        self._repository.require_size(written)
        return self._repository.run(
            lambda: ChangeData(
                thread=self._thread,
                written=dict(written),
                deleted=tuple(deleted),
                expected_data_version=expected,
                by=self._by(),
            )
        )
