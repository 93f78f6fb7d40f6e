"""The description of the routes in OpenAPI 3.1, derived from the operations."""

from typing import Any, Final

import holdlog
from holdlog.adapters.auth.access import Denied
from holdlog.adapters.http.calls import CODES
from holdlog.adapters.http.routes import VERSION, list_operations
from holdlog.adapters.mcp.schemas import Schema, describe_arguments
from holdlog.adapters.operations.base import OPERATIONS, Operation

_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_JSON: Final[Schema] = {"application/json": {"schema": {}}}
_FORM: Final = {"application/x-www-form-urlencoded": {"schema": {"properties": {"token": {"const": "new"}}}}}
BY_HAND: Final[tuple[tuple[str, str, Schema, Schema], ...]] = (
    ("GET /kv/{group}/{key}", "Read a value as it was saved; its version is the ETag", {}, _TEXT),
    ("POST /kv/{group}/{key}", "Save a text, or JSON by its content type, for ?ttl= seconds", _TEXT, _TEXT),
    ("DELETE /kv/{group}/{key}", "Delete a value", {}, _TEXT),
    ("GET /token", "Describe the token of the caller", {}, _JSON),
    ("POST /token", "Create a token with its own space, if the server allows it", _FORM, _TEXT),
    ("POST /hook", "Guard an edit, with the JSON that a host passes to its hooks", _JSON, _JSON),
    ("GET /healthz", "Whether the server runs", {}, _JSON),
    ("GET /readyz", "Whether its store can be read", {}, _JSON),
    ("GET /metrics", "What Prometheus reads", {}, _TEXT),
)


def describe_api() -> Schema:
    paths: Schema = {}
    for path, kinds in (list_operations() | {"/events": {"GET": OPERATIONS["events"]}}).items():
        paths[VERSION + path] = {method.lower(): _describe(kind, method, path) for method, kind in kinds.items()}
    for route, text, body, content in BY_HAND:
        method, _, path = route.partition(" ")
        name = f"{method.lower()}_{path.split('/')[1]}"
        described: Schema = {
            "operationId": name,
            "summary": text,
            "responses": {"200": {"description": "ok", "content": content}},
        }
        described["parameters"] = [_describe_parameter(name, {"type": "string"}, "path") for name in _list_names(path)]
        if body:
            described["requestBody"] = {"content": body, "required": True}
        paths.setdefault(path, {})[method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "holdlog", "version": holdlog.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"bearer": []}],
    }


def _list_names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _describe(kind: type[Operation], method: str, path: str) -> Schema:
    schema, names = describe_arguments(kind), _list_names(path)
    properties, required = schema["properties"], schema.get("required", [])
    rest = {name: part for name, part in properties.items() if name not in names}
    is_short = path != kind.route.partition(" ")[2]
    described: Schema = {
        "operationId": f"{kind.name}_all" if is_short else kind.name,
        "summary": " ".join((kind.__doc__ or "").split()),
        "parameters": [_describe_parameter(name, properties[name], "path") for name in names],
        "responses": _describe_responses(kind),
    }
    if method in ("GET", "DELETE"):
        queries = [_describe_parameter(name, part, "query", name in required) for name, part in rest.items()]
        described["parameters"] += queries
    else:
        body = {"type": "object", "properties": rest, "required": [name for name in required if name in rest]}
        described["requestBody"] = {"content": {"application/json": {"schema": body}}, "required": True}
    return described


def _describe_parameter(name: str, schema: Schema, place: str, is_required: bool = True) -> Schema:
    return {"name": name, "in": place, "required": is_required, "schema": schema}


def _describe_responses(kind: type[Operation]) -> Schema:
    """The statuses of the results by their codes; docs/reference.md has their fields."""
    results: tuple[Any, ...] = (*kind.results, Denied)
    statuses = [result._field_defaults["status"] for result in results]
    texts: dict[str, list[str]] = {}
    for status in dict.fromkeys([*statuses, "error", "unavailable"]):
        texts.setdefault(str(CODES.get(status, 200)), []).append(status)
    texts["401"] = ["error: a valid token is required"]
    return {code: {"description": ", ".join(names), "content": _JSON} for code, names in texts.items()}
