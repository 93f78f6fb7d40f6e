"""The OpenAPI 3.1 document of everything except MCP: `GET /openapi.json`, made from the routes (routing.py)."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from holdlog.adapters.api.values.responses import Denied, Failed, Unavailable
from holdlog.adapters.http.routing import JSON, Answer, ApiRoute, HttpOperation, Parameter

Schema = dict[str, Any]

_RETRY: Final = (Parameter("Retry-After", "Seconds", TypeAdapter(str)),)
_REFUSALS: Final = {
    400: Answer("An argument, a name or the body is invalid; the message names it.", Failed),
    401: Answer("A token is required, or it is not valid, or no longer valid.", Failed),
    403: Answer("The token does not allow this; `needed` is a grant that would.", Denied | Failed),
    408: Answer("The request did not arrive in time.", Failed),
    413: Answer("The body or the value is too large.", Failed),
    415: Answer("The content type of the body is not supported.", Failed),
    421: Answer("The Host header is not allowed (--allowed-host).", Failed),
    422: Answer("The Idempotency-Key was already used for a different request.", Failed),
    429: Answer("A limit is exceeded; nothing happened.", Failed, _RETRY),
    431: Answer("The headers are too large.", Failed),
    503: Answer("The store is unavailable; nothing happened, unless `in_doubt`.", Unavailable | Failed, _RETRY),
}


_SOMETIMES: Final = ("expected_version", "expected_data_version")
"""Fields that a conflict lacks if several versions would have matched."""


def document(routes: Iterable[BaseRoute]) -> Schema:
    """Describe the routes that are declared as `ApiRoute`."""
    described = [route for route in routes if isinstance(route, ApiRoute)]
    schemas = _Schemas()
    paths = {route.template: _path(route, schemas) for route in described}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdlog",
            "version": version("holdlog"),
            "description": "Versioned shared values, claims, threads and events for AI agents; see docs/http.md. "
            "MCP is served at /mcp.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "x-token"},
            },
        },
    }


class _Schemas:
    """The schemas of types; `named`: those of the models among them, which the others refer to."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def of(self, kind: Any) -> Schema:
        adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
        template = "#/components/schemas/{model}"
        found, more = TypeAdapter.json_schemas([(0, "validation", adapter)], ref_template=template)
        self.named = more.get("$defs", {}) | self.named
        return dict(found[0, "validation"])

    def of_response(self, kind: Any) -> Schema:
        """Responses omit fields that are None, and always have a status."""
        before = set(self.named)
        found = self.of(kind)
        for name in self.named.keys() - before:
            schema = self.named[name] = _without_nulls(self.named[name])
            if "status" in schema.get("properties", {}):
                always = (it for it in schema.get("required", ()) if it not in _SOMETIMES)
                schema["required"] = list(dict.fromkeys(("status", *always)))
        return found


def _path(route: ApiRoute, schemas: _Schemas) -> Schema:
    methods = {method.lower(): _operation(operation, schemas) for method, operation in route.operations.items()}
    if "get" in methods:
        answers = methods["get"]["responses"].items()
        bare = {status: {it: answer[it] for it in answer if it != "content"} for status, answer in answers}
        methods["head"] = {**methods["get"], "summary": "Like GET, but without a body", "responses": bare}
    names = [_parameter(it, "path", schemas) | {"required": True} for it in route.names]
    return ({"parameters": names} if names else {}) | methods


def _operation(operation: HttpOperation, schemas: _Schemas) -> Schema:
    answers = {status: _REFUSALS[status] for status in operation.refusals} | dict(operation.answers)
    described: Schema = {
        "summary": operation.summary,
        "parameters": [
            *(_parameter(it, "query", schemas) for it in operation.query or ()),
            *(_parameter(it, "header", schemas) for it in operation.headers),
        ],
        "responses": {str(status): _answer(answer, schemas) for status, answer in sorted(answers.items())},
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body is not None:
        content = {media: {"schema": schemas.of(kind)} for media, kind in operation.body.items()}
        described["requestBody"] = {"required": True, "content": content}
    if operation.public:
        described["security"] = []
    return described


def _parameter(parameter: Parameter, location: str, schemas: _Schemas) -> Schema:
    return {
        "name": parameter.name,
        "in": location,
        "description": parameter.description,
        "schema": schemas.of(parameter.rule),
    }


def _answer(answer: Answer, schemas: _Schemas) -> Schema:
    described: Schema = {"description": answer.description}
    if answer.content is not None:
        content = answer.content if isinstance(answer.content, dict) else {JSON: answer.content}
        described["content"] = {media: {"schema": schemas.of_response(kind)} for media, kind in content.items()}
    if answer.headers:
        described["headers"] = {
            it.name: {"description": it.description, "schema": schemas.of(it.rule)} for it in answer.headers
        }
    return described


def _without_nulls(schema: Any) -> Any:
    """Remove null from fields that are null by default."""
    if isinstance(schema, list):
        return [_without_nulls(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_nulls(part) for name, part in schema.items() if not (name == "default" and part is None)}
    if kept.get("anyOf") and "default" in schema and schema["default"] is None:
        options = [option for option in kept.pop("anyOf") if option != {"type": "null"}]
        kept |= options[0] if len(options) == 1 else {"anyOf": options}
    return kept
