"""The schemas of tools, as small as they can be: hosts may show them to a model, which pays for every byte.

Answers are an object at the root: a plain union would be wrapped in `{"result": …}`, and hosts show the model that.
"""

from typing import Any, Final

from holdlog.adapters.results import Result, Unavailable


def output_schema(*alternatives: type[Result]) -> dict[str, Any]:
    """JSON Schema of the answers: the types of all fields once, and one alternative per status.

    Alternatives of one status are told apart by their required fields; which fields the others hold says
    docs/answers.md, since a full list would double the size of a tool. Every call may be `unavailable`, too; its
    fields are the same for all, so that no tool lists them.
    """
    statuses = [_status(model) for model in alternatives]
    properties: dict[str, Any] = {"status": {"enum": [*dict.fromkeys(statuses), _ALWAYS]}}
    for model in alternatives:
        for name, schema in model.model_json_schema(mode="serialization")["properties"].items():
            if name in _OF_ALL:
                continue
            properties.setdefault(name, _plain(schema, name in model.kept()))
    one_of = []
    for model, status in zip(alternatives, statuses, strict=True):
        alternative: dict[str, Any] = {"properties": {"status": {"const": status}}}
        if statuses.count(status) > 1:
            alternative["required"] = [name for name, field in model.model_fields.items() if field.is_required()]
        one_of.append(alternative)
    one_of.append({"properties": {"status": {"const": _ALWAYS}}})
    return {"type": "object", "properties": properties, "required": ["status"], "oneOf": one_of}


def input_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of arguments without what says nothing: null for "left out", and the default null."""
    properties = {name: _argument(argument) for name, argument in schema["properties"].items()}
    return {**schema, "properties": properties}


def _status(model: type[Result]) -> str:
    status: str = model.model_fields["status"].default
    return status


def _plain(schema: dict[str, Any], may_be_null: bool) -> dict[str, Any]:
    """The type alone. Fields that may be absent are never null, unless null means something."""
    if "anyOf" not in schema:
        return {"type": schema["type"]} if "type" in schema else {}
    kinds = [option["type"] for option in schema["anyOf"] if "type" in option]
    return {"type": kinds} if may_be_null else {"type": kinds[0]}


def _argument(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: part for name, part in schema.items() if not (name == "default" and part is None)}
    options = [option for option in kept.pop("anyOf", []) if option != {"type": "null"}]
    return {**options[0], **kept} if options else kept


_ALWAYS: Final = _status(Unavailable)
_OF_ALL: Final = frozenset(Result.model_fields)
"""Fields that any answer may carry; the instructions tell of them."""
