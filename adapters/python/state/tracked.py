"""Live dicts, lists and sets. Each change to one is first stored as a change of the thread's data, then applied to it.

A copy of one (`copy.copy`, `copy.deepcopy`, pickle) is a plain dict, list or set.
"""

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, Protocol, Self, SupportsIndex, TypeVar

from holdlog.adapters.python.state.plain import Marked, plain

Answer = TypeVar("Answer")


class Owner(Protocol):
    """The data that a live object belongs to."""

    def change(self, target: Any, operate: Callable[[Any], Answer]) -> Answer:
        """Apply `operate` to a plain copy of `target`, and store the result. Raises refusals; nothing has changed
        then."""


class LiveDict(dict[Any, Any]):
    __slots__ = ("_holdlog_key", "_holdlog_owner")
    _holdlog_key: str | None
    _holdlog_owner: Owner

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self and self[key] is value and is_live(value):
            return  # the second half of `data["a"] += […]`
        changed(self, lambda it: it.__setitem__(key, value))

    def __delitem__(self, key: Any) -> None:
        changed(self, lambda it: it.__delitem__(key))

    def clear(self) -> None:
        changed(self, lambda it: it.clear())

    def pop(self, key: Any, *default: Any) -> Any:
        return plain(changed(self, lambda it: it.pop(key, *default)))

    def popitem(self) -> tuple[Any, Any]:
        key, value = changed(self, lambda it: it.popitem())
        return key, plain(value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            changed(self, lambda it: it.setdefault(key, default))
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        given = dict(*others, **named)
        changed(self, lambda it: it.update(given))

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]
        self.update(other)
        return self

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> Any:
        return plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (plain(self),)


class LiveList(list[Any]):
    __slots__ = ("_holdlog_key", "_holdlog_owner")
    _holdlog_key: str | None
    _holdlog_owner: Owner

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = list(value)
        elif value is self[index] and is_live(value):
            return
        changed(self, lambda it: it.__setitem__(index, value))

    def __delitem__(self, index: Any) -> None:
        changed(self, lambda it: it.__delitem__(index))

    def append(self, value: Any) -> None:
        changed(self, lambda it: it.append(value))

    def extend(self, values: Iterable[Any]) -> None:
        given = list(values)
        changed(self, lambda it: it.extend(given))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        changed(self, lambda it: it.insert(index, value))

    def pop(self, index: SupportsIndex = -1) -> Any:
        return plain(changed(self, lambda it: it.pop(index)))

    def remove(self, value: Any) -> None:
        changed(self, lambda it: it.remove(value))

    def clear(self) -> None:
        changed(self, lambda it: it.clear())

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        changed(self, lambda it: it.sort(key=key, reverse=reverse))

    def reverse(self) -> None:
        changed(self, lambda it: it.reverse())

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> Self:
        changed(self, lambda it: it.__imul__(index(times)))
        return self

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> Any:
        return plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (plain(self),)


class LiveSet(set[Any]):
    __slots__ = ("_holdlog_key", "_holdlog_owner")
    _holdlog_key: str | None
    _holdlog_owner: Owner

    def add(self, value: Any) -> None:
        changed(self, lambda it: it.add(value))

    def discard(self, value: Any) -> None:
        changed(self, lambda it: it.discard(value))

    def remove(self, value: Any) -> None:
        changed(self, lambda it: it.remove(value))

    def pop(self) -> Any:
        return changed(self, lambda it: it.pop())

    def clear(self) -> None:
        changed(self, lambda it: it.clear())

    def update(self, *others: Iterable[Any]) -> None:
        given = [list(other) for other in others]
        changed(self, lambda it: it.update(*given))

    def difference_update(self, *others: Iterable[Any]) -> None:
        given = [list(other) for other in others]
        changed(self, lambda it: it.difference_update(*given))

    def intersection_update(self, *others: Iterable[Any]) -> None:
        given = [list(other) for other in others]
        changed(self, lambda it: it.intersection_update(*given))

    def symmetric_difference_update(self, other: Iterable[Any]) -> None:
        given = list(other)
        changed(self, lambda it: it.symmetric_difference_update(given))

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]
        self.update(_a_set(other))
        return self

    def __iand__(self, other: Any) -> Self:  # type: ignore[misc]
        self.intersection_update(_a_set(other))
        return self

    def __isub__(self, other: Any) -> Self:  # type: ignore[misc]
        self.difference_update(_a_set(other))
        return self

    def __ixor__(self, other: Any) -> Self:  # type: ignore[misc]
        self.symmetric_difference_update(_a_set(other))
        return self

    def __repr__(self) -> str:
        return repr(set(self))

    def __copy__(self) -> set[Any]:
        return set(self)

    def __deepcopy__(self, memo: object) -> Any:
        return plain(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return set, (plain(self),)


Tracked = LiveDict | LiveList | LiveSet


def _a_set(other: Any) -> Any:
    if not isinstance(other, set | frozenset):
        raise TypeError("must be a set; for other iterables, use update() and similar methods")
    return other


def is_live(value: object) -> bool:
    return isinstance(value, LiveDict | LiveList | LiveSet | Marked)


def twin(target: Tracked) -> Any:
    """A plain, shallow copy of a container."""
    if isinstance(target, dict):
        return dict(target)
    return list(target) if isinstance(target, list) else set(target)


def put(target: Tracked, parts: Any) -> None:
    """Replace the content without notifying its owner. Does not touch items that stay, so that loops over the container
    continue to work."""
    if isinstance(target, dict):
        for key in [key for key in target if key not in parts]:
            dict.__delitem__(target, key)
        for key, part in parts.items():
            if key not in target or target[key] is not part:
                dict.__setitem__(target, key, part)
    elif isinstance(target, list):
        list.__setitem__(target, slice(None), parts)
    else:
        set.intersection_update(target, parts)
        set.update(target, parts)


def rebound(target: Any, parts: Any, new: Callable[[Any], Any]) -> Any:
    """The new parts of `target`. A part that did not move stays the same object; `new` copies every other part, so that
    no live object is in two places."""
    if isinstance(parts, dict):
        return {name: part if name in target and target[name] is part else new(part) for name, part in parts.items()}
    if isinstance(parts, set):
        return parts
    staying = {id(part): part for part in target}
    return [part if staying.pop(id(part), None) is part else new(part) for part in parts]


def changed(target: Tracked, operate: Callable[[Any], Answer]) -> Answer:
    owner: Owner | None = getattr(target, "_holdlog_owner", None)
    if owner is not None:
        return owner.change(target, operate)
    parts = twin(target)
    answer = operate(parts)
    put(target, parts)
    return answer
