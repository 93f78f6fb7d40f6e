"""The schemas of tools, as small as possible: hosts may show them to a model, which pays for every byte.

Responses are an object at the root: FastMCP would wrap a plain union in `{"result": …}`, and hosts show the model that.
"""

from typing import Any, Final

from holdlog.adapters.api.values.responses import Result, Unavailable


def output_schema(*alternatives: type[Result]) -> dict[str, Any]:
    """JSON Schema of the responses: one alternative per status, with the fields that it always has, and one for all
    statuses without such fields.

    docs/answers.md has the types and the optional fields: included here, they would double the size of a tool. Every
    call may respond `unavailable`, too; its fields are the same for all, so no tool lists them.
    """
    models: tuple[type[Result], ...] = (*alternatives, Unavailable)
    one_of: list[dict[str, Any]] = [
        {"properties": {"status": {"const": _status(model)}}, "required": always}
        for model in alternatives
        if (always := _always(model))
    ]
    others = [_status(model) for model in models if model is Unavailable or not _always(model)]
    one_of.append({"properties": {"status": {"enum": others}}})
    statuses = [_status(model) for model in models]
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


def _status(model: type[Result]) -> str:
    return str(model.model_fields["status"].default)


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

_NAMED: Final = {"namespace", "key", "resource", "thread_id", "deleted_by", "expected_version", "since_version"}
_TIMES: Final = {"claimed_at", "expires_at", "updated_at", "deleted_at", "exported_at", "held_for_seconds"}
_COUNTS: Final = {"position", "elapsed_seconds", "record_count", "history_count"}
_PLAIN: Final = frozenset({"hint", *_NAMED, *_TIMES, *_COUNTS})
"""Fields that need no mention: what the call named, what to do next, times, positions and counts of rows."""
