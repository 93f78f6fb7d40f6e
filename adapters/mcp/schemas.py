"""The schemas of tools, small and plain: models pay for every byte of them, and hosts drop tools, or refuse whole
requests, for `$ref`, `oneOf`, unions with null and arrays without items."""

from collections.abc import Sequence
from typing import Any, Final

from holdlog.adapters.operations.base import Operation
from holdlog.adapters.operations.json import list_statuses

Schema = dict[str, Any]
_DROPPED: Final = (
    *("title", "discriminator", "minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "format"),
)
_HUGE: Final = 10**6
"""Larger bounds are of no use to a model."""
_PLAIN: Final = tuple({"type": kind} for kind in ("object", "string", "number", "boolean", "null"))
_LIST: Final = {"type": "array", "items": {"anyOf": [*_PLAIN]}}
_ANY: Final[Schema] = {"anyOf": [*_PLAIN, {"type": "array", "items": {"anyOf": [*_PLAIN, _LIST]}}]}
"""Any JSON, spelled out: some hosts take a schema without a type for a mistake."""
_FORCE: Final = {"type": "boolean", "description": "Write whatever the version is"}


def describe_arguments(kind: type[Operation]) -> Schema:
    """The JSON schema of an operation's arguments."""
    schema = kind.model_json_schema()
    properties = _inline(schema, schema.get("$defs", {}))["properties"]
    if kind.overwrites:
        properties["force"] = _FORCE
        properties["expected_version"]["description"] = "The version you read; 0: must not exist. Required, or force"
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def describe_results(results: Sequence[type]) -> Schema:
    """An object at the root, with the statuses alone: alternatives per status would help a model little more."""
    status = {"type": "string", "enum": list_statuses(results)}
    return {"type": "object", "properties": {"status": status}, "required": ["status"]}


def _inline(schema: Schema, definitions: Schema) -> Schema:
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions) | _describe(schema)
    if options := schema.get("oneOf") or schema.get("anyOf"):
        return _merge([_inline(option, definitions) for option in options], "oneOf" in schema) | _describe(schema)
    small = {name: part for name, part in schema.items() if name not in _DROPPED and not _is_needless(name, part)}
    if "const" in small:
        small["enum"] = [small.pop("const")]
    if "properties" in small:
        small["properties"] = {name: _inline(part, definitions) for name, part in small["properties"].items()}
    if small.get("type") == "array":
        small["items"] = _inline(small.get("items", {}), definitions)
    elif small.keys() <= {"description"}:
        small = _ANY | small
    small.pop("$defs", None)
    return small


def _describe(schema: Schema) -> Schema:
    return {name: schema[name] for name in ("description", "default") if schema.get(name) is not None}


def _is_needless(name: str, part: Any) -> bool:
    is_bound = name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return (name == "default" and part in (None, "", False)) or (is_bound and (part >= _HUGE or part == 0))


def _merge(options: list[Schema], is_tagged: bool) -> Schema:
    """Objects of several kinds become one object; the model checks each kind. Null means that an argument is left
    out."""
    options = [option for option in options if option != {"type": "null"}]
    if len(options) == 1:
        return options[0]
    if not is_tagged:
        return {"anyOf": options}
    properties: Schema = {}
    for option in options:
        for name, part in option["properties"].items():
            known = properties.setdefault(name, part)
            if "enum" in known and part != known:
                properties[name] = known | {"enum": list(dict.fromkeys([*known["enum"], *part.get("enum", ())]))}
            elif part != known and "anyOf" in part:
                properties[name] = part  # any JSON
    required = [name for name in properties if all(name in option.get("required", ()) for option in options)]
    return {"type": "object", "properties": properties, "required": required}
