"""The data of a thread as one State sees it, and the only way to change it.

A change is first tried on plain copies, then written to the store with the known data version, and only then applied to
the live objects. So a refused change leaves memory unchanged, and stale data never overwrites another caller's change.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from holdlog.adapters.python.state.plain import Copying, plain
from holdlog.adapters.python.state.tracked import Answer, LiveDict, LiveList, LiveSet, put, rebound, twin
from holdlog.domain.names import name
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.commands import ThreadChanged
from holdlog.domain.value import Json

T = TypeVar("T")
WriteData = Callable[[Mapping[str, Json], Collection[str], int], ThreadChanged]
"""Writes values by key, deletes keys, and expects a data version, in this order of arguments. Raises refusals."""


class Live(ABC, Generic[T]):
    """Live data. `root`: the live object; `stored`: the stored value of each key; `version`: the data version."""

    root: T

    def __init__(self, stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock) -> None:
        self.stored = dict(stored)
        self.version = version
        self.lock = lock
        self._write = write

    @abstractmethod
    def change(self, target: Any, operate: Callable[[Any], Answer]) -> Answer:
        """Apply `operate` to a plain copy of `target`, and store the result. If `target` is no longer part of the data,
        it changes in memory only."""

    @abstractmethod
    def assign(self, values: Mapping[str, Any], deleted: Collection[str] = ()) -> None:
        """Write values by key, and delete other keys."""

    @abstractmethod
    def difference(self, value: T) -> tuple[dict[str, Json], list[str]]:
        """The keys to write and the keys to delete to replace the data with `value`."""

    def copy(self) -> T:
        copied: T = plain(self.root)
        return copied

    def write(self, written: Mapping[str, Json], deleted: Collection[str]) -> None:
        """Write and delete keys in the store. Raises DataConflictError and other refusals; nothing has changed then."""
        deleted = [key for key in deleted if key in self.stored]
        outcome = self._write(written, deleted, self.version)
        self.version = outcome.data_version
        self.stored |= written
        for key in deleted:
            del self.stored[key]


class LiveObject(Live[dict[str, Any]]):
    """Live data that is any JSON object."""

    def __init__(self, stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock) -> None:
        super().__init__(stored, version, write, lock)
        self.root: dict[str, Any] = owned(LiveDict(), self, None)
        put(self.root, {key: self._bound(value.value, key) for key, value in stored.items()})

    def change(self, target: Any, operate: Callable[[Any], Answer]) -> Answer:
        with self.lock:
            parts = twin(target)
            answer = operate(parts)
            if target is self.root:
                new = {key: part for key, part in parts.items() if key not in self.root or self.root[key] is not part}
                self.assign(new, [key for key in self.root if key not in parts])
                return answer
            copying = Copying(target, parts)
            key = target._holdlog_key
            whole = copying.of(self.root.get(key))
            bound = rebound(target, parts, lambda part: self._new(part, key))
            if copying.met:
                value = checked_json(key, whole)
                self.write({} if value == self.stored.get(key) else {key: value}, ())
            put(target, bound)
            return answer

    def assign(self, values: Mapping[str, Any], deleted: Collection[str] = ()) -> None:
        with self.lock:
            written = self._written(values)
            self.write(written, deleted)
            for key in deleted:
                dict.pop(self.root, key, None)
            for key, value in written.items():
                dict.__setitem__(self.root, key, self._bound(value.value, key))

    def difference(self, value: dict[str, Any]) -> tuple[dict[str, Json], list[str]]:
        if not isinstance(value, dict):
            raise InvalidError("data: must be a dict")
        return self._written(value), [key for key in self.stored if key not in value]

    def _written(self, values: Mapping[str, Any]) -> dict[str, Json]:
        found = {require_key(key): checked_json(key, plain(value)) for key, value in values.items()}
        return {key: value for key, value in found.items() if value != self.stored.get(key)}

    def _new(self, part: Any, key: str) -> Any:
        return self._bound(checked_json(key, plain(part)).value, key)

    def _bound(self, value: Any, key: str) -> Any:
        """Make live containers of a JSON value, which nothing else may refer to."""
        if isinstance(value, dict):
            made = owned(LiveDict(), self, key)
            put(made, {name: self._bound(part, key) for name, part in value.items()})
            return made
        if isinstance(value, list):
            listed = owned(LiveList(), self, key)
            put(listed, [self._bound(part, key) for part in value])
            return listed
        return value


Container = TypeVar("Container", LiveDict, LiveList, LiveSet)


def owned(made: Container, owner: Any, key: str | None) -> Container:
    made._holdlog_owner = owner
    made._holdlog_key = key
    return made


def checked_json(key: object, value: Any) -> Json:
    try:
        return Json.of(value)
    except ValueError as error:
        raise InvalidError(f"{shown(key)}: {error}") from None


def require_key(key: object) -> str:
    """Check a key of data. Raises InvalidError if it is not a name."""
    if not isinstance(key, str):
        raise InvalidError("data: its keys must be strings")
    try:
        if name(key) != key:
            raise ValueError("must be in Unicode normalization form NFC")
    except ValueError as error:
        raise InvalidError(f"data: a key {error}") from None
    return key


def shown(key: object) -> str:
    """The key as shown in an error; `data` if it is too long or unprintable."""
    return key if isinstance(key, str) and len(key) <= 64 and key.isprintable() else "data"
