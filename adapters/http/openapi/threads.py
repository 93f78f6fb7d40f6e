"""The routes of threads, described by hand."""

from collections.abc import Mapping
from typing import Any, Final

from holdlog.adapters.http.openapi.parts import (
    AGENT,
    BEGINNING,
    JSON,
    LABEL,
    NAME,
    SESSION,
    Schema,
    described_response,
    header,
    limit,
    model,
    path,
    query,
    refusals,
)

_TAGS: Final[Schema] = {
    "type": "string",
    "pattern": r'^(\*|("(0|[1-9][0-9]{0,17})")(, "(0|[1-9][0-9]{0,17})")*)$',
}
_TAG: Final[Schema] = {"type": "string", "pattern": '^"(0|[1-9][0-9]*)"$'}
_VERSION: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_THREAD: Final = path("thread_id", "The thread; percent-encode all but letters, digits and -._~", NAME)
_KEY: Final = path("key", "The key; write a slash within it as %2F", NAME)
_AFTER: Final = query("after", "`next_after` of the previous page", BEGINNING)
_IF_MATCH: Final = header(
    "If-Match", "Only if the data has one of these data_versions; *: only if the key exists", _TAGS
)
_IF_NONE_MATCH: Final = header(
    "If-None-Match", "Only if it has none of these data_versions; *: only if the key does not exist", _TAGS
)
_CONDITIONS: Final = [_IF_MATCH, _IF_NONE_MATCH]
_ETAG: Final[Schema] = {"ETag": {"description": "The data_version, in quotes", "schema": _TAG}}
_WRITING: Final = [
    header("X-Agent", "The author's name, which others see; the token's name if omitted", AGENT),
    header(
        "Idempotency-Key", "A repeated request with the same key runs once and gets the same response (24 h)", LABEL
    ),
    SESSION,
]
_MISSING: Final[Schema] = {"404": described_response("Nobody started the thread.", model("ThreadNotFound"))}
_NO_KEY: Final[Schema] = {
    "404": described_response("There is no such thread, or no such key now.", model("ThreadNotFound"))
}
_REFUSED: Final = {**refusals(), **_MISSING}
_WRITE_REFUSED: Final = {**_REFUSED, **refusals(415, 422)}
_CONFLICT: Final[Schema] = {
    "412": described_response("The condition does not hold; the keys that changed.", model("DataConflict"))
}


def _object(required: list[str], **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _body(schema: Schema) -> Schema:
    return {"required": True, "content": {JSON: {"schema": schema}}}


_TEXT: Final[Schema] = {"type": "string"}
_CALL: Final = _object(["id", "name"], type={"const": "tool"}, id=_TEXT, name=_TEXT, input={"type": "object"})
_TOOL: Final[Schema] = {"const": "tool"}
_TOOL_RESULT: Final = _object(
    ["type", "tool", "content"],
    type={"const": "tool_result"},
    role={"const": "tool_result"},
    tool=_CALL,
    content={},
    stop_reason=_TOOL,
)
_MESSAGE: Final[Schema] = {
    "anyOf": [
        _object(
            ["type", "role", "content"],
            type={"const": "text"},
            role={"enum": ["system", "user", "assistant"]},
            content={
                "anyOf": [_TEXT, {"type": "array", "items": _object(["text"], type={"const": "text"}, text=_TEXT)}]
            },
            stop_reason={"enum": ["tool", "stop"]},
        ),
        _object(
            ["type", "tools"],
            type={"const": "tool_call"},
            role={"enum": ["user", "assistant"]},
            tools={"type": "array", "items": _CALL},
            stop_reason=_TOOL,
        ),
        _TOOL_RESULT,
    ]
}
_RESULT: Final = _object(
    ["agent_name"],
    agent_name=AGENT,
    output={"type": "array", "items": _MESSAGE},
    tool_calls={"type": "array", "items": _TOOL_RESULT},
    created_at={"type": "string", "pattern": r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T12:[0-5][0-9]:00Z$"},
)
"""AgentKit's result. Its camelCase names are accepted, too, and so is any RFC 3339 time."""


def _some(schema: Schema) -> Schema:
    return {"type": "array", "items": schema, "minItems": 1, "maxItems": 500}


_ITEMS: Final[Schema] = {
    "anyOf": [
        _object(["messages"], messages=_some(_MESSAGE), results=_some(_RESULT)),
        _object(["results"], results=_some(_RESULT)),
    ]
}
_DATA: Final[Schema] = {"type": "object", "propertyNames": NAME, "maxProperties": 1000}
_START: Final[Schema] = {
    "anyOf": [
        _object([], thread_id=NAME, data=_DATA),
        _object(["parent"], thread_id=NAME, parent=NAME, parent_version={**_VERSION, "minimum": 1}),
    ]
}
_CHANGED: Final = described_response("Done; the keys that changed.", model("DataChanged"), headers=_ETAG)

THREADS: Final[Mapping[str, Schema]] = {
    "/threads": {
        "get": {
            "summary": "Threads, sorted by name",
            "parameters": [_AFTER, limit(1000), SESSION],
            "responses": {
                "200": described_response("A page of the threads that the caller may read.", model("ThreadList")),
                **refusals(),
            },
        },
        "post": {
            "summary": "Start a thread, resume one, or fork one",
            "description": "Without `thread_id`, a new thread gets an id. `data`: the initial data of a new thread. "
            "`parent`: start with the contents of this thread, now or at `parent_version`.",
            "parameters": _WRITING,
            "requestBody": _body(_START),
            "responses": {
                "200": described_response("The thread existed and is unchanged.", model("Resumed")),
                "201": described_response("Started.", model("Started")),
                **_WRITE_REFUSED,
            },
        },
    },
    "/threads/{thread_id}": {
        "parameters": [_THREAD],
        "get": {
            "summary": "Facts about a thread",
            "parameters": [SESSION],
            "responses": {"200": described_response("Its versions and counts.", model("ThreadFacts")), **_REFUSED},
        },
    },
    "/threads/{thread_id}/items": {
        "parameters": [_THREAD],
        "get": {
            "summary": "Messages and results, in order",
            "description": "The newest, or the first above `after`. Each page is complete up to its `version`; results "
            "up to `cleared` no longer count.",
            "parameters": [
                query("after", "Only above this version, oldest first", _VERSION),
                query("before", "Only below this version", _VERSION),
                query("format", "model: only messages, as models accept them", {"enum": ["items", "model"]}),
                query("wait", "Seconds to wait for items above `after`", {"type": "number", "minimum": 0}),
                limit(1000),
                SESSION,
            ],
            "responses": {
                "200": described_response("A page.", {"anyOf": [model("ThreadItems"), model("ThreadMessages")]}),
                **_REFUSED,
            },
        },
        "post": {
            "summary": "Append messages, then results: all or none",
            "description": "An existing result is skipped, so one with `created_at` can be sent again. Without it, a "
            "result gets the current time; Idempotency-Key makes a repeat safe then, as it does for messages.",
            "parameters": _WRITING,
            "requestBody": _body(_ITEMS),
            "responses": {"200": described_response("Appended.", model("Appended")), **_WRITE_REFUSED},
        },
    },
    "/threads/{thread_id}/data": {
        "parameters": [_THREAD],
        "get": {
            "summary": "The data of a thread, by key",
            "parameters": [_AFTER, *_CONDITIONS, SESSION],
            "responses": {
                "200": described_response("All data, or what fits into a page.", model("ThreadData"), headers=_ETAG),
                "304": {"description": "The data still has a data_version in If-None-Match.", "headers": _ETAG},
                **_CONFLICT,
                **_REFUSED,
            },
        },
        "patch": {
            "summary": "Write several keys",
            "description": "Members are keys and their new values, which replace the old ones; null deletes a key.",
            "parameters": [*_CONDITIONS, *_WRITING],
            "requestBody": _body({**_DATA, "minProperties": 1}),
            "responses": {"200": _CHANGED, **_CONFLICT, **_WRITE_REFUSED},
        },
    },
    "/threads/{thread_id}/data/{key}": {
        "parameters": [_THREAD, _KEY],
        "get": {
            "summary": "The value of a key",
            "parameters": [*_CONDITIONS, SESSION],
            "responses": {
                "200": described_response("The value.", {}, headers=_ETAG),
                "304": {
                    "description": "The data of the thread still has a data_version in If-None-Match.",
                    "headers": _ETAG,
                },
                **_CONFLICT,
                **_REFUSED,
                **_NO_KEY,
            },
        },
        "put": {
            "summary": "Write the value of a key",
            "parameters": [*_CONDITIONS, *_WRITING],
            "requestBody": _body({}),
            "responses": {"200": _CHANGED, **_CONFLICT, **_WRITE_REFUSED},
        },
        "delete": {
            "summary": "Delete a key",
            "parameters": [*_CONDITIONS, *_WRITING],
            "responses": {"200": _CHANGED, **_CONFLICT, **_WRITE_REFUSED, **_NO_KEY},
        },
    },
}
