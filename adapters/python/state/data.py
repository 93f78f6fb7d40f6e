"""The types that a program can choose for a thread's data: any JSON object, or a pydantic model. The keys of a model
are the names of its fields, never their aliases."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr, ValidationError
from pydantic_core import PydanticSerializationError

from holdlog.adapters.python.state.shown import ModelType, ShownData, checked_json, require_key, why
from holdlog.adapters.python.state.views import DataDict, ModelView
from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import Json, joined

M = TypeVar("M", bound=BaseModel)
_SECRETS: Final = (SecretStr, SecretBytes, Secret)


class ObjectKind:
    """Data that is any JSON object, shown as a `dict`."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def beginning(self) -> dict[str, Json]:
        return self.dump(dict(self._data))

    def read(self, stored: Mapping[str, Json]) -> dict[str, Any]:
        return {key: value.value for key, value in stored.items()}

    def dump(self, data: dict[str, Any]) -> dict[str, Json]:
        if not isinstance(data, dict):
            raise InvalidError("data: must be a dict")
        return {require_key(key): checked_json(key, value) for key, value in data.items()}

    def known(self, stored: Mapping[str, Json]) -> dict[str, Json]:
        return dict(stored)

    def view(self, shown: ShownData[dict[str, Any]]) -> dict[str, Any]:
        return DataDict(shown)

    def replaced(self, draft: dict[str, Any], given: object) -> dict[str, Any]:
        return draft


class ModelKind(Generic[M]):
    """Data that a pydantic model describes. `data`: the initial data of a new thread; None: the defaults of the
    model."""

    def __init__(self, kind: type[M], data: M | None, thread: str) -> None:
        if issubclass(kind, RootModel):
            raise InvalidError("data: a RootModel has no fields to store; use a BaseModel")
        self._kind = kind
        self._data = data
        self._thread = thread

    def beginning(self) -> dict[str, Json]:
        stored = self.dump(self._data if self._data is not None else self._default())
        self.read(stored)
        return stored

    def read(self, stored: Mapping[str, Json]) -> M:
        try:
            return self._kind.model_validate_json(joined(stored).text, by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidError(
                f"thread {self._thread}: its data does not fit {self._kind.__name__}: {why(error)}"
            ) from None

    def dump(self, data: M) -> dict[str, Json]:
        if not isinstance(data, self._kind):
            raise InvalidError(f"data: must be a {self._kind.__name__}")
        try:
            found = data.model_dump(mode="json", by_alias=False, round_trip=True, warnings=False)
        except (PydanticSerializationError, ValueError):
            raise InvalidError(f"data: {self._kind.__name__} has a value that JSON cannot represent") from None
        if not isinstance(found, dict):
            raise InvalidError(f"data: the serializer of {self._kind.__name__} must return an object")
        return {
            require_key(key): checked_json(key, _ordered(key, getattr(data, key, None), value))
            for key, value in found.items()
        }

    def known(self, stored: Mapping[str, Json]) -> dict[str, Json]:
        return self.dump(self.read(stored))

    def view(self, shown: ShownData[M]) -> M:
        return cast(M, ModelView(self._kind, shown))

    def replaced(self, draft: M, given: object) -> M:
        return given if self._kind.model_config.get("frozen") and isinstance(given, self._kind) else draft

    def _default(self) -> M:
        try:
            return self._kind()
        except ValidationError as error:
            raise InvalidError(
                f"data: {self._kind.__name__} needs values for fields without a default: {why(error)}"
            ) from None


def _ordered(key: str, value: Any, dumped: Any) -> Any:
    """The JSON of a value, with the members of sets in a fixed order, so that equal sets are equal. Raises InvalidError
    for a secret, whose JSON is asterisks."""
    if isinstance(value, _SECRETS):
        raise InvalidError(f"{key}: a secret cannot be stored; keep it outside of the data")
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        for part in value:
            _ordered(key, part, None)
        return sorted(dumped, key=repr)
    if isinstance(value, list | tuple | deque) and isinstance(dumped, list) and len(value) == len(dumped):
        return [_ordered(key, *pair) for pair in zip(value, dumped, strict=True)]
    if isinstance(value, dict):
        if not isinstance(dumped, dict) or len(value) != len(dumped):
            return dumped
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {name: _ordered(key, part, whole) for part, (name, whole) in pairs}
    if isinstance(dumped, dict):
        return {name: _ordered(key, getattr(value, name, None), whole) for name, whole in dumped.items()}
    return dumped


def kind_of(data: object, thread: str) -> ModelType[Any]:
    """Select the type for `data`: a dict, a pydantic model, or a model class. Raises InvalidError."""
    if data is None or data is dict:
        return ObjectKind({})
    if isinstance(data, type) and issubclass(data, BaseModel):
        return cast(ModelType[Any], ModelKind(data, None, thread))
    if isinstance(data, BaseModel):
        return cast(ModelType[Any], ModelKind(data.__class__, data, thread))
    if isinstance(data, Mapping):
        return ObjectKind(dict(data))
    raise InvalidError("data: must be a dict, a pydantic model, or a pydantic model class")
