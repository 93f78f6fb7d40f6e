"""What a caller gets: within a space, which is the first label of the namespaces that it reaches, and of what it may
read."""

from typing import Any

from holdlog.adapters.auth.access import ROWS, Access, DeniedError
from holdlog.adapters.operations.json import Object
from holdlog.adapters.operations.steps import Steps
from holdlog.adapters.operations.surface import Surface
from holdlog.adapters.operations.values import List
from holdlog.domain.moment import Caller


def respond(access: Access, operation: Any, caller: Caller, surface: Surface) -> Steps:
    """Carry out an operation that its caller may call; the response has what the caller may read, and more rows if the
    page ended with a name that the caller may not know."""
    response = access.filter((yield from _respond_in_space(access, operation, caller, surface)))
    while not access.sees_end(response):
        argument = "after_key" if "namespaces" in response else "after"
        operation = operation.model_copy(update={argument: response["next_after"]})
        more = access.filter((yield from _respond_in_space(access, operation, caller, surface)))
        response = more | {name: response[name] + more[name] for name in ROWS if name in more}
    return response


def _respond_in_space(access: Access, operation: Any, caller: Caller, surface: Surface) -> Steps:
    """Carry out an operation: within the space of its caller, if that has one, whose label the arguments and the
    response do not have. Raises DeniedError for what reaches anything else."""
    if access.space is None:
        return (yield from surface.respond(operation, caller))
    if not operation.has_spaces or getattr(operation, "guard", None):
        raise DeniedError("a token without a space")
    label = f"{access.space}/"
    response = yield from surface.respond(_add(operation, label), caller)
    return _remove(response, label)


def _add(operation: Any, label: str) -> Any:
    if isinstance(operation, List) and operation.namespace is None:
        return operation.model_copy(
            update={"prefix": label + operation.prefix, "after_key": label + (operation.after_key or "")}
        )
    steps = getattr(operation, "operations", None)
    if steps is not None:
        return operation.model_copy(update={"operations": [_add(step, label) for step in steps]})
    return operation.model_copy(update={"namespace": label + operation.namespace})


def _remove(response: Object, label: str) -> Object:
    """Without the label in the names of namespaces, and without namespaces of others."""
    fields = {}
    for name, value in response.items():
        if name in ("results", "namespaces"):
            value = [_remove(row, label) for row in value]
        elif name == "namespace" or (name == "next_after" and "namespaces" in response):
            value = value.removeprefix(label)
        fields[name] = value
    return fields
