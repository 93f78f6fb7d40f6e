"""What `state.data` returns: a dict or a model whose assignments are written, and whose parts refuse changes."""

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FunctionType
from typing import Any, SupportsIndex, cast

from pydantic import BaseModel, ValidationError

from holdlog.adapters.python.state.read_only import ReadOnlyDict, read_only
from holdlog.adapters.python.state.shown import ShownData, why
from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import Json


class DataDict(ReadOnlyDict):
    """Data that is any JSON object. Assigning or deleting a key is one event; all other changes are refused."""

    __slots__ = ("_shown",)

    def __init__(self, shown: ShownData[Any]) -> None:
        super().__init__({key: read_only(value.value) for key, value in shown.values.items()})
        self._shown = shown

    def __setitem__(self, key: str, value: Any) -> None:  # type: ignore[override]
        self._shown.assign({key: value})

    def __delitem__(self, key: str) -> None:  # type: ignore[override]
        with self._shown.lock:
            self[key]  # raises KeyError
            self._shown.assign({}, [key])

    def _holdlog_follow(self, written: Mapping[str, Json], deleted: Collection[str]) -> None:
        """Show a change that was written."""
        for key in deleted:
            dict.pop(self, key, None)
        added = any(key not in self for key in written)
        for key, value in written.items():
            dict.__setitem__(self, key, read_only(value.value))
        if added:
            ordered = sorted(self.items())
            dict.clear(self)
            dict.update(self, ordered)


class ModelView:
    """Data that a pydantic model describes; for `isinstance` an instance of the program's class. Assigning an attribute
    is one event. Methods and properties of the program's class run on this object, so what they assign is written;
    those of BaseModel run on a copy."""

    __slots__ = ("_holdlog_kind", "_holdlog_model", "_holdlog_shown")
    _holdlog_kind: type[BaseModel]
    _holdlog_model: BaseModel | None
    _holdlog_shown: ShownData[Any]

    def __init__(self, kind: type[BaseModel], shown: ShownData[Any]) -> None:
        object.__setattr__(self, "_holdlog_kind", kind)
        object.__setattr__(self, "_holdlog_model", None)
        object.__setattr__(self, "_holdlog_shown", shown)

    def _holdlog_follow(self, written: Mapping[str, Json], deleted: Collection[str]) -> None:
        """Show a change that was written."""
        object.__setattr__(self, "_holdlog_model", None)

    def _holdlog_read(self) -> BaseModel:
        """The model that is shown, which nothing may change."""
        with self._holdlog_shown.lock:
            if self._holdlog_model is None:
                object.__setattr__(self, "_holdlog_model", self._holdlog_shown.draft())
            return cast(BaseModel, self._holdlog_model)

    def _holdlog_change(self, name: str, change: Callable[[BaseModel], None]) -> None:
        field = self._holdlog_kind.model_fields.get(name)
        if name.startswith("_") or (field is not None and field.exclude):
            raise InvalidError(f"{name}: private and excluded fields are not stored; keep such values elsewhere")
        with self._holdlog_shown.lock:
            draft = self._holdlog_shown.draft()
            try:
                change(draft)
            except ValidationError as error:
                raise InvalidError(f"data: {why(error)}") from None
            self._holdlog_shown.replace(draft, self._holdlog_shown.version)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._holdlog_kind

    def __getattr__(self, name: str) -> Any:
        found = inspect.getattr_static(self._holdlog_kind, name, None)
        if isinstance(found, FunctionType | property) and not hasattr(BaseModel, name):
            return found.__get__(self, self._holdlog_kind)
        return read_only(getattr(self._holdlog_read(), name))

    def __setattr__(self, name: str, value: Any) -> None:
        self._holdlog_change(name, lambda draft: setattr(draft, name, value))

    def __delattr__(self, name: str) -> None:
        self._holdlog_change(name, lambda draft: delattr(draft, name))

    def __eq__(self, other: object) -> bool:
        return bool(self._holdlog_read() == other)

    def __hash__(self) -> int:
        return hash(self._holdlog_read())

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.model_copy(deep=True))

    def __repr__(self) -> str:
        return repr(self._holdlog_read())

    def __str__(self) -> str:
        return str(self._holdlog_read())

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return copy.copy, (self.model_copy(),)
