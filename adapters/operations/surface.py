"""What all surfaces but the library do around an operation: arguments as clients send them, names of files, waits that
are capped, JSON."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, Protocol, get_args, get_origin

from pydantic import AfterValidator
from pydantic_core import from_json

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.base import WAITS, Condition, Operation, Query
from holdlog.adapters.operations.claims import FindHolders
from holdlog.adapters.operations.json import Object, to_object
from holdlog.adapters.operations.steps import Steps, execute
from holdlog.domain.claims.resource import check_claimable, check_resource
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import InvalidError

MAX_TEXT: Final = 1_000_000
"""Characters of a list or object that is sent as text."""
_PLAIN: Final = {"true": True, "false": False}
_CALL: Final = re.compile(r"\b([a-z_]+)\(\)")
_MISSING: Final = (
    "No such file in this worktree. If you mean something that exists once for all worktrees, release this and"
    " claim {}."
)
_FOLDER: Final = (
    "You claimed only the name of a folder, not what is below it. Call claim() with a slash at the end: {}/"
)
_ELSEWHERE: Final = "The same file of another workspace is claimed (also_claimed_in): agree on who changes it."
_RESOURCES: Final = frozenset(
    ("resource", "covered_by", "previous_resource", "moved_to", "holds", "waits_for", "also", "next_after")
)
_WRITTEN: Final = frozenset(("value", "actual_value", "message", "result"))


class Names(Protocol):
    """How files are named: operating_system/workspaces.py."""

    def resolve(self, text: str, is_new: bool = False) -> str: ...
    def format_name(self, resource: str) -> str: ...
    def list_elsewhere(self, resource: str) -> list[tuple[str, str]]: ...
    def find_doubt(self, resource: str) -> str: ...


class Surface:
    """`max_wait`: seconds after which a call that waits returns. `call`: how this surface calls an operation."""

    def __init__(self, engine: Engine, names: Names | None, max_wait: float | None, call: Callable[[str], str]) -> None:
        self.engine = engine
        self._names = names
        self._max_wait = max_wait
        self._call = call

    def parse(self, kind: type[Operation], arguments: Any) -> Operation:
        """Raises InvalidError, which names the argument."""
        arguments = read_arguments(kind, arguments)
        if kind.overwrites:
            arguments = _require_version(kind, arguments)
        return parse(kind, arguments, self._names)

    def respond(self, operation: Operation, caller: Caller) -> Steps:
        """Carry out an operation, and return the object for its caller. Raises HoldlogError."""
        operation, cap = self._cap(operation)
        began = time.monotonic()
        result = yield from execute(operation, caller, self.engine)
        response = to_object(result)
        if cap is not None and time.monotonic() - began >= cap:
            response["capped_at_seconds"] = cap
        if self._names is not None and operation.group == "claims":
            yield from self._add_workspaces(response, self._names)
        return self.name(response)

    def name(self, response: Object) -> Object:
        """Spell resources and calls as this surface does."""
        if "hint" in response:
            response["hint"] = self.name_calls(response["hint"])
        return response if self._names is None else _format_names(response, self._names.format_name)

    def name_calls(self, text: str) -> str:
        """Texts name operations as `get()`."""
        return _CALL.sub(lambda match: self._call(match[1]), text)

    def _cap(self, operation: Operation) -> tuple[Operation, float | None]:
        name = find_wait(operation)
        if name is None or self._max_wait is None or getattr(operation, name) <= self._max_wait:
            return operation, None
        return operation.model_copy(update={name: self._max_wait}), self._max_wait

    def _add_workspaces(self, response: Object, names: Names) -> Steps:
        resource = response.get("resource")
        if resource is None or response["status"] not in ("claimed", "already_claimed", "busy", "available"):
            return
        if elsewhere := names.list_elsewhere(resource):
            holders = yield FindHolders(resources=[name for _, name in elsewhere])
            if held := [
                {"workspace": workspace, "held_by": holder}
                for (workspace, _), holder in zip(elsewhere, holders, strict=True)
                if holder is not None
            ]:
                response["also_claimed_in"] = held
                response.setdefault("hint", _ELSEWHERE)
        if response["status"] != "claimed" or "position" not in response:
            return
        claimed = (resource, *(row["resource"] for row in response.get("also", ())))
        if (folder := next((name for name in claimed if names.find_doubt(name) == "folder"), None)) is not None:
            response["hint"] = _FOLDER.format(folder)
        elif names.find_doubt(resource):
            name = resource.removeprefix("file://").partition("/")[2] if resource.startswith("file://") else resource
            response.setdefault("hint", _MISSING.format(f"custom://{name}"))


def find_wait(operation: Operation) -> str | None:
    """The argument that says how long the call waits, if it does."""
    return next((name for name in WAITS if getattr(operation, name, None)), None)


def read_arguments(kind: type[Operation], arguments: Any) -> dict[str, Any]:
    """Arguments as clients send them: null for what is left out; lists as text. pydantic reads numbers and booleans."""
    if not isinstance(arguments, dict):
        raise InvalidError("the arguments must be an object")
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    read = {}
    for name, value in arguments.items():
        field = fields.get(name)
        if field is not None and value is None and not field.is_required():
            continue
        read[name] = value
        if isinstance(value, str) and field is not None and "list[" in str(field.annotation):
            with suppress(ValueError):
                read[name] = from_json(value) if value[:1] in ("[", "{") and len(value) <= MAX_TEXT else value
    return read


def parse(kind: type[Operation], arguments: dict[str, Any], names: Names | None) -> Operation:
    """Check arguments, whose files have the names that people use. Raises InvalidError."""
    if names is None:
        return kind.parse(arguments)
    for name, is_new in _list_resources(kind).items():
        value = arguments.get(name)
        try:
            if isinstance(value, str):
                arguments[name] = names.resolve(value, is_new)
            elif isinstance(value, list):
                arguments[name] = [_resolve_item(item, is_new, names) for item in value]
        except ValueError as error:
            raise InvalidError(f"{name}: {error}") from None
    return kind.parse(arguments)


def _resolve_item(item: Any, is_new: bool, names: Names) -> Any:
    if isinstance(item, dict) and isinstance(item.get("resource"), str):  # of a guard
        return item | {"resource": names.resolve(item["resource"], is_new)}
    return names.resolve(item, is_new) if isinstance(item, str) else item


@cache
def _list_resources(kind: Any) -> dict[str, bool]:
    """The arguments that name resources, and whether they are for a new claim."""
    checks = {name: _find_check(field.annotation, field.metadata) for name, field in kind.model_fields.items()}
    asks = issubclass(kind, Query)  # also about a file in a worktree that has been removed
    return {name: check is check_claimable and not asks for name, check in checks.items() if check is not None}


def _find_check(annotation: Any, metadata: Iterable[Any] = ()) -> Any:
    if annotation is Condition:
        return check_resource
    for item in metadata:
        if isinstance(item, AfterValidator) and item.func in (check_resource, check_claimable):
            return item.func
    if get_origin(annotation) is Annotated:
        return _find_check(annotation.__origin__, annotation.__metadata__)
    return next(filter(None, map(_find_check, get_args(annotation))), None)


def _require_version(kind: type[Operation], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without `force`, which stands for no expected version. Raises InvalidError."""
    force = arguments.pop("force", False)
    force = _PLAIN.get(force, force) if isinstance(force, str) else force
    if not isinstance(force, bool) and force is not None:
        raise InvalidError("force: must be true or false")
    if force:
        arguments.pop("expected_version", None)
    elif "expected_version" not in arguments:
        kind.parse(arguments)  # another argument may be missing, too
        raise InvalidError("expected_version: is required; read the version with get, or pass 0 if nothing exists")
    return arguments


def _format_names(value: Any, format_name: Callable[[str], str], name: str = "") -> Any:
    if isinstance(value, str):
        return format_name(value) if name in _RESOURCES else value
    if isinstance(value, list):
        return [_format_names(item, format_name, name) for item in value]
    if isinstance(value, dict):
        return {key: part if key in _WRITTEN else _format_names(part, format_name, key) for key, part in value.items()}
    return value
