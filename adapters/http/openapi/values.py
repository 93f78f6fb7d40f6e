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

_GROUP: Final = path("group", "The group (a namespace); what is no letter, digit or -._~ is percent-encoded", NAME)
_KEY: Final = path("key", "The key; a slash within it is %2F", NAME)
_IF_MATCH: Final = header("If-Match", "Only if the value has (one of) these versions; * is any", _TAGS)
_IF_NONE_MATCH: Final = header("If-None-Match", "Only if it has none of these; *: only if there is none", _TAGS)
_ETAG: Final[Schema] = {"ETag": {"description": "The version, in quotes", "schema": _VERSION}}
_FACTS: Final[Schema] = {
    **_ETAG,
    "Holdlog-Updated-By": {"description": "Who wrote it, percent-encoded", "schema": {"type": "string"}},
    "Holdlog-Principal": {
        "description": "Who was authenticated for it, percent-encoded, such as token:ci; without it, the local user",
        "required": False,
        "schema": {"type": "string"},
    },
    "Holdlog-Updated-At": {"schema": {"type": "string", "format": "date-time"}},
    "Holdlog-Expires-At": {
        "description": "Where it has an end",
        "required": False,
        "schema": {"type": "string", "format": "date-time"},
    },
}
_TTL: Final = query(
    "ttl",
    "Seconds until it is gone; 30 days if left out or 0; `never`",
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 315_360_000}, {"const": "never"}]},
)
_WRITING: Final = [
    header("X-Agent", "Who writes, told to others; else the token's name", AGENT),
    header(
        "X-Guard", "Claims that this relies on, as src%2Fa.py@3; without one of them it is fenced", {"type": "string"}
    ),
    header("Idempotency-Key", "The same key and request again: the same answer, done once (24 h)", LABEL),
    SESSION,
    _IF_MATCH,
    _IF_NONE_MATCH,
]
_VALUE: Final[Schema] = {TEXT: {"schema": {"type": "string"}}, "application/json": {"schema": {}}}
_REFUSED: Final = refusals()
_MISSING: Final[Schema] = {
    "description": "There is no value: never, not any more, or deleted.",
    "content": {TEXT: {"schema": {"const": "Key Not Found"}}, "application/json": {"schema": model("NotFound")}},
}
_CONFLICT: Final = described_response("A condition does not hold; what stands there instead.", model("Conflict"))
_FENCED: Final = described_response("A claim in X-Guard is not held (any more).", model("Fenced"))
_WRITE_REFUSED: Final[Schema] = {**_REFUSED, "409": _FENCED, "412": _CONFLICT, **refusals(415, 422)}


def _written(description: str, schema: str, headers: Schema | None) -> Schema:
    content = {TEXT: {"schema": {"const": "OK"}}, "application/json": {"schema": model(schema)}}
    response: Schema = {"description": description, "content": content}
    return response | ({"headers": headers} if headers else {})


_SET: Final = _written("Written. As JSON, with version and position, where JSON is accepted.", "SetResult", _ETAG)
_MADE: Final = _written("Written; there was none before.", "SetResult", _ETAG)

VALUES: Final[Mapping[str, Schema]] = {
    "/kv": {
        "get": {
            "summary": "Groups with values",
            "parameters": [query("after", "Of the page before: `next_after`", BEGINNING), _PAGE, SESSION],
            "responses": {"200": described_response("A page of them.", model("NamespaceList")), **_REFUSED},
        }
    },
    "/kv/{group}": {
        "parameters": [_GROUP],
        "get": {
            "summary": "Values of a group",
            "description": "One snapshot of a page, ordered by key.",
            "parameters": [
                query("prefix", "Only keys that begin with this", BEGINNING),
                query("after", "Of the page before: `next_after`", BEGINNING),
                _PAGE,
                SESSION,
            ],
            "responses": {"200": described_response("A page of them.", model("RecordList")), **_REFUSED},
        },
    },
    "/kv/{group}/{key}": {
        "parameters": [_GROUP, _KEY],
        "get": {
            "summary": "A value, or with `history` its past",
            "description": "A string is told as text, all else as JSON; JSON in any case where it is preferred.",
            "parameters": [
                query("history", "Its versions instead, newest first", {"enum": ["1", "true"]}),
                query("before", "With history: only versions before this one", {"type": "integer", "minimum": 1}),
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
                "304": {"description": "It has the version in If-None-Match still.", "headers": _FACTS},
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
            "description": "RFC 7396: members of the patch replace those of the value, null removes one.",
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
