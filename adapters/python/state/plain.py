"""Makes plain copies of live data and of values that a program passes, optionally with one part replaced."""

from collections.abc import Hashable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final
from uuid import UUID

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr

from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import MAX_NESTING

LEAVES: Final = frozenset(
    (str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID, complex)
)
"""Types whose values are always immutable."""

_SECRETS: Final = (SecretStr, SecretBytes, Secret)


class Marked:
    """The base of live models. It defines no name that a program might use. `_holdlog_class`: the program's own model
    class."""

    __slots__ = ()
    _holdlog_class: ClassVar[type[BaseModel]]


def class_of(model: BaseModel) -> type[BaseModel]:
    return type(model)._holdlog_class if isinstance(model, Marked) else type(model)


def is_lasting(value: object) -> bool:
    """Whether a value is immutable, which is assumed if it is hashable by its content and not by its identity."""
    kind = type(value)
    if kind in LEAVES:
        return True
    if isinstance(value, _SECRETS) or kind.__hash__ in (None, object.__hash__):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return isinstance(value, Hashable)


class Copying:
    """Copies a value, with `instead` in place of `target`. Afterwards `met` is True if `target` was found."""

    def __init__(self, target: object = None, instead: object = None) -> None:
        self._target = target
        self._instead = instead
        self.met = False

    def of(self, value: Any, depth: int = 0) -> Any:
        """Copy dicts, lists, tuples, sets and models deeply; other values are used as they are.

        Raises InvalidError if the value is nested too deeply or contains itself."""
        if type(value) in LEAVES:
            return value
        if value is self._target and value is not None:
            self.met = True
            value = self._instead
        if depth > 2 * MAX_NESTING:
            raise InvalidError(f"value: may have at most {MAX_NESTING} levels of nesting, and must not contain itself")
        depth += 1
        if isinstance(value, dict):
            return {key: self.of(part, depth) for key, part in value.items()}
        if isinstance(value, list):
            return [self.of(part, depth) for part in value]
        if isinstance(value, BaseModel):
            return self._model(value, depth)
        if isinstance(value, tuple):
            return rebuilt(value, [self.of(part, depth) for part in value])
        if isinstance(value, set | frozenset):
            ordered = sorted(value, key=repr)  # so that equal sets are dumped in the same order
            return set(ordered) if isinstance(value, set) else frozenset(ordered)
        return value

    def _model(self, model: BaseModel, depth: int) -> BaseModel:
        kind = class_of(model)
        known = kind.__pydantic_fields__
        extra = model.__pydantic_extra__
        return built(
            kind,
            {name: self.of(part, depth) for name, part in model.__dict__.items() if name in known},
            None if extra is None else {name: self.of(part, depth) for name, part in extra.items()},
            model,
        )


def plain(value: Any) -> Any:
    """A plain copy of a value; its changes are not stored."""
    return Copying().of(value)


def rebuilt(like: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    """Make a tuple of the same type, such as a named tuple."""
    make = getattr(type(like), "_make", tuple)
    made: tuple[Any, ...] = make(parts)
    return made


def built(kind: type[BaseModel], fields: dict[str, Any], extra: dict[str, Any] | None, like: BaseModel) -> BaseModel:
    """Make a model without running its validators. It gets the private attributes of `like`."""
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(like.__pydantic_fields_set__))
    if not issubclass(kind, RootModel):  # a RootModel has neither
        private = like.__pydantic_private__
        object.__setattr__(made, "__pydantic_extra__", extra)
        object.__setattr__(made, "__pydantic_private__", None if private is None else dict(private))
    return made
