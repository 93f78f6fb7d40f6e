"""What is refused before a request reaches a route: other hosts, pages of other sites, too large, without a token."""

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.http.calls import Calls, fail, render
from holdlog.adapters.operations.json import refusal_to_object
from holdlog.domain.refusals import HoldlogError

MAX_HEADERS: Final = 64 * 1024
"""Bytes of all headers."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
PROBES: Final = ("/healthz", "/readyz")
"""They reveal nothing; load balancers ask for them under any host name."""
PUBLIC: Final = (*PROBES, "/", "/openapi.json")
"""They need no token: what they return is the same for every store."""
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Edge:
    """ASGI middleware. A page in a user's browser can reach servers on loopback, also by a host name that it points
    there (DNS rebinding), so Host and Origin are checked. Routes find `Access` in `scope["access"]`. `limit`: bytes of
    a body."""

    def __init__(self, app: ASGIApp, calls: Calls, hosts: Collection[str], limit: int) -> None:
        self._app = app
        self._limit = limit
        self._calls = calls
        self._hosts = frozenset((*LOOPBACK, *(name.lower() for name in hosts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = [(name, text.strip(b" \t")) for name, text in scope["headers"]]  # httptools keeps blanks
        response = self._refuse(scope) or await self._authenticate(scope)
        with suppress(ClientDisconnect):  # while it sent a body: nobody reads a response
            await (response or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if sum(len(name) + len(text) for name, text in scope["headers"]) > MAX_HEADERS:
            return fail(431, f"headers: must have at most {MAX_HEADERS} bytes")
        if int(headers.get("content-length", "0")) > self._limit:
            return fail(413, f"body: must have at most {self._limit} bytes", {"connection": "close"})
        if scope["path"] not in PROBES and not self._allows(host, scope):
            return fail(421, "host: is not a name of this server; its operator can add it with --allowed-host")
        if origin is not None and origin.lower().partition("://")[2] != host:
            return fail(403, "origin: pages of other sites may not call this server")
        if not _is_plain(scope["raw_path"].decode("latin-1")):
            return fail(400, "path: must be UTF-8 without . and ..")
        return None

    def _allows(self, host: str, scope: Scope) -> bool:
        name = re.sub(r":\d+$", "", host)
        return name in self._hosts or host in self._hosts or name.strip("[]") == (scope.get("server") or ("",))[0]

    async def _authenticate(self, scope: Scope) -> Response | None:
        if scope["path"] in PUBLIC or (scope["path"], scope["method"]) == ("/token", "POST"):
            return None
        try:
            scope["access"] = await self._calls.authenticator.find_access(Headers(scope=scope))
        except HoldlogError as refusal:
            response = refusal_to_object(refusal)
            self._calls.metrics.count("authenticate", response)
            return render(response)
        if scope["access"] is None:
            return fail(401, "a valid token is required", {"www-authenticate": "Bearer"})
        return None


def _is_plain(path: str) -> bool:
    if "%" not in path and "." not in path:
        return path.isascii()
    try:
        segments = [unquote_to_bytes(part).decode() for part in path.split("/")]
    except UnicodeDecodeError:
        return False
    return _BROKEN.search(path) is None and {".", ".."}.isdisjoint(segments)
