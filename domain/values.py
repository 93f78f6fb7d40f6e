"""JSON values as texts, and the values that updates compute in the store, while all other writers wait."""

import json
from math import isinf
from typing import Any, Final

from holdlog.domain.refusals import InapplicableError, InvalidError

MAX_NESTING: Final = 100
"""Levels of lists and objects that a value may have (RFC 8259 section 9 lets us set a limit)."""
MAX_DIGITS: Final = 4300
"""Digits of an integer: Python can write more, but not read them."""
MAX_WORK: Final = 10_000_000
"""Bytes of values that the updates of one transaction may parse: about 0.2 s."""

dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""The compact JSON text of a value that is known to have one."""
_EXACT_DIGITS: Final = 10_000
"""Enough digits for the exact sum of any two JSON numbers."""
_LARGEST_EXACT: Final = 2**53
"""Above it, a decimal number cannot have every whole value (IEEE 754 binary64)."""
_WRITE_IT: Final = "read the value and write a new one with its version"


class Json(str):
    """The compact JSON text of a value, checked where it was made, so that it is encoded only once."""

    __slots__ = ()


def encode(value: Any) -> Json:
    """The text of a value that consists of what JSON has."""
    return Json(dump(value))


def require_size(value: Json, limit: int, name: str = "value") -> None:
    """Raises InvalidError for a text of more than `limit` bytes."""
    if len(value.encode()) > limit:
        raise InvalidError(f"{name}: must have at most {limit} bytes as JSON; split it, or store a reference to it")


def merge(value: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7396 section 2)."""
    return encode(_merge(json.loads(value), json.loads(patch)))


def increment(value: Json, by: Json) -> Json:
    """Add two numbers: integers exactly; decimals as they are written, then rounded to the nearest IEEE 754 binary64.
    Raises InapplicableError."""
    if value[0] not in "-0123456789":
        raise InapplicableError(f"the value is not a number, so it cannot be incremented; {_WRITE_IT}")
    if not any(mark in text for text in (value, by) for mark in ".eE"):
        total = int(value) + int(by)
        if abs(total) >= 10**MAX_DIGITS:
            raise InapplicableError(f"the result would have more than {MAX_DIGITS} digits")
        return Json(total)
    from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal  # a hook never needs it

    exact = Context(prec=_EXACT_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX).add(Decimal(value), Decimal(by))
    rounded = float(exact)
    if isinf(rounded):
        raise InapplicableError("the result is too large for a decimal number")
    if abs(exact) > _LARGEST_EXACT and Decimal(repr(rounded)) != exact:
        raise InapplicableError("the result has more digits than a decimal number can have; use whole numbers")
    return encode(rounded)


def append(value: Json, item: Json, unique: bool) -> Json:
    """Append to a list; with `unique`, only what it does not contain yet. Raises InapplicableError."""
    if value[0] != "[":
        raise InapplicableError(f"the value is not a list, so nothing can be appended to it; {_WRITE_IT}")
    if count_levels(item) >= MAX_NESTING:
        raise InapplicableError(f"the result would have more than {MAX_NESTING} levels of nesting")
    if unique:
        new = json.loads(item)
        if any(part == new and _is_same(part, new) for part in json.loads(value)):
            return value
    return Json(f"{value[:-1]}{'' if value == '[]' else ','}{item}]")


def count_levels(text: str) -> int:
    """Levels of lists and objects in a JSON text."""
    if text.count("[") + text.count("{") <= 1:
        return int(text[:1] in ("[", "{"))
    deepest = level = 0
    outside_strings = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    for character in "".join(outside_strings):
        if character in "[{":
            level += 1
            deepest = max(deepest, level)
        elif character in "]}":
            level -= 1
    return deepest


def _merge(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), part)
    return result


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values that Python considers equal are: for Python, true is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict):
        return all(_is_same(part, other[name]) for name, part in one.items())
    return not isinstance(one, list) or all(map(_is_same, one, other))
