"""What the descriptions of routes are made of."""

from typing import Any, Final

Schema = dict[str, Any]

JSON: Final = "application/json"
TEXT: Final = "text/plain"
PROMETHEUS: Final = "text/plain"
ANYBODY: Final[list[Schema]] = []
"""No token is needed."""

RETRY_AFTER: Final = {"Retry-After": {"description": "Seconds", "schema": {"type": "string", "pattern": "^[0-9]+$"}}}


def model(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def told(description: str, schema: Schema, media: str = JSON, headers: Schema | None = None) -> Schema:
    """A response with a body."""
    response: Schema = {"description": description, "content": {media: {"schema": schema}}}
    return response | ({"headers": headers} if headers else {})


def no_body(response: Schema) -> Schema:
    return {name: part for name, part in response.items() if name != "content"}


_REFUSALS: Final[dict[int, tuple[str, tuple[str, ...], Schema | None]]] = {
    400: ("An argument, a name or the body is not valid; the message names it.", ("Failed",), None),
    401: (
        "A token is required, or it is not valid (any more).",
        ("Failed",),
        {"WWW-Authenticate": {"schema": {"type": "string"}}},
    ),
    403: ("The token does not allow this; `needed` tells what would.", ("Denied", "Failed"), None),
    408: ("The request did not come in time.", ("Failed",), None),
    413: ("The body or the value is too large.", ("Failed",), None),
    415: ("The type of the body is not taken.", ("Failed",), None),
    421: ("This server does not go by that name: --allowed-host.", ("Failed",), None),
    422: ("The Idempotency-Key was used for another request.", ("Failed",), None),
    429: ("Too much for now; nothing happened.", ("Failed",), RETRY_AFTER),
    431: ("The headers are too large.", ("Failed",), None),
    503: ("The store cannot take it now; nothing happened, unless `in_doubt`.", ("Unavailable", "Failed"), RETRY_AFTER),
}
_ANY: Final = (400, 401, 403, 408, 413, 421, 429, 431, 503)


def refusals(*statuses: int) -> Schema:
    """The responses of these statuses; without any: of what every request may be refused for."""
    found: Schema = {}
    for status in statuses or _ANY:
        description, models, headers = _REFUSALS[status]
        schema = model(models[0]) if len(models) == 1 else {"anyOf": [model(name) for name in models]}
        found[str(status)] = told(description, schema, headers=headers)
    return found


def query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def path(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
