"""What the library does beyond single operations: pages, and updates by a function."""

import random
from collections.abc import Callable
from typing import Any, Final

from holdlog.adapters.operations.steps import Run, Steps
from holdlog.adapters.operations.values import Get, List, Replace
from holdlog.domain.moment import Caller
from holdlog.domain.records import COMPUTED
from holdlog.domain.refusals import ConflictError, InvalidError, NotFoundError
from holdlog.domain.results import UpdateResult

NOT_GIVEN: Final[Any] = object()
"""Default of arguments for which None is a value."""
ATTEMPTS: Final = 100
"""How often update() computes again because another wrote meanwhile."""
LONGEST_PAUSE: Final = 0.05
PAUSE: Final = 0.002
"""Seconds, times the number of the attempt, so that callers do not disturb each other for ever."""


def read_list(namespace: str | None) -> Steps:
    """All values of a namespace, or without one the names of all namespaces, from as many pages as there are."""
    rows, after = list[Any](), None
    while True:
        page = yield List.parse({"namespace": namespace, "after_key": after})
        rows += [row.namespace for row in page.namespaces] if namespace is None else page.records
        if (after := page.next_after) is None:
            return rows


def compute(function: Callable[[Any], Any], arguments: dict[str, Any], caller: Caller) -> Steps:
    """Read, compute and write, again if another wrote meanwhile. The time to live stays."""
    namespace, key = arguments["namespace"], arguments["key"]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            record = yield Get.parse({"namespace": namespace, "key": key})
            value, version = record.value, record.version
        except NotFoundError:
            value, version = None, 0
        new = function(value)
        try:
            command = Replace.parse(arguments | {"value": new, "expected_version": version})
            result = yield Run(command, caller)
            return UpdateResult(
                namespace, key, new, result.version, result.previous_version, result.position, result.lost
            )
        except ConflictError:
            if attempt == ATTEMPTS:
                raise
        yield random.uniform(0, min(PAUSE * attempt, LONGEST_PAUSE))
    raise AssertionError


def drop_missing(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not NOT_GIVEN}


def require_function_alone(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a write after a function takes. Raises InvalidError if there is another change."""
    rest = drop_missing(arguments)
    del rest["self"]
    if rest.pop("request_id") is not None:
        raise InvalidError("request_id: a repeated function may compute another value; set its result instead")
    if rest.pop("unique") or rest.pop("expected_version") is not None or rest.keys() & COMPUTED:
        raise InvalidError("function: pass it without merge, increment, append, unique and expected_version")
    return rest
