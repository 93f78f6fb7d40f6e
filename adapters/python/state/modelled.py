"""Live pydantic models. A generated subclass of the user's model whose attribute writes are stored."""

import copy
from abc import ABCMeta
from functools import cache
from typing import Any, SupportsIndex

from pydantic import BaseModel

from holdlog.adapters.python.state.live import owned
from holdlog.adapters.python.state.plain import Marked, built, class_of, is_lasting, plain, rebuilt
from holdlog.adapters.python.state.tracked import LiveDict, LiveList, LiveSet, Owner, is_live, put
from holdlog.domain.refusals import InvalidError


class LiveModel(Marked):
    """Mixin of the generated subclasses. Private attributes (`_names`) are kept only in memory."""

    __slots__ = ()
    _holdlog_owner: Owner

    def __init_subclass__(cls, **named: Any) -> None:
        """Skip `__init_subclass__` of the program's class, because this subclass is not one of its models."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") and not name.startswith("__pydantic"):
            super().__setattr__(name, value)
        elif not (is_live(value) and value is getattr(self, name, None)):
            self._holdlog_owner.change(self, lambda it: setattr(it, name, value))

    def __delattr__(self, name: str) -> None:
        if name.startswith("_"):
            super().__delattr__(name)
        else:
            self._holdlog_owner.change(self, lambda it: delattr(it, name))

    def __eq__(self, other: object) -> bool:
        return bool(plain(self) == (plain(other) if isinstance(other, LiveModel) else other))

    def __hash__(self) -> int:
        return hash(plain(self))

    def __copy__(self) -> Any:
        return copy.copy(plain(self))

    def __deepcopy__(self, memo: Any = None) -> Any:
        return plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return copy.copy, (plain(self),)

    def model_copy(self, **given: Any) -> Any:
        """A plain copy of the model; its changes are not stored."""
        return plain(self).model_copy(**given)

    def model_dump(self, **given: Any) -> Any:
        return plain(self).model_dump(**given)

    def model_dump_json(self, **given: Any) -> Any:
        return plain(self).model_dump_json(**given)


@cache
def live_class(kind: type[BaseModel]) -> type[Any]:
    """Generate the live subclass of a model class. It bypasses pydantic's metaclass and shares the fields, validators
    and serializers of `kind`."""
    names = {
        "__slots__": ("_holdlog_key", "_holdlog_owner"),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_holdlog_class": kind,
    }
    return ABCMeta.__new__(type(kind), kind.__name__, (LiveModel, kind), names)


class Binding:
    """Makes live copies of plain values, for one owner and one key of its data. Without an owner it only checks that
    the values can be tracked."""

    def __init__(self, owner: Owner | None = None, key: str | None = None) -> None:
        self._owner = owner
        self._key = key

    def of(self, value: Any) -> Any:
        """Make a live copy of a value. Raises InvalidError for a type whose changes cannot be tracked."""
        kind = type(value)
        if kind is dict:
            made = owned(LiveDict(), self._owner, self._key)
            put(made, {name: self.of(part) for name, part in value.items()})
            return made
        if kind is list:
            listed = owned(LiveList(), self._owner, self._key)
            put(listed, [self.of(part) for part in value])
            return listed
        if kind is set:
            return self._set(value)
        if isinstance(value, BaseModel):
            return self._model(value)
        if isinstance(value, tuple):
            return rebuilt(value, [self.of(part) for part in value])
        if is_lasting(value):
            return value
        raise InvalidError(
            f"{self._key or 'data'}: has a {kind.__name__}, which cannot be stored or tracked; "
            "use a dict, list, set or pydantic model"
        )

    def _model(self, model: BaseModel) -> Any:
        extra = model.__pydantic_extra__
        made = built(
            live_class(class_of(model)),
            {name: self._part(name).of(part) for name, part in model.__dict__.items()},
            None if extra is None else {name: self._part(name).of(part) for name, part in extra.items()},
            model,
        )
        object.__setattr__(made, "_holdlog_owner", self._owner)
        object.__setattr__(made, "_holdlog_key", self._key)
        return made

    def _set(self, value: set[Any]) -> LiveSet:
        made = owned(LiveSet(), self._owner, self._key)
        put(made, value)
        return made

    def _part(self, name: str) -> "Binding":
        """The binding of a field. If this binding is for the whole data, each field is a key."""
        return self if self._key is not None else Binding(self._owner, name)
