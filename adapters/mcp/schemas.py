"""The schemas of tools, as small as possible: hosts may show them to a model, which pays for every byte.

Responses are an object at the root: FastMCP would wrap a plain union in `{"result": …}`, and hosts show the model that.
"""

from typing import Any, Final

from holdlog.adapters.api.values.responses import Result, Unavailable


def output_schema(*alternatives: type[Result]) -> dict[str, Any]:
    """JSON Schema of the responses: one alternative per status, with the fields that it always has.

    docs/answers.md has the types and the optional fields: included here, they would double the size of a tool. Every
    call may respond `unavailable`, too; its fields are the same for all, so no tool lists them.
    """
    one_of = [
        _alternative(model) | ({"required": always} if (always := _always(model)) else {}) for model in alternatives
    ]
    one_of.append(_alternative(Unavailable))
    statuses = [part["properties"]["status"]["const"] for part in one_of]
    return {
        "type": "object",
        "properties": {"status": {"enum": [*dict.fromkeys(statuses)]}},
        "required": ["status"],
        "oneOf": one_of,
    }


def input_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of arguments without redundant parts: null for "left out", and the default null."""
    properties = {name: _argument(argument) for name, argument in schema["properties"].items()}
    return {**schema, "properties": properties}


def _alternative(model: type[Result]) -> dict[str, Any]:
    return {"properties": {"status": {"const": model.model_fields["status"].default}}}


def _always(model: type[Result]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.is_required() and name not in _PLAIN]


def _argument(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: part for name, part in schema.items() if not (name == "default" and part is None)}
    options = [option for option in kept.pop("anyOf", []) if option != {"type": "null"}]
    if options:
        return {**options[0], **kept}
    return kept if "type" in kept or "enum" in kept or "const" in kept else {**kept, "anyOf": _ANY}


_ANY: Final = [{"type": kind} for kind in ("object", "array", "string", "number", "boolean", "null")]
"""Any JSON, spelled out: some hosts treat a schema without a type as a mistake, and the Inspector warns about it."""

_PLAIN: Final = frozenset({"namespace", "key", "resource", "thread_id", "hint"})
"""Fields that need no mention: what the call named, and what to do next."""
