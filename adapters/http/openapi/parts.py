"""Building blocks for the descriptions of routes."""

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


def described_response(description: str, schema: Schema, media: str = JSON, headers: Schema | None = None) -> Schema:
    """Describe a response with a body."""
    response: Schema = {"description": description, "content": {media: {"schema": schema}}}
    return response | ({"headers": headers} if headers else {})


def no_body(response: Schema) -> Schema:
    return {name: part for name, part in response.items() if name != "content"}


_REFUSALS: Final[dict[int, tuple[str, tuple[str, ...], Schema | None]]] = {
    400: ("An argument, a name or the body is invalid; the message names it.", ("Failed",), None),
    401: (
        "A token is required, or it is not valid, or no longer valid.",
        ("Failed",),
        {"WWW-Authenticate": {"schema": {"type": "string"}}},
    ),
    403: ("The token does not allow this; `needed` is a grant that would.", ("Denied", "Failed"), None),
    408: ("The request did not arrive in time.", ("Failed",), None),
    413: ("The body or the value is too large.", ("Failed",), None),
    415: ("The content type of the body is not supported.", ("Failed",), None),
    421: ("The Host header is not allowed (--allowed-host).", ("Failed",), None),
    422: ("The Idempotency-Key was already used for a different request.", ("Failed",), None),
    429: ("A limit is exceeded; nothing happened.", ("Failed",), RETRY_AFTER),
    431: ("The headers are too large.", ("Failed",), None),
    503: ("The store is unavailable; nothing happened, unless `in_doubt`.", ("Unavailable", "Failed"), RETRY_AFTER),
}
_ANY: Final = (400, 401, 403, 408, 413, 421, 429, 431, 503)


def refusals(*statuses: int) -> Schema:
    """Describe the responses with these statuses; by default, those that every request may get."""
    found: Schema = {}
    for status in statuses or _ANY:
        description, models, headers = _REFUSALS[status]
        schema = model(models[0]) if len(models) == 1 else {"anyOf": [model(name) for name in models]}
        found[str(status)] = described_response(description, schema, headers=headers)
    return found


def query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def path(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


_BLANK: Final = r"\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_JOINER: Final = r"\u200c\u200d"
_UNSEEN: Final = (  # control and format characters of Unicode 15, except joiners; patterns have no escapes above \uffff
    r"\u0000-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
_INVISIBLE: Final = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f" "\U000e0100-\U000e01ef"
)
_ENDS: Final = f"[^{_UNSEEN}{_BLANK}{_JOINER}{_INVISIBLE}]"
_VISIBLE: Final = f"^{_ENDS}([^{_UNSEEN}]*{_ENDS})?$"

NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 512, "pattern": _VISIBLE}
AGENT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[!-.0-~]+(/[!-.0-~]+)*$"}
"""A subset of the valid names that everybody can type; other valid names are accepted, too."""
RESOURCE: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": r"^(custom://)?[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
}
"""A subset of the valid names that is valid on every machine; other paths in the repository are accepted, too."""
BEGINNING: Final[Schema] = {"type": "string", "pattern": r"^[^\u0000]*$"}
LABEL: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 128,
    "pattern": r"^[!-~\u00a1-\u00ac\u00ae-\u00ff]([ -~\u00a1-\u00ac\u00ae-\u00ff]*[!-~\u00a1-\u00ac\u00ae-\u00ff])?$",
}
"""A label in a header, limited to the characters that headers can contain (ISO 8859-1)."""
SESSION: Final = header("Holdlog-Session", "The caller's conversation, if known", LABEL)


def limit(most: int) -> Schema:
    return query("limit", "Rows of a page", {"type": "integer", "minimum": 1, "maximum": most})
