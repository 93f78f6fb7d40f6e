"""Output schemas: an object at the root with one alternative per status, as small as they can be.

A plain union would be wrapped in `{"result": …}`, and hosts show the model that.
"""

from typing import Any

from holdlog.adapters.results import Result


def output_schema(*alternatives: type[Result]) -> dict[str, Any]:
    """JSON Schema of the answers, told apart by `status` (and by their required fields where that is the same)."""
    statuses = list(dict.fromkeys(model.model_fields["status"].default for model in alternatives))
    return {
        "type": "object",
        "properties": {"status": {"type": "string", "enum": statuses}},
        "required": ["status"],
        "oneOf": [_alternative(model) for model in alternatives],
    }


def _alternative(model: type[Result]) -> dict[str, Any]:
    described = model.model_json_schema(mode="serialization")["properties"]
    properties = {name: _plain(schema, name in model.kept()) for name, schema in described.items()}
    properties["status"] = {"const": model.model_fields["status"].default}
    required = ["status", *(name for name, field in model.model_fields.items() if field.is_required())]
    return {"properties": properties, "required": required}


def _plain(schema: dict[str, Any], may_be_null: bool) -> dict[str, Any]:
    """The type alone; fields that may be absent are never null, unless null means something."""
    if "anyOf" in schema:
        kinds = [option["type"] for option in schema["anyOf"] if "type" in option]
        return {"type": kinds if may_be_null else next(kind for kind in kinds if kind != "null")}
    return {"type": schema["type"]} if "type" in schema else {}
