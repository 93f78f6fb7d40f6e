"""The requests that change values in the store: transactions of several operations, and updates of one value."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.api.rules import PLAIN, RequestRules
from holdlog.adapters.api.validation import MAX_SHOWN, invalid, json_value, unknown_argument, whole
from holdlog.adapters.api.values import presenter, responses
from holdlog.adapters.api.values.credentials import with_warnings
from holdlog.adapters.api.values.requests import time_to_live
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.domain.names import closest
from holdlog.domain.record import (
    AnyOperation,
    AppendItem,
    Check,
    Delete,
    Increment,
    Merge,
    Patch,
    Set,
    Transact,
)
from holdlog.domain.refusals import HoldlogError, InvalidError, TooLargeError
from holdlog.domain.value import Json

MAX_OPERATIONS: Final = 1_000
MAX_TRANSACTION_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all names and values of a transaction, as JSON."""
NOT_GIVEN: Final[Any] = ...
"""An argument that was not passed: None is JSON's null."""
UPDATES: Final = ("merge", "patch", "increment", "append")

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "set": ("value",),
    "delete": (),
    "check": ("expected_version",),
    "merge": ("value",),
    "increment": ("by",),
    "append": ("value",),
    "patch": ("patch",),
}
"""The operations, and the fields that each requires besides `op`, `namespace` and `key`."""
_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {"set": ("ttl_seconds",), "append": ("unique",)}
"""Optional fields besides `expected_version`."""
_FIELDS: Final = {
    kind: tuple(dict.fromkeys(("op", "namespace", "key", *required, *_OPTIONAL.get(kind, ()), "expected_version")))
    for kind, required in _REQUIRED.items()
}


class TransactionRequests:
    """Builds requests that change values in the store. Every method raises InvalidError for an invalid argument, then
    DeniedError for what the caller may not do."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def transact(self, operations: object, by: str, guard: object = ()) -> CommandRequest[responses.TransactionResult]:
        """Run all operations or none, in one transaction. `operations`: objects with `op`, `namespace`, `key` and the
        fields of that operation. A refusal names the index of its operation."""
        if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
            raise InvalidError("operations: must be a list of objects with op, namespace and key")
        if not 1 <= len(operations) <= MAX_OPERATIONS:
            raise InvalidError(f"operations: must have 1 to {MAX_OPERATIONS} entries")
        built: list[AnyOperation] = []
        size = 0
        try:
            for given in operations:
                operation = self._operation(given)
                size += _size(operation)
                if size > MAX_TRANSACTION_BYTES:
                    raise TooLargeError(MAX_TRANSACTION_BYTES, "operations up to this one")
                built.append(operation)
        except HoldlogError as refusal:
            refusal.operation = len(built)
            raise
        command = self._command(tuple(built), by, guard, numbered=True)
        answer = with_warnings(presenter.transaction_result, [_text(it) for it in built], numbered=True)
        return CommandRequest(command, answer)

    def update(
        self,
        namespace: str,
        key: str,
        by: str,
        expected_version: int | None = None,
        guard: object = (),
        *,
        merge: Any = NOT_GIVEN,
        patch: Any = NOT_GIVEN,
        increment: Any = NOT_GIVEN,
        append: Any = NOT_GIVEN,
        unique: bool = False,
    ) -> CommandRequest[responses.UpdateResult]:
        """Compute a value in the store from the current one. Exactly one of `merge` (RFC 7396), `patch` (RFC 6902),
        `increment` and `append` must be given; `unique` is for `append`."""
        values = zip(UPDATES, (merge, patch, increment, append), strict=True)
        given = [(name, value) for name, value in values if value is not NOT_GIVEN]
        if len(given) != 1:
            raise InvalidError(f"update: needs exactly one of {', '.join(UPDATES)}")
        ((kind, argument),) = given
        fields = {"namespace": namespace, "key": key, "expected_version": expected_version, kind: argument}
        if unique is not False:
            if kind != "append":
                raise InvalidError("unique: can only be combined with append")
            fields["unique"] = unique
        operation = self._built(kind, fields, kind)
        command = self._command((operation,), by, guard)
        return CommandRequest(command, with_warnings(presenter.update_result, (_text(operation),)))

    def _operation(self, given: object) -> AnyOperation:
        if not isinstance(given, Mapping):
            raise InvalidError("must be an object with op, namespace and key")
        kind = given.get("op")
        if not isinstance(kind, str) or kind not in _REQUIRED:
            near = closest(kind[:MAX_SHOWN], _REQUIRED) if isinstance(kind, str) else None
            meant = f"did you mean {near}? Known" if near else "known"
            raise InvalidError(f"op: unknown operation; {meant} operations: {', '.join(_REQUIRED)}")
        known = _FIELDS[kind]
        for name in given:
            if name not in known:
                is_name = isinstance(name, str) and len(name) <= MAX_SHOWN and PLAIN.fullmatch(name) is not None
                raise InvalidError(unknown_argument(name if is_name else "a field", known, is_name=is_name))
        for name in ("namespace", "key", *_REQUIRED[kind]):
            if name not in given:
                raise InvalidError(f"{name}: is required")
        return self._built(kind, given, next(iter(_REQUIRED[kind]), ""))

    def _built(self, kind: str, given: Mapping[str, Any], argument: str) -> AnyOperation:
        """Build an operation. `argument`: the field with what it writes."""
        version, ttl = given.get("expected_version"), given.get("ttl_seconds")
        expected = whole(version, "expected_version") if version is not None or kind == "check" else None
        address = {"namespace": given["namespace"], "key": given["key"], "expected_version": expected}
        most = self._rules.settings.max_value_bytes
        try:
            match kind:
                case "set":
                    lifetime = None if ttl is None else time_to_live(ttl)
                    return Set(**address, value=json_value(given[argument], most), ttl_seconds=lifetime)
                case "delete":
                    return Delete(**address)
                case "check":
                    return Check(**address)
                case "merge":
                    return Merge(**address, patch=json_value(given[argument], most, argument), max_bytes=most)
                case "increment":
                    return Increment(**address, by=_number(given[argument], argument))
                case "append":
                    item, unique = json_value(given[argument], most, argument), given.get("unique", False)
                    if not isinstance(unique, bool):
                        raise InvalidError("unique: must be true or false")
                    return AppendItem(**address, value=item, unique=unique, max_bytes=most)
                case _:
                    from holdlog.domain.json_patch import require_patch

                    steps = json_value(given[argument], most, argument)
                    require_patch(steps)
                    return Patch(**address, patch=steps, max_bytes=most)
        except ValidationError as error:
            raise invalid(error) from None

    def _command(
        self, operations: tuple[AnyOperation, ...], by: str, guard: object, numbered: bool = False
    ) -> Transact:
        conditions = self._rules.guards(guard) if guard != () else ()
        try:
            command = Transact(operations=operations, by=by, guard=conditions, numbered=numbered)
        except ValidationError as error:
            raise invalid(error) from None
        if self._rules.grants is not EVERYTHING:
            self._rules.require_to_change(command)
        return command


def _number(given: object, argument: str) -> Json:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidError(f"{argument}: must be a number")
    try:
        return Json.of(given)
    except ValueError as error:
        raise InvalidError(f"{argument}: {error}") from None


def _text(operation: AnyOperation) -> str:
    """What it writes, as JSON."""
    return next((it.text for it in vars(operation).values() if isinstance(it, Json)), "")


def _size(operation: AnyOperation) -> int:
    """Bytes of its names and values."""
    texts = [it.text if isinstance(it, Json) else it for it in vars(operation).values() if isinstance(it, (Json, str))]
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
