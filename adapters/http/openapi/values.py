"""The routes of values, described by hand."""

from collections.abc import Mapping
from typing import Final

from holdlog.adapters.http.openapi.parts import (
    AGENT,
    BEGINNING,
    LABEL,
    NAME,
    SESSION,
    TEXT,
    Schema,
    described_response,
    header,
    limit,
    model,
    path,
    query,
    refusals,
)

_TAGS: Final[Schema] = {"type": "string", "pattern": r'^(\*|("[1-9][0-9]{0,17}")(, "[1-9][0-9]{0,17}")*)$'}
_VERSION: Final[Schema] = {"type": "string", "pattern": '^"[1-9][0-9]*"$'}
_PAGE: Final = limit(1000)

_GROUP: Final = path("group", "The group (namespace); percent-encode all but letters, digits and -._~", NAME)
_KEY: Final = path("key", "The key; write a slash within it as %2F", NAME)
_IF_MATCH: Final = header("If-Match", "Only if the value has one of these versions; *: only if there is a value", _TAGS)
_IF_NONE_MATCH: Final = header(
    "If-None-Match", "Only if it has none of these versions; *: only if there is no value", _TAGS
)
_ETAG: Final[Schema] = {"ETag": {"description": "The version, in quotes", "schema": _VERSION}}
_FACTS: Final[Schema] = {
    **_ETAG,
    "Holdlog-Updated-By": {"description": "The author, percent-encoded", "schema": {"type": "string"}},
    "Holdlog-Principal": {
        "description": "The author's authenticated principal, percent-encoded, such as token:ci; absent "
        "for the local user",
        "required": False,
        "schema": {"type": "string"},
    },
    "Holdlog-Updated-At": {"schema": {"type": "string", "format": "date-time"}},
    "Holdlog-Expires-At": {
        "description": "When the value expires; absent if it does not",
        "required": False,
        "schema": {"type": "string", "format": "date-time"},
    },
}
_TTL: Final = query(
    "ttl",
    "Seconds until the value expires, or `never`; 30 days if omitted or 0",
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 315_360_000}, {"const": "never"}]},
)
_WRITING: Final = [
    header("X-Agent", "The author's name, which others see; the token's name if omitted", AGENT),
    header(
        "X-Guard", "Claims that this write relies on, as src%2Fa.py@3; fenced if one is not held", {"type": "string"}
    ),
    header(
        "Idempotency-Key", "A repeated request with the same key runs once and gets the same response (24 h)", LABEL
    ),
    SESSION,
    _IF_MATCH,
    _IF_NONE_MATCH,
]
_VALUE: Final[Schema] = {TEXT: {"schema": {"type": "string"}}, "application/json": {"schema": {}}}
_REFUSED: Final = refusals()
_MISSING: Final[Schema] = {
    "description": "There is no value: it was never written, was deleted or expired.",
    "content": {TEXT: {"schema": {"const": "Key Not Found"}}, "application/json": {"schema": model("NotFound")}},
}
_CONFLICT: Final = described_response("A condition does not hold; the current value.", model("Conflict"))
_FENCED: Final = described_response("A claim in X-Guard is not held, or no longer held.", model("Fenced"))
_WRITE_REFUSED: Final[Schema] = {**_REFUSED, "409": _FENCED, "412": _CONFLICT, **refusals(415, 422)}


def _written(description: str, schema: str, headers: Schema | None) -> Schema:
    content = {TEXT: {"schema": {"const": "OK"}}, "application/json": {"schema": model(schema)}}
    response: Schema = {"description": description, "content": content}
    return response | ({"headers": headers} if headers else {})


_SET: Final = _written("Written. With Accept: application/json, the version and position as JSON.", "SetResult", _ETAG)
_MADE: Final = _written("Written; there was no value before.", "SetResult", _ETAG)

VALUES: Final[Mapping[str, Schema]] = {
    "/kv": {
        "get": {
            "summary": "Groups with values",
            "parameters": [query("after", "`next_after` of the previous page", BEGINNING), _PAGE, SESSION],
            "responses": {"200": described_response("A page.", model("NamespaceList")), **_REFUSED},
        }
    },
    "/kv/{group}": {
        "parameters": [_GROUP],
        "get": {
            "summary": "Values of a group",
            "description": "One snapshot of a page, ordered by key.",
            "parameters": [
                query("prefix", "Only keys that begin with this", BEGINNING),
                query("after", "`next_after` of the previous page", BEGINNING),
                _PAGE,
                SESSION,
            ],
            "responses": {"200": described_response("A page.", model("RecordList")), **_REFUSED},
        },
    },
    "/kv/{group}/{key}": {
        "parameters": [_GROUP, _KEY],
        "get": {
            "summary": "A value, or its history",
            "description": "A string is returned as text, any other value as JSON; with Accept: "
            "application/json, always as JSON.",
            "parameters": [
                query("history", "Return its versions instead, newest first", {"enum": ["1", "true"]}),
                query("before", "With history: only versions less than this one", {"type": "integer", "minimum": 1}),
                _PAGE,
                SESSION,
                _IF_MATCH,
                _IF_NONE_MATCH,
            ],
            "responses": {
                "200": {
                    "description": "The value, or its history.",
                    "headers": {name: {**part, "required": False} for name, part in _FACTS.items()},
                    "content": {TEXT: {"schema": {"type": "string"}}, "application/json": {"schema": {}}},
                },
                "304": {"description": "The value still has a version in If-None-Match.", "headers": _FACTS},
                "404": _MISSING,
                "412": _CONFLICT,
                **_REFUSED,
            },
        },
        "put": {
            "summary": "Write a value",
            "parameters": [_TTL, *_WRITING],
            "requestBody": {"required": True, "content": _VALUE},
            "responses": {"200": _SET, "201": _MADE, **_WRITE_REFUSED},
        },
        "post": {
            "summary": "Write a value, as echoValue does",
            "parameters": [_TTL, *_WRITING],
            "requestBody": {"required": True, "content": _VALUE},
            "responses": {"200": _SET, **_WRITE_REFUSED},
        },
        "patch": {
            "summary": "Merge into a value",
            "description": "RFC 7396: members of the patch replace those of the value; null removes a member.",
            "parameters": [_TTL, *_WRITING],
            "requestBody": {"required": True, "content": {"application/merge-patch+json": {"schema": {}}}},
            "responses": {"200": _SET, "201": _MADE, "404": _MISSING, **_WRITE_REFUSED},
        },
        "delete": {
            "summary": "Delete a value",
            "parameters": _WRITING,
            "responses": {"200": _written("Deleted.", "DeleteResult", None), "404": _MISSING, **_WRITE_REFUSED},
        },
    },
}
