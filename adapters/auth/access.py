"""What a caller may do, and what it gets. A grant is a scope and a pattern of names. A space limits a caller to the
namespaces that begin with its label. A response contains only what the caller may read."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from holdlog.adapters.operations.base import MAX_LIMIT, Operation
from holdlog.adapters.operations.json import Object
from holdlog.adapters.operations.steps import Steps
from holdlog.adapters.operations.surface import Surface
from holdlog.adapters.operations.values import List
from holdlog.domain.moment import Caller
from holdlog.domain.names import THREAD_DATA
from holdlog.domain.refusals import HoldlogError

_INCLUDED: Final = {"read": ("read",), "write": ("write", "read"), "claim": ("claim",), "metrics": ("metrics",)}
"""What a scope allows; `admin` allows all."""
_WIDE: Final = ("list", "status", "events", "log", "release")
"""Operations that may be called without a name: they return rows, or release what the caller holds."""
ROWS: Final = ("namespaces", "claims", "queues", "agents", "events", "entries")


class Denied(NamedTuple):
    """The token does not allow the call. `needed`: a grant that would allow it."""

    needed: str
    hint: str = "This token does not allow the call. The operator of this server creates tokens that do."
    status: Literal["denied"] = "denied"


class DeniedError(HoldlogError):
    """The caller may not do this."""

    code = "denied"

    def __init__(self, needed: str) -> None:
        super().__init__(f"{needed} is needed")
        self.detail = Denied(needed)


class Access(NamedTuple):
    """Who calls, and what the caller may do. `principal` is None if the server needs no tokens. `space`: the caller
    reaches only namespaces that begin with this label. `expires_at` is in microseconds since 1970."""

    principal: str | None = None
    allow: tuple[str, ...] = ("admin:*",)
    space: str | None = None
    expires_at: int | None = None

    @property
    def is_full(self) -> bool:
        return "admin:*" in self.allow

    def allows(self, scope: str, name: str = "*") -> bool:
        """Whether a grant allows this scope on a namespace or resource; `*`: on all of them."""
        for grant in self.allow:
            granted, _, pattern = grant.partition(":")
            is_included = granted == "admin" or scope in _INCLUDED.get(granted, ())
            if is_included and _compile(pattern).fullmatch(name) is not None:
                return True
        return False

    def require(self, scope: str, name: str = "*") -> None:
        """Raises DeniedError unless a grant allows it."""
        if not self.allows(scope, name):
            raise DeniedError(f"{scope}:{name}")

    def require_store(self, scope: str) -> None:
        """The same for what is not an operation, such as metrics; also denied to callers in a space. Raises
        DeniedError."""
        if self.space is not None:
            raise DeniedError("a token without a space")
        self.require(scope)

    def check(self, operation: Operation, format_name: Callable[[str], str]) -> None:
        """Raises DeniedError unless the caller may read and write all that an operation does. `format_name`: writes a
        resource as grants name it."""
        if self.is_full:
            return
        names = list(_list_names(operation, format_name))
        if names or operation.name not in _WIDE:
            for name in names or ["*"]:
                self.require(operation.scope, name)
        for condition in getattr(operation, "guard", None) or ():
            self.require("claim", format_name(condition.resource))

    def filter(self, response: Object) -> Object:
        """The response without the rows, and without the resources in guards, that the caller may not read."""
        if self.allows("read"):
            return response
        seen = {name: filter(self._sees, response[name]) for name in ROWS if name in response}
        return self._filter_guard(response) | {name: list(map(self._filter_guard, rows)) for name, rows in seen.items()}

    def _filter_guard(self, row: Object) -> Object:
        return row | {"guard": list(filter(self._sees, row["guard"]))} if "guard" in row else row

    def remove_space(self, response: Object) -> Object:
        """The response with the names of namespaces as the caller knows them: without the label of its space."""
        return response if self.space is None else _remove(response, f"{self.space}/")

    def _sees(self, row: Object) -> bool:
        name = row.get("namespace") or row.get("resource")
        if "thread_id" in row:
            name = THREAD_DATA + row["thread_id"]
        return name is not None and self.allows("read", name)

    def sees_end(self, response: Object) -> bool:
        """Whether the caller may read the name in `next_after`, with which the next page begins."""
        is_name = "namespaces" in response or "claims" in response
        return not is_name or "next_after" not in response or self.allows("read", response["next_after"])


def _list_names(operation: Any, format_name: Callable[[str], str]) -> Iterator[str]:
    """The names that an operation reads or writes."""
    for step in (operation, *(getattr(operation, "operations", None) or ())):
        if (namespace := getattr(step, "namespace", None)) is not None:
            yield namespace
    if (thread_id := getattr(operation, "thread_id", None)) is not None:
        yield THREAD_DATA + thread_id
    moved_to = getattr(operation, "moved_to", None)
    for resource in (getattr(operation, "resource", None), moved_to, *(getattr(operation, "also", None) or ())):
        if resource is not None:
            yield format_name(resource)


@lru_cache(1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """`*` stands for any text. The groups are atomic, so that no number of stars makes a match slow."""
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return re.compile(first)
    *middle, last = rest
    groups = "".join(f"(?>.*?{part})" for part in middle)
    return re.compile(f"{first}{groups}.*{last}", re.DOTALL)


def respond(access: Access, operation: Any, caller: Caller, surface: Surface) -> Steps:
    """Run an operation that the caller may call. The response contains only rows that the caller may read. If the page
    ends with a name that the caller may not read, it continues until it does not; each further page is twice as long,
    because many such names may follow."""
    response = access.filter((yield from _respond_in_space(access, operation, caller, surface)))
    while not access.sees_end(response):
        argument = "after_key" if "namespaces" in response else "after"
        place = {argument: response["next_after"], "limit": min(2 * operation.limit, MAX_LIMIT)}
        operation = operation.model_copy(update=place)
        more = access.filter((yield from _respond_in_space(access, operation, caller, surface)))
        response = more | {name: response[name] + more[name] for name in ROWS if name in more}
    return response


def _respond_in_space(access: Access, operation: Any, caller: Caller, surface: Surface) -> Steps:
    """Run an operation. If its caller has a space, add the label to its arguments and remove it from the response.
    Raises DeniedError if the operation could reach anything outside of the space."""
    if access.space is None:
        return (yield from surface.respond(operation, caller))
    if not operation.has_spaces or getattr(operation, "guard", None):
        raise DeniedError("a token without a space")
    return access.remove_space((yield from surface.respond(_add(operation, f"{access.space}/"), caller)))


def _add(operation: Any, label: str) -> Any:
    if isinstance(operation, List) and operation.namespace is None:
        names = {"prefix": label + operation.prefix, "after_key": label + (operation.after_key or "")}
        return operation.model_copy(update=names)
    steps = getattr(operation, "operations", None)
    if steps is not None:
        return operation.model_copy(update={"operations": [_add(step, label) for step in steps]})
    return operation.model_copy(update={"namespace": label + operation.namespace})


def _remove(response: Object, label: str) -> Object:
    """The response without the label in names of namespaces."""
    fields = {}
    for name, value in response.items():
        if name in ("records", "results", "namespaces"):
            value = [_remove(row, label) for row in value]
        elif name == "namespace" or (name == "next_after" and "namespaces" in response):
            value = value.removeprefix(label)
        fields[name] = value
    return fields
