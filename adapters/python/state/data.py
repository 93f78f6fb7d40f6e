"""The types that a program can choose for a thread's data: any JSON object, or a pydantic model."""

import threading
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from holdlog.adapters.python.state.live import Live, LiveObject, WriteData, checked_json, require_key
from holdlog.adapters.python.state.live_model import LiveRecord, ModelData, why
from holdlog.adapters.python.state.modelled import Binding
from holdlog.adapters.python.state.plain import plain
from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import Json

T = TypeVar("T")


class ModelType(Protocol, Generic[T]):
    """How data of one type is created and read."""

    def beginning(self) -> dict[str, Json]:
        """The initial data of a new thread, by key. Raises InvalidError."""

    def read(self, stored: dict[str, Json]) -> T:
        """A plain copy of the stored data; its changes are not stored. Raises InvalidError if the data does not fit."""

    def live(self, stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock) -> Live[T]:
        """Live data, whose changes `write` stores. Raises InvalidError if the stored data does not fit."""

    def replaced(self, copy: T, given: object) -> T:
        """The data after an update function: the copy that it changed, or the model that it returned if models are
        frozen."""


class ObjectKind:
    """Data that is any JSON object, shown as a `dict`."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def beginning(self) -> dict[str, Json]:
        return {require_key(key): checked_json(key, plain(value)) for key, value in self._data.items()}

    def read(self, stored: dict[str, Json]) -> dict[str, Any]:
        return {key: value.value for key, value in stored.items()}

    def live(
        self, stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock
    ) -> Live[dict[str, Any]]:
        return LiveObject(stored, version, write, lock)

    def replaced(self, copy: dict[str, Any], given: object) -> dict[str, Any]:
        return copy


M = TypeVar("M", bound=BaseModel)


class ModelKind(Generic[M]):
    """Data that a pydantic model describes. `data`: the initial data of a new thread; None: the defaults of the
    model."""

    def __init__(self, kind: type[M], data: M | None, thread: str) -> None:
        self._kind = kind
        self._data = data
        self._model = ModelData(kind, f"thread {thread}: its data")

    def beginning(self) -> dict[str, Json]:
        data = plain(self._data if self._data is not None else self._default())
        Binding().of(data)
        stored = self._model.dumped(data)
        Binding().of(self._model.read(stored))
        for key in stored:
            require_key(key)
        return stored

    def read(self, stored: dict[str, Json]) -> M:
        return self._model.read(stored)

    def live(self, stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock) -> Live[M]:
        return LiveRecord(self._model, stored, version, write, lock)

    def replaced(self, copy: M, given: object) -> M:
        return given if self._kind.model_config.get("frozen") and isinstance(given, self._kind) else copy

    def _default(self) -> M:
        try:
            return self._kind()
        except ValidationError as error:
            raise InvalidError(
                f"data: {self._kind.__name__} needs values for fields without a default: {why(error)}"
            ) from None


def kind_of(data: object, thread: str) -> ModelType[Any]:
    """Select the type for `data`: a dict, a pydantic model, or a model class. Raises InvalidError."""
    if data is None or data is dict:
        return ObjectKind({})
    if isinstance(data, type) and issubclass(data, BaseModel):
        return cast(ModelType[Any], ModelKind(data, None, thread))
    if isinstance(data, BaseModel):
        plain_data = plain(data)
        return cast(ModelType[Any], ModelKind(type(plain_data), plain_data, thread))
    if isinstance(data, Mapping):
        return ObjectKind(dict(data))
    raise InvalidError("data: must be a dict, a pydantic model, or a pydantic model class")
