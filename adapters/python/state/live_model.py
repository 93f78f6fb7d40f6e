"""Live data that a pydantic model describes. The keys are the names of its fields, never their aliases."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import PydanticSerializationError

from holdlog.adapters.api.validation import first_finding
from holdlog.adapters.python.state.applying import apply_fields, parts_of, put_parts
from holdlog.adapters.python.state.live import Live, WriteData, checked_json, require_key, shown
from holdlog.adapters.python.state.modelled import Binding, LiveModel
from holdlog.adapters.python.state.plain import Copying, plain
from holdlog.adapters.python.state.tracked import Answer, rebound, twin
from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import Json, joined

M = TypeVar("M", bound=BaseModel)

_EXPLICIT_ERRORS = frozenset(("value_error", "assertion_error", "union_tag_invalid"))
"""Types of pydantic errors whose texts may contain a value."""


class ModelData(Generic[M]):
    """Stores and reads a model. `what`: describes the data in errors."""

    def __init__(self, kind: type[M], what: str) -> None:
        if issubclass(kind, RootModel):
            raise InvalidError("data: a RootModel has no fields to store; use a BaseModel")
        self.kind = kind
        self._what = what

    def dumped(self, model: BaseModel) -> dict[str, Json]:
        """The fields of a model as JSON. Raises InvalidError for a value that JSON cannot represent."""
        try:
            found = model.model_dump(mode="json", by_alias=False, round_trip=True, warnings=False)
        except (PydanticSerializationError, ValueError):
            raise InvalidError(f"data: {self.kind.__name__} has a value that JSON cannot represent") from None
        if not isinstance(found, dict):
            raise InvalidError(f"data: the serializer of {self.kind.__name__} must return an object")
        return {key: checked_json(key, value) for key, value in found.items()}

    def set_field(self, model: M, key: str, value: Any) -> bool:
        """Set a field without running validators. Returns False if the model has no field for the key and allows no
        extra ones."""
        field = self.kind.__pydantic_fields__.get(key)
        if field is not None and not field.exclude:
            model.__dict__[key] = value
            return True
        if field is None and model.__pydantic_extra__ is not None:
            model.__pydantic_extra__[key] = value
            return True
        return False

    def read(self, stored: Mapping[str, Json]) -> M:
        """Read a model from stored values. Raises InvalidError, which names the field."""
        try:
            return self.kind.model_validate_json(joined(stored).text, by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidError(f"{self._what} does not fit {self.kind.__name__}: {why(error)}") from None


def why(error: ValidationError) -> str:
    finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = f"{shown(finding['loc'][0])}: " if finding["loc"] else ""
    if finding["type"] in _EXPLICIT_ERRORS:
        return f"{field}a validator rejected it"
    if finding["type"] == "extra_forbidden":
        return f"{field}unknown field of the model"
    return f"{field}{first_finding(error).rpartition(': ')[2]}"


class _Tried(Generic[M]):
    """The effects of a change. `fresh`: the data as a State that opens the thread afterwards would show it."""

    def __init__(self, written: dict[str, Json], deleted: list[str], shown: dict[str, Json], fresh: M) -> None:
        self.written = written
        self.deleted = deleted
        self.shown = shown
        self.fresh = fresh


class LiveRecord(Live[M]):
    """Live data that is a model with nested objects. Stored keys that are not fields of the model are kept."""

    def __init__(
        self, data: ModelData[M], stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock
    ) -> None:
        super().__init__(stored, version, write, lock)
        self._data = data
        model = data.read(stored)
        self._shown = data.dumped(plain(model))
        self.root: M = Binding(self, None).of(model)

    def change(self, target: Any, operate: Callable[[Any], Answer]) -> Answer:
        with self.lock:
            parts = plain(target) if isinstance(target, LiveModel) else twin(target)
            before = parts_of(parts)
            answer = self._operated(operate, parts)
            copying = Copying(target, parts)
            whole = copying.of(self.root)
            bound = self._rebound(target, before, parts)
            if not copying.met:
                put_parts(target, bound, parts)
                return answer
            touched = {target._holdlog_key}
            gone: set[str] = set()
            if target is self.root:
                after = parts_of(parts)
                gone = {name for name in before if name not in after}
                touched = {name for name, part in after.items() if name not in before or before[name] is not part}
            tried = self._tried(whole, gone)
            self._write_tried(tried)
            put_parts(target, bound, parts)
            self._apply(tried, touched | gone)
            return answer

    def assign(self, values: Mapping[str, Any], deleted: Collection[str] = ()) -> None:
        with self.lock:
            whole = self.copy()
            others: dict[str, Json] = {}
            for key, value in values.items():
                Binding(self, require_key(key)).of(plain(value))
                if not self._data.set_field(whole, key, plain(value)):
                    others[key] = checked_json(key, plain(value))
            for key in deleted:
                whole.__dict__.pop(key, None)
                (whole.__pydantic_extra__ or {}).pop(key, None)
            tried = self._tried(whole, deleted, others)
            self._write_tried(tried)
            for key in [key for key in (*values, *deleted) if key in tried.written or key in tried.deleted]:
                self.root.__dict__.pop(key, None)
                (self.root.__pydantic_extra__ or {}).pop(key, None)
            self._apply(tried, {*tried.written, *deleted})

    def difference(self, value: M) -> tuple[dict[str, Json], list[str]]:
        if not isinstance(value, self._data.kind):
            raise InvalidError(f"data: must be a {self._data.kind.__name__}")
        whole: M = plain(value)
        Binding().of(whole)
        tried = self._tried(whole, ())
        return tried.written, [key for key in tried.deleted if key in self.stored]

    def _operated(self, operate: Callable[[Any], Answer], parts: Any) -> Answer:
        try:
            return operate(parts)
        except ValidationError as error:
            raise InvalidError(f"data: {why(error)}") from None

    def _tried(self, whole: M, gone: Collection[str], others: Mapping[str, Json] | None = None) -> _Tried[M]:
        """Compute the effects of a change. Raises InvalidError if the result does not fit the model, or could not be
        read back."""
        dumped = self._data.dumped(whole)
        unseen = {key: value for key, value in self.stored.items() if key not in self._shown and key not in gone}
        model = self._data.read({**unseen, **(others or {}), **dumped})
        shown = self._data.dumped(plain(model))
        written = {key: value for key, value in shown.items() if key not in gone and self._shown.get(key) != value}
        written |= {key: value for key, value in (others or {}).items() if self.stored.get(key) != value}
        deleted = [*gone, *(key for key in self._shown if key not in shown and key not in gone)]
        return _Tried(written, deleted, shown, Binding(self, None).of(model))

    def _write_tried(self, tried: _Tried[M]) -> None:
        self.write(tried.written, tried.deleted)
        self._shown = tried.shown

    def _rebound(self, target: Any, before: Mapping[Any, Any], parts: Any) -> Any:
        """Like `tracked.rebound`, but also for models."""
        if isinstance(parts, BaseModel):
            live = parts_of(target)
            return {
                name: live[name]
                if name in before and before[name] is part
                else self._new(part, target._holdlog_key or name)
                for name, part in parts_of(parts).items()
            }
        return rebound(target, parts, lambda part: self._new(part, target._holdlog_key))

    def _new(self, part: Any, key: str) -> Any:
        return Binding(self, key).of(plain(part))

    def _apply(self, tried: _Tried[M], keys: Collection[str]) -> None:
        apply_fields(self.root, tried.fresh, {*keys, *tried.written, *tried.deleted})
