"""What differs between two moments, and between two JSON values."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from holdlog.projections.results import AsOf


class PathChange(NamedTuple):
    """A member or item that differs. `path` is a JSON pointer (RFC 6901), `previous` what was there before."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any
    previous: Any


class KeyChange(NamedTuple):
    """A key whose value differs. The author is that of its last event until the second moment, with `version_after`.
    `paths`: what differs within the value, if one was asked for. `redacted`: one of the values was removed from the
    log."""

    key: str
    change: Literal["added", "removed", "changed"]
    version_before: int | None = None
    version_after: int | None = None
    updated_by: str | None = None
    updated_at: datetime | None = None
    reason: str | None = None
    paths: list[PathChange] | None = None
    redacted: bool | None = None


class Difference(NamedTuple):
    """Keys in order. Pass `next_after` as `after_key` to get the next."""

    namespace: str
    changes: list[KeyChange]
    before: AsOf
    after: AsOf
    next_after: str | None = None
    status: Literal["ok"] = "ok"


def compare(before: Any, after: Any, path: str = "") -> Iterator[PathChange]:
    """The differences in order of their paths; items of lists are compared by their places."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from _compare_part(before, after, name in before, name in after, name, place)
    elif isinstance(before, list) and isinstance(after, list):
        for number in range(max(len(before), len(after))):
            yield from _compare_part(
                before, after, number < len(before), number < len(after), number, f"{path}/{number}"
            )
    elif type(before) is not type(after) or before != after:
        yield PathChange("replace", path, after, before)


def _compare_part(before: Any, after: Any, had: bool, has: bool, name: Any, path: str) -> Iterator[PathChange]:
    if had and has:
        yield from compare(before[name], after[name], path)
    elif has:
        yield PathChange("add", path, after[name], None)
    else:
        yield PathChange("remove", path, None, before[name])
