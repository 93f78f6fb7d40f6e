"""Applies the validated result of a change to live data. Parts that did not change keep their identity."""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from holdlog.adapters.python.state.modelled import LiveModel
from holdlog.adapters.python.state.plain import class_of, rebuilt
from holdlog.adapters.python.state.tracked import LiveDict, LiveList, LiveSet, put


def parts_of(target: Any) -> dict[Any, Any]:
    """The fields of a model by name, including extra fields; empty if the object is not a model."""
    if not isinstance(target, BaseModel):
        return {}
    known = class_of(target).__pydantic_fields__
    fields = {name: part for name, part in target.__dict__.items() if name in known}
    return {**fields, **(target.__pydantic_extra__ or {})}


def put_parts(target: Any, bound: Any, parts: Any) -> None:
    """Replace the parts of `target` in place. `bound`: its new parts, as live objects; `parts`: the plain copy that
    they were made from."""
    if not isinstance(target, BaseModel):
        put(target, bound)
        return
    known = class_of(target).__pydantic_fields__
    object.__setattr__(target, "__dict__", {name: part for name, part in bound.items() if name in known})
    if target.__pydantic_extra__ is not None:
        extra = {name: part for name, part in bound.items() if name not in known}
        object.__setattr__(target, "__pydantic_extra__", extra)
    object.__setattr__(target, "__pydantic_fields_set__", set(parts.__pydantic_fields_set__))
    if parts.__pydantic_private__ is not None:
        object.__setattr__(target, "__pydantic_private__", parts.__pydantic_private__)


def apply_fields(live: Any, fresh: Any, only: Collection[str] | None = None) -> None:
    known = class_of(live).__pydantic_fields__
    for name, part in fresh.__dict__.items():
        if name in known and not known[name].exclude and (only is None or name in only):
            live.__dict__[name] = _applied(live.__dict__[name], part) if name in live.__dict__ else part
    present, extra = live.__pydantic_extra__, fresh.__pydantic_extra__
    if present is not None and extra is not None:
        for name in [name for name in present if name not in extra]:
            del present[name]
        for name, part in extra.items():
            if only is None or name in only:
                present[name] = _applied(present[name], part) if name in present else part
    object.__setattr__(live, "__pydantic_fields_set__", set(fresh.__pydantic_fields_set__))


def _applied(live: Any, fresh: Any) -> Any:
    """Update `live` in place to equal `fresh` if possible. Returns `live`, or the object that must replace it."""
    if type(live) is not type(fresh):
        return fresh
    if isinstance(live, LiveDict):
        put(live, {name: _applied(live[name], part) if name in live else part for name, part in fresh.items()})
    elif isinstance(live, LiveList):
        same = len(live) == len(fresh)
        put(live, [_applied(*pair) for pair in zip(live, fresh, strict=True)] if same else list(fresh))
    elif isinstance(live, LiveSet):
        if _typed(live) != _typed(fresh):
            set.clear(live)
            set.update(live, fresh)
    elif isinstance(live, LiveModel):
        apply_fields(live, fresh)
    elif isinstance(live, tuple) and len(live) == len(fresh):
        parts = [_applied(*pair) for pair in zip(live, fresh, strict=True)]
        return live if all(part is was for part, was in zip(parts, live, strict=True)) else rebuilt(fresh, parts)
    else:
        return fresh
    return live


def _typed(values: set[Any]) -> set[tuple[type, Any]]:
    return {(type(value), value) for value in values}
