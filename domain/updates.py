"""The values that updates compute in the store. Pure functions whose work is bounded, because all other writers wait
meanwhile (docs/decisions/0042-updates-in-the-store.md)."""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from math import isinf
from typing import Any, Final

from pydantic_core import to_json

from holdlog.domain.refusals import InapplicableError, TooLargeError, TooMuchWorkError
from holdlog.domain.value import MAX_DIGITS, MAX_NESTING, Json, nesting

MAX_WORK: Final = 2_500_000
"""What the updates of one transaction may cost; a unit takes at most about 10 ns."""
_PARSED: Final = 2
"""Work for each byte that is parsed, or compared."""
_CONTAINER: Final = 60
"""Work for each list and object that is parsed."""
_EXACT: Final = Context(prec=10_000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Enough digits for the exact sum of any two JSON numbers."""
_TOO_LONG: Final = 10**MAX_DIGITS
_LARGEST_EXACT: Final = 2**53
"""Above it, a decimal number cannot have every whole value (IEEE 754 binary64)."""
_WRITE_IT: Final = "read the value and write a new one with its version"


class Work:
    """What the updates of one transaction may still cost."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, amount: int) -> None:
        """Raises TooMuchWorkError."""
        self.left -= amount
        if self.left < 0:
            raise TooMuchWorkError

    def parse(self, value: Json) -> Any:
        """The value as Python objects, a new copy."""
        text = value.text
        self.spend(len(text) * _PARSED + (text.count("[") + text.count("{")) * _CONTAINER)
        return value.value

    def encode(self, value: Any) -> Json:
        """The inverse of `parse`."""
        text = to_json(value).decode()
        self.spend(len(text))
        return Json(text)


def merge(value: Json, patch: Json, max_bytes: int, work: Work) -> Json:
    """Apply a JSON merge patch (RFC 7396 section 2)."""
    return within(work.encode(_merged(work.parse(value), work.parse(patch))), max_bytes)


def increment(value: Json, by: Json, work: Work) -> Json:
    """Add two numbers: integers exactly; decimals as they are written, then rounded to the nearest IEEE 754 binary64,
    which keeps 15 digits. Raises InapplicableError."""
    work.spend(len(value.text) + len(by.text))
    if not _is_number(value):
        raise InapplicableError(f"the value is not a number, so it cannot be incremented; {_WRITE_IT}")
    if not any(mark in text for text in (value.text, by.text) for mark in ".eE"):
        total = int(value.text) + int(by.text)
        if abs(total) >= _TOO_LONG:
            raise InapplicableError(f"the result would have more than {MAX_DIGITS} digits")
        return Json(str(total))
    exact = _EXACT.add(Decimal(value.text), Decimal(by.text))
    rounded = float(exact)
    if isinf(rounded):
        raise InapplicableError("the result is too large for a decimal number")
    if abs(exact) > _LARGEST_EXACT and Decimal(repr(rounded)) != exact:
        raise InapplicableError("the result has more digits than a decimal number can have; use whole numbers")
    return Json(to_json(rounded).decode())


def append(value: Json, item: Json, unique: bool, max_bytes: int, work: Work) -> Json | None:
    """Append to a list. None: `unique`, and the list has an equal item. Raises InapplicableError, TooLargeError."""
    if not value.text.startswith("["):
        raise InapplicableError(f"the value is not a list, so nothing can be appended to it; {_WRITE_IT}")
    if nesting(item.text) >= MAX_NESTING:
        raise InapplicableError(f"the result would have more than {MAX_NESTING} levels of nesting")
    if unique:
        wanted = work.parse(item)
        if any(it == wanted and _same(it, wanted) for it in work.parse(value)):
            return None
    text = f"{value.text[:-1]}{'' if value.text == '[]' else ','}{item.text}]"
    work.spend(len(text))
    return within(Json(text), max_bytes)


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), part)
    return result


def within(value: Json, max_bytes: int) -> Json:
    """The value itself. Raises TooLargeError."""
    if value.is_above(max_bytes):
        raise TooLargeError(max_bytes)
    return value


def _is_number(value: Json) -> bool:
    return value.text[0] in "-0123456789"


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values that Python considers equal are: for Python, true is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict):
        return all(_same(part, other[name]) for name, part in one.items())
    return not isinstance(one, list) or all(map(_same, one, other))
