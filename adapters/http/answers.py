"""Refusals and results as HTTP responses: the one place that maps them to status codes."""

import json
import math
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdlog.adapters.api.threads import responses as thread_responses
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.responses import Result
from holdlog.domain import refusals
from holdlog.domain.refusals import HoldlogError

CONFLICT: Final = (
    'The value is now at version {0}. Adapt your request to actual_value, then repeat it with If-Match: "{0}".'
)
GONE: Final = (
    "There is no value now. GET the key with ?history=1 to see what happened to it, then decide whether your change"
    " still applies."
)
DATA_CONFLICT: Final = (
    "The thread's data changed: see changed_keys. GET the data, then repeat your request with its ETag in If-Match."
)
NO_VALUE: Final = "There is no value under this key now. GET /kv/<group> to list the keys of the group."
NO_THREAD: Final = "Nobody started this thread. Check its spelling, or POST /threads with this thread_id."
NO_KEY: Final = "The thread's data has no such key now. GET /threads/<thread_id>/data to list its data."

SAFE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, SAFE | (headers or {}), "application/json")


def answer(result: Result, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return json_response(body_of(result), status, headers)


def body_of(result: Result) -> dict[str, Any]:
    """The response as JSON, with the hint in terms of requests instead of tools."""
    body = result.body()
    match result:
        case responses.Conflict(actual_version=version, operation=None):
            body["hint"] = CONFLICT.format(version) if version else GONE
        case thread_responses.DataConflict():
            body["hint"] = DATA_CONFLICT
        case responses.NotFound(as_of=None):
            body["hint"] = NO_VALUE
        case thread_responses.ThreadNotFound(key=key):
            body["hint"] = NO_THREAD if key is None else NO_KEY
        case _:
            pass
    return body


def failed(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Describe a refusal in one line, the same on every surface, without stored values."""
    return answer(responses.Failed(message=message), status, headers)


def raw(message: str, status: int, headers: dict[str, str] | None = None) -> bytes:
    """Like `failed`, but as the bytes of a whole HTTP response, for a connection that closes after it."""
    response = failed(message, status, {"connection": "close"} | (headers or {}))
    lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
    lines += [b"%s: %s" % header for header in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


async def refused(request: Request, error: Exception) -> Response:
    """The response to a refusal that a route raised."""
    assert isinstance(error, HoldlogError)
    if isinstance(error, refusals.ReusedError):
        return failed("Idempotency-Key: was already used for a different request; choose a new one", error.http_status)
    headers = {}
    if isinstance(error, refusals.UnavailableError):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    calls = request.scope["state"]["served"].requests
    return answer(calls.refused(error), error.http_status, headers)
