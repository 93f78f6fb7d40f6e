"""Plain copies of data: of what a State shows, of what a program gives it, and of one with a part changed."""

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
"""Types whose values never change, known without a look."""

_SECRETS: Final = (SecretStr, SecretBytes, Secret)


class Marked:
    """The base of live models, which takes no name that a program might use. `_holdlog_class`: the model as that wrote
    it."""

    __slots__ = ()
    _holdlog_class: ClassVar[type[BaseModel]]


def class_of(model: BaseModel) -> type[BaseModel]:
    return type(model)._holdlog_class if isinstance(model, Marked) else type(model)


def is_lasting(value: object) -> bool:
    """Whether a value is one that cannot change: it is distinguished by what it is, not by where it is."""
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
    """One copy, in which `instead` replaces `target`; `met` states afterwards whether `target` was found."""

    def __init__(self, target: object = None, instead: object = None) -> None:
        self._target = target
        self._instead = instead
        self.met = False

    def of(self, value: Any, depth: int = 0) -> Any:
        """Dicts, lists, sets and models are copied with all they hold; what else there is, is taken over.

        Raises InvalidError for what holds itself."""
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
    """A copy that is nobody's: changes of it are written nowhere."""
    return Copying().of(value)


def rebuilt(like: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same kind."""
    make = getattr(type(like), "_make", tuple)
    made: tuple[Any, ...] = make(parts)
    return made


def built(kind: type[BaseModel], fields: dict[str, Any], extra: dict[str, Any] | None, like: BaseModel) -> BaseModel:
    """A model without a run of its validators; what is private to it is that of `like`."""
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(like.__pydantic_fields_set__))
    if not issubclass(kind, RootModel):  # which has no place for these
        private = like.__pydantic_private__
        object.__setattr__(made, "__pydantic_extra__", extra)
        object.__setattr__(made, "__pydantic_private__", None if private is None else dict(private))
    return made
