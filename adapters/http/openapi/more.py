"""The routes of REST other than values, described by hand: claims, events, tokens."""

from collections.abc import Mapping
from typing import Final

from holdlog.adapters.http.openapi.parts import (
    AGENT,
    ANYBODY,
    BEGINNING,
    JSON,
    NAME,
    RESOURCE,
    SESSION,
    TEXT,
    Schema,
    described_response,
    limit,
    model,
    path,
    query,
    refusals,
)
from holdlog.projections.fold import EVENTS

_RESOURCE: Final = path("resource", "A path in the repository, or `custom:%2F%2Fname`", RESOURCE)
_AFTER: Final = query("after", "`next_after` of the previous page", BEGINNING)
_POSITION: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_EVENT: Final[Schema] = {
    "type": "object",
    "description": "With the fields of its kind.",
    "properties": {
        "position": _POSITION,
        "id": {"type": "string"},
        "stream": {"type": "string"},
        "version": {"type": "integer"},
        "kind": {"type": "string", "examples": ["ValueWritten", "ClaimGranted"]},
        "at": {"type": "string", "format": "date-time"},
        "by": {"type": "string"},
        "operation": {
            "type": "string",
            "description": "The operation of a write",
            "examples": ["set", "merge", "delete", "clear"],
        },
        "based_on": {"type": "integer", "description": "The version that the write expected"},
        "forced": {"const": True, "description": "The write accepted any version"},
        "guard": {
            "type": "array",
            "description": "The claims that the write relied on",
            "items": model("FencingConditionView"),
        },
    },
    "required": ["position", "id", "stream", "version", "kind", "at", "by"],
}
_PAGE: Final[Schema] = {
    "type": "object",
    "properties": {
        "status": {"const": "ok"},
        "events": {"type": "array", "items": _EVENT},
        "next_position": _POSITION,
        "bookmark": _POSITION,
    },
    "required": ["status", "events", "next_position", "bookmark"],
}
_KIND: Final = f"({'|'.join(['record', 'claim', 'agent', 'token', *EVENTS])})"
_KINDS: Final[Schema] = {"type": "string", "pattern": f"^{_KIND}(,{_KIND})*$"}
_EVENTS: Final[Schema] = {
    JSON: {"schema": _PAGE},
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "With Accept: text/event-stream; events with `id` = position, and bookmarks",
        }
    },
}
_WHO: Final[Schema] = {
    "type": "object",
    "properties": {
        "status": {"const": "ok"},
        "principal": {"type": "string", "description": "Absent if no token is required"},
        "allow": {"type": "array", "items": {"type": "string", "examples": ["write:build-*"]}},
        "space": {"type": "string"},
        "expires_at": {"type": "string", "format": "date-time"},
    },
    "required": ["status", "allow"],
}

MORE: Final[Mapping[str, Schema]] = {
    "/claims": {
        "get": {
            "summary": "Claims and queues",
            "description": "One snapshot of a page, ordered by resource.",
            "parameters": [
                query("agent", "Only of this agent and its sub-agents", AGENT),
                _AFTER,
                limit(1000),
                SESSION,
            ],
            "responses": {"200": described_response("A page of the board.", model("Board")), **refusals()},
        }
    },
    "/claims/{resource}": {
        "parameters": [_RESOURCE],
        "get": {
            "summary": "Who holds a resource",
            "parameters": [query("version", "Version of a grant; the response has `current`", _POSITION), SESSION],
            "responses": {
                "200": described_response("Available, or held.", {"anyOf": [model("Available"), model("Held")]}),
                **refusals(),
            },
        },
    },
    "/events": {
        "get": {
            "summary": "Events, in pages or as a stream",
            "description": "With `Accept: text/event-stream`, a stream from `Last-Event-ID` or `after`; "
            "without these, from now on.",
            "parameters": [
                query("after", "Only events above this position", _POSITION),
                query("namespace", "Only of values in this namespace", NAME),
                query("prefix", "Only of keys that start with this; requires namespace", BEGINNING),
                query("resource", "Only of claims that overlap this resource", RESOURCE),
                query("thread", "Only of this thread", NAME),
                query("agent", "Only what this agent or its sub-agents did", AGENT),
                query("kinds", "Only of these kinds, separated by commas, such as ValueWritten", _KINDS),
                query(
                    "wait",
                    "Seconds to wait for an event before an empty page is returned",
                    {"type": "number", "minimum": 0},
                ),
                limit(1000),
                SESSION,
            ],
            "responses": {"200": {"description": "A page, or the stream.", "content": _EVENTS}, **refusals()},
        }
    },
    "/token": {
        "get": {
            "summary": "The principal and grants of the token",
            "responses": {"200": described_response("The token itself is not returned.", _WHO), **refusals()},
        },
        "post": {
            "summary": "A new token with its own space",
            "description": "Only if the server was started with --open-tokens.",
            "security": ANYBODY,
            "requestBody": {
                "required": True,
                "content": {
                    "application/x-www-form-urlencoded": {
                        "schema": {
                            "type": "object",
                            "properties": {"token": {"const": "new"}},
                            "required": ["token"],
                            "additionalProperties": False,
                        }
                    }
                },
            },
            "responses": {"200": described_response("The token, shown once.", {"type": "string"}, TEXT), **refusals()},
        },
    },
}
