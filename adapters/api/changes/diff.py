"""The difference of two JSON values, as operations like those of a JSON Patch (RFC 6902)."""

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from pydantic_core import to_json

from holdlog.adapters.api.pagination import MAX_PAGE_BYTES

_STEP_BYTES: Final = 40
"""Approximate bytes of a step in a response, without its path and values."""


class DiffStep(NamedTuple):
    """`path`: a JSON Pointer (RFC 6901). `value`: the new value, `previous`: the old one; None where there is none."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = None
    previous: Any = None


def difference(before: Any, after: Any, limit: int = MAX_PAGE_BYTES) -> list[DiffStep]:
    """The steps that, applied in order, turn `before` into `after`; none if they are equal.

    If steps with their paths would have more than `limit` bytes, the only step replaces the whole value: a short change
    under a long name, repeated often, would otherwise be larger than both values."""
    steps: list[DiffStep] = []
    held = 0
    for step in _steps(before, after, ""):
        held += step_bytes(step)
        if held > limit:
            return [DiffStep("replace", "", after, before)]
        steps.append(step)
    return steps


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, `true` is not 1, and 1 is not 1.0: they are stored as
    written."""
    if type(one) is not type(other):
        return False
    match one:
        case dict():
            return one.keys() == other.keys() and all(same(part, other[name]) for name, part in one.items())
        case list():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            return bool(one == other)


def step_bytes(step: DiffStep) -> int:
    return _STEP_BYTES + len(step.path.encode()) + sum(len(to_json(it)) for it in (step.value, step.previous))


def _steps(before: Any, after: Any, path: str) -> Iterator[DiffStep]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif not same(before, after):
        yield DiffStep("replace", path, after, before)


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[DiffStep]:
    for name in sorted(before.keys() | after.keys()):
        part = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            yield DiffStep("remove", part, previous=before[name])
        elif name not in before:
            yield DiffStep("add", part, after[name])
        else:
            yield from _steps(before[name], after[name], part)


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[DiffStep]:
    """Items that both lists begin or end with are unchanged; those between are compared in pairs."""
    shorter = min(len(before), len(after))
    first = next((at for at in range(shorter) if not same(before[at], after[at])), shorter)
    left = shorter - first
    kept = next((at for at in range(left) if not same(before[-1 - at], after[-1 - at])), left)
    old, new = before[first : len(before) - kept], after[first : len(after) - kept]
    paired = min(len(old), len(new))
    for at in range(paired):
        yield from _steps(old[at], new[at], f"{path}/{first + at}")
    for at in reversed(range(paired, len(old))):
        yield DiffStep("remove", f"{path}/{first + at}", previous=old[at])
    for at in range(paired, len(new)):
        yield DiffStep("add", f"{path}/{first + at}", new[at])
