"""The OpenAPI 3.1 document of everything except MCP: `GET /openapi.json`, generated from the models of the
responses."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import Route

from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.threads import responses as threads
from holdlog.adapters.api.values import responses as results
from holdlog.adapters.http.openapi.more import MORE
from holdlog.adapters.http.openapi.parts import ANYBODY, PROMETHEUS, Schema, described_response, no_body, refusals
from holdlog.adapters.http.openapi.threads import THREADS
from holdlog.adapters.http.openapi.values import VALUES

MODELS: Final[tuple[type[BaseModel], ...]] = (
    claims.Available,
    claims.Board,
    claims.Held,
    results.Conflict,
    results.DeleteResult,
    results.Denied,
    results.Failed,
    results.Fenced,
    results.History,
    results.NamespaceList,
    results.NotFound,
    results.RecordList,
    results.SetResult,
    results.Unavailable,
    threads.Appended,
    threads.DataChanged,
    threads.DataConflict,
    threads.Resumed,
    threads.Started,
    threads.ThreadData,
    threads.ThreadFacts,
    threads.ThreadItems,
    threads.ThreadList,
    threads.ThreadMessages,
    threads.ThreadNotFound,
)

_WELL: Final = {"type": "object", "properties": {"status": {"const": "ok"}}, "required": ["status"]}

OPERATIONS: Final[Mapping[str, Schema]] = {
    "/healthz": {
        "get": {
            "summary": "Liveness",
            "description": "For a liveness probe: it does not check the database, so an outage there "
            "does not restart the process.",
            "security": ANYBODY,
            "responses": {"200": described_response("The process is alive.", _WELL)},
        }
    },
    "/readyz": {
        "get": {
            "summary": "Readiness",
            "description": "For a readiness probe: the store can be read, and the server is not shutting down.",
            "security": ANYBODY,
            "responses": {"200": described_response("Ready.", _WELL), "503": refusals(503)["503"]},
        }
    },
    "/metrics": {
        "get": {
            "summary": "Metrics for Prometheus",
            "description": "Requires a grant of metrics:* if tokens are required. docs/operations.md "
            "describes each metric.",
            "responses": {
                "200": described_response("Metrics in the text format.", {"type": "string"}, PROMETHEUS),
                **refusals(),
            },
        }
    },
    "/openapi.json": {
        "get": {
            "summary": "This document",
            "security": ANYBODY,
            "responses": {"200": described_response("OpenAPI 3.1.", {"type": "object"}), **refusals(429)},
        }
    },
}
DESCRIBED: Final[Mapping[str, Schema]] = {**VALUES, **THREADS, **MORE, **OPERATIONS}
PATHS: Final = tuple(DESCRIBED)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The document for the described paths that these routes serve."""
    context = list(routes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdlog",
            "version": version("holdlog"),
            "description": "Versioned shared values, claims, threads and events for AI agents; see "
            "docs/http.md. MCP is served at /mcp.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {"token": []}, {}],
        "paths": {path: _with_head(parts) for path, parts in DESCRIBED.items() if _is_routed(path, context)},
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "x-token"},
            },
        },
    }


@cache
def schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(model, "validation") for model in MODELS], ref_template="#/components/schemas/{model}"
    )
    made: dict[str, Any] = {name: _without_nulls(schema) for name, schema in found["$defs"].items()}
    for schema in made.values():
        if "status" in schema.get("properties", {}):
            schema["required"] = ["status", *schema.get("required", [])]
    made["Conflict"]["required"].remove("expected_version")  # missing if several versions would have matched
    made["DataConflict"]["required"].remove("expected_data_version")
    return made


def _is_routed(path: str, routes: Iterable[Route]) -> bool:
    example = path.replace("{", "").replace("}", "")
    return any(route.path_regex.match(example) for route in routes)


def _with_head(parts: Schema) -> Schema:
    """Every path that supports GET also supports HEAD."""
    if "get" not in parts:
        return parts
    responses = {status: no_body(it) for status, it in parts["get"]["responses"].items()}
    head = {**parts["get"], "summary": "Like GET, but without a body", "responses": responses}
    return {**parts, "head": head}


def _without_nulls(schema: Any) -> Any:
    """Remove null from fields that are null by default: responses omit these fields instead."""
    if isinstance(schema, list):
        return [_without_nulls(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_nulls(part) for name, part in schema.items() if not (name == "default" and part is None)}
    if kept.get("anyOf") and "default" in schema and schema["default"] is None:
        options = [option for option in kept.pop("anyOf") if option != {"type": "null"}]
        kept |= options[0] if len(options) == 1 else {"anyOf": options}
    return kept
