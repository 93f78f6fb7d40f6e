"""Results and refusals as JSON objects: what MCP, HTTP and the command line return."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from holdlog.domain.refusals import HoldlogError, UnavailableError
from holdlog.projections.results import EventEntry

Object = dict[str, Any]

BUG: Final[Object] = {
    "status": "error",
    "message": "internal error of holdlog; report it, with what it printed on standard error",
}
"""The response to a call that failed for a reason that nobody foresaw."""
to_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""The compact JSON text of an object."""


def to_object(result: Any) -> Object:
    """A result as an object: `status` first, absent fields left out, a stored null kept, hints included."""
    fields: Object = {"status": result.status} if hasattr(result, "status") else {}
    kind: Any = type(result)
    for place, name, may_be_absent in _list_fields(kind):
        value = result[place]
        if value is None:
            if may_be_absent:
                continue
        elif not isinstance(value, (str, int, float)):
            value = _to_json(value)
        fields[name] = value
    for name in _list_derived(kind):
        if (value := getattr(result, name)) is not None:
            fields[name] = value
    if isinstance(result, EventEntry):
        fields |= _to_json(fields.pop("fields"))
    return fields


def refusal_to_object(refusal: HoldlogError) -> Object:
    """A refusal as an object: its result, if it has facts; its status is `error` for a bad call. `operation`: which one
    of a transaction was refused."""
    where = {} if refusal.operation is None else {"operation": refusal.operation}
    if refusal.detail is not None:
        return to_object(refusal.detail) | where
    if isinstance(refusal, UnavailableError):
        facts = {"retry_after": refusal.retry_after, "in_doubt": refusal.in_doubt}
        return {"status": refusal.code, "message": str(refusal), **facts}
    return {"status": "error", "message": str(refusal)} | where


def list_statuses(results: Sequence[type]) -> list[str]:
    """The statuses of the results of an operation."""
    statuses = [kind._field_defaults["status"] for kind in results]  # type: ignore[attr-defined]
    return list(dict.fromkeys([*statuses, UnavailableError.code]))


@cache
def _list_fields(kind: Any) -> list[tuple[int, str, bool]]:
    """Place and name of the fields but `status`, and whether None means that a field is absent."""
    defaults = kind._field_defaults
    return [(at, name, name in defaults) for at, name in enumerate(kind._fields) if name != "status"]


@cache
def _list_derived(kind: Any) -> list[str]:
    return [name for name, member in vars(kind).items() if isinstance(member, property)]


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if hasattr(value, "_fields"):
        part = to_object(value)
        part.pop("status", None)
        return part
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    return value
