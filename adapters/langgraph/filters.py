"""The filters of `search`: conditions on the members of a value: equality and comparisons."""

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from holdlog.domain.refusals import InvalidError

Filter = Mapping[str, Any]

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
OPERATORS: Final = ("$eq", "$ne", *_ORDERS)


def require_known(wanted: Any) -> None:
    """Check a filter. Raises InvalidError for an unknown operator at any depth."""
    if isinstance(wanted, Mapping):
        if _operators(wanted) and not wanted.keys() <= {*OPERATORS}:
            raise InvalidError(f"filter: must use only the operators {', '.join(OPERATORS)}")
        for part in wanted.values():
            require_known(part)


def matches(value: Mapping[str, Any], wanted: Filter | None) -> bool:
    """Whether each member matches; a missing member counts as null."""
    return all(_is(value.get(member), part) for member, part in (wanted or {}).items())


def _is(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _operators(wanted):
            return all(_compares(found, operator, other) for operator, other in wanted.items())
        return isinstance(found, Mapping) and matches(found, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_is(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)


def _operators(wanted: Filter) -> bool:
    return any(member.startswith("$") for member in wanted)


def _compares(found: Any, operator: str, other: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool(found == other) is (operator == "$eq")
    return _comparable(found, other) and _ORDERS[operator](found, other)


def _comparable(one: Any, other: Any) -> bool:
    """Whether two values are comparable: numbers with numbers, texts with texts."""
    return _number(one) and _number(other) if not isinstance(one, str) else isinstance(other, str)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
