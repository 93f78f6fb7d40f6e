"""Routes by the raw path, and the contents of a request to one of them."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from holdlog.adapters.api.values.responses import Result
from holdlog.adapters.http.answers import body_of, json_response
from holdlog.adapters.http.authentication import context_of
from holdlog.adapters.http.url_parameters import decoded, fields, unknown
from holdlog.adapters.http.values.key_value_request import KeyValueRequest
from holdlog.adapters.http.values.request_bodies import json_body
from holdlog.domain.refusals import InvalidError

SAFE: Final = {"x-content-type-options": "nosniff"}

Handler = Callable[[KeyValueRequest], Awaitable[Response]]


class RawRoute(Route):
    """Splits the path at literal slashes: an encoded one is part of a name. `handlers`: by method."""

    def __init__(self, path: str, **handlers: Handler) -> None:
        async def endpoint(request: Request) -> Response:
            handler = handlers.get("GET" if request.method == "HEAD" else request.method)
            assert handler is not None
            return await handler(_request(request))

        super().__init__(path, endpoint, methods=list(handlers))
        self._parts = path[1:].split("/")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        given = _raw(scope)
        if len(given) != len(self._parts) or any(
            not part.startswith("{") and unquote(text) != part for part, text in zip(self._parts, given, strict=True)
        ):
            return Match.NONE, {}
        names = [text for part, text in zip(self._parts, given, strict=True) if part.startswith("{")]
        found = {"endpoint": self.endpoint, "path_params": {"names": names}}
        return (Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL), found


def _raw(scope: Scope) -> list[str]:
    raw: bytes = scope["raw_path"]
    return raw.decode("latin-1").removeprefix(scope.get("root_path", ""))[1:].split("/")


def _request(request: Request) -> KeyValueRequest:
    """Parse the request. Raises InvalidError."""
    names = [decoded(name) for name in request.path_params["names"]]
    found = fields(request.scope)
    if b"x-guard" in found:
        raise InvalidError("X-Guard: only works for values under /kv; leave it out")
    return KeyValueRequest(request.scope, request.receive, context_of(request), found, names)


async def object_of(request: KeyValueRequest, *known: str) -> dict[str, Any]:
    """The body, a JSON object with only these members. Raises InvalidError, HTTPException (415)."""
    found = await value_of(request)
    if not isinstance(found, dict):
        raise InvalidError("body: must be a JSON object")
    for name in found:
        if known and name not in known:
            raise InvalidError(f"body: {unknown(name, known, 'a member')}")
    return found


async def value_of(request: KeyValueRequest) -> Any:
    """The body as JSON. Raises InvalidError, HTTPException (415)."""
    return json_body(await request.body(), request.fields)


def answer(result: Result, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return json_response(body_of(result), status, SAFE | (headers or {}))
