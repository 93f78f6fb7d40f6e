"""Dicts, lists and sets that refuse changes: what a State shows of its data."""

import copy
from typing import Any, Final, NoReturn, SupportsIndex

from holdlog.domain.refusals import InvalidError

_REFUSAL: Final = (
    "data: cannot be changed in place; change it in `with state.edit() as data:`, or assign the whole value"
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvalidError(_REFUSAL)


class ReadOnlyDict(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


class ReadOnlySet(set[Any]):
    __slots__ = ()
    __iand__ = __ior__ = __isub__ = __ixor__ = _refuse
    add = discard = pop = remove = clear = update = _refuse
    difference_update = intersection_update = symmetric_difference_update = _refuse

    def __repr__(self) -> str:
        return repr(set(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return set, (set(self),)


def read_only(value: Any) -> Any:
    """A copy of a value. Its dicts, lists and sets refuse changes; models and other objects in it are detached copies.
    Copies of it (`copy.deepcopy`, pickle) are plain."""
    kind = type(value)
    if kind is dict or kind is ReadOnlyDict:
        return ReadOnlyDict({key: read_only(part) for key, part in value.items()})
    if kind is list or kind is ReadOnlyList:
        return ReadOnlyList(map(read_only, value))
    if kind is set or kind is ReadOnlySet:
        return ReadOnlySet(value)
    if kind is tuple:
        return tuple(map(read_only, value))
    return copy.deepcopy(value)
