"""Rejects requests that are forbidden for every client: foreign Host or Origin, too large, malformed bytes. ASGI
middleware.

Host and Origin are checked because a page in a user's browser can reach servers on loopback, also by a name that it
points there (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning).
"""

from collections.abc import Collection, Iterable
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.http.answers import failed
from holdlog.adapters.http.options import HttpOptions

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
UNHOSTED: Final = frozenset({"/healthz", "/readyz"})
"""Paths that load balancers and orchestrators request under any host name; they reveal nothing."""
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
HEADERS_SENT: Final = (
    *("accept", "authorization", "content-type", "holdlog-session", "idempotency-key", "if-match", "if-none-match"),
    *("last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id"),
    *("x-agent", "x-guard", "x-token"),
)
"""Headers that pages of allowed origins may send."""
HEADERS_READ: Final = (
    *("accept-patch", "etag", "holdlog-expires-at", "holdlog-principal", "holdlog-updated-at", "holdlog-updated-by"),
    *("location", "mcp-session-id", "retry-after", "www-authenticate"),
)
PREFLIGHT_SECONDS: Final = 600
_REMEMBERED: Final = 256
_AT_MOST_ONE: Final = frozenset(
    {b"host", b"origin", b"content-length", b"authorization", b"x-token"}
    | {b"mcp-session-id", b"holdlog-session", b"idempotency-key", b"x-agent"}
)
_TOKENS: Final = frozenset({b"authorization", b"x-token"})
"""Headers that may be repeated with the same token: no contradiction."""


class Guards:
    """Responds with 400, 403, 413 and 421; passes all other requests to `app`, with at most `max_body_bytes` each."""

    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self._app = app
        self._hosts = AllowedHosts(options.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in options.allowed_origins)
        self._max_body = options.max_body_bytes
        self._counted = RequestBodyLimitMiddleware(app, self._max_body)
        # Cookies are never used: tokens arrive in a header.
        self._shared = partial(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_methods=METHODS,
            allow_headers=HEADERS_SENT,
            expose_headers=HEADERS_READ,
            max_age=PREFLIGHT_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = _headers(scope["headers"])
        if wrong := _wrong_bytes(scope) or _wrong_headers(scope, found):
            await failed(wrong, 400, _CLOSE)(scope, receive, send)
            return
        host, origin = found.get(b"host", b"").decode("latin-1").lower(), found.get(b"origin")
        if scope["path"] not in UNHOSTED and not self._hosts.has(host, scope.get("server")):
            message = "the Host header is not allowed; the operator can allow it with --allowed-host"
            await failed(message, 421, _CLOSE)(scope, receive, send)
            return
        source = None if origin is None else origin.decode("latin-1").lower()
        if source is not None and (source in self._origins or ("*" in self._origins and source != "null")):
            await self._shared(self._sized(found))(scope, receive, send)
        elif _is_foreign(found) if source is None else source.partition("://")[2] != host or not host:
            message = "the page's origin is not allowed; the operator can allow it with --allowed-origin"
            await failed(message, 403, _CLOSE)(scope, receive, send)
        else:
            await self._sized(found)(scope, receive, send)

    def _sized(self, headers: dict[bytes, bytes]) -> ASGIApp:
        """The application for a body of this size."""
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._max_body:
            return too_large(self._max_body)
        return self._counted if length is None and b"transfer-encoding" in headers else self._app


def too_large(most: int) -> Response:
    return failed(f"the body may have at most {most} bytes (--max-body-bytes)", 413, _CLOSE)


class AllowedHosts:
    """The host names of a server: loopback, the address that the connection was made to, and `allowed`: a name with or
    without a port, `*.example.com` for all subdomains, `*` for any."""

    def __init__(self, allowed: Iterable[str]) -> None:
        names = [name.lower() for name in allowed]
        self._all = "*" in names
        self._exact = LOOPBACK.union(names)
        self._below = tuple(name[1:] for name in names if name.startswith("*."))
        self._known: set[str] = set()

    def has(self, host: str, server: tuple[str, int | None] | None) -> bool:
        """Whether the host is allowed. `host`: in lower case, with or without a port. An address, unlike a name, cannot
        be pointed elsewhere."""
        if host in self._known:
            return True
        name, port = _split(host)
        if not name:
            return self._all and not host
        if self._all or name in self._exact or host in self._exact or name.endswith(self._below or ("\0",)):
            if len(self._known) < _REMEMBERED:
                self._known.add(host)
            return True
        return server is not None and _same_address(name, server[0]) and port in ("", str(server[1]))


_CLOSE: Final = {"connection": "close"}


def _headers(headers: Collection[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found = dict(headers)
    if len(found) != len(headers):
        names = [name for name, _ in headers]
        for name in _AT_MOST_ONE.intersection(found):
            if names.count(name) > 1 and not (name in _TOKENS and len({it for it in headers if it[0] == name}) == 1):
                found[b""] = name
    return found


def _wrong_headers(scope: Scope, found: dict[bytes, bytes]) -> str | None:
    if b"" in found:
        return f"the header {found[b''].decode()} must be sent only once"
    if b"host" not in found and scope["path"] not in UNHOSTED:
        return "the header host is missing"
    if not found.get(b"content-length", b"0").isdigit():
        return "the header content-length must be a number"
    return None


def _wrong_bytes(scope: Scope) -> str | None:
    """The reason to reject a path or query that is not UTF-8, contains NUL or climbs: programs would read it
    differently."""
    path, query = scope.get("raw_path") or b"", scope["query_string"]
    if b"%" in path or not path.isascii():
        try:
            text = unquote_to_bytes(path).decode()
        except UnicodeDecodeError:
            return "the path is not UTF-8"
        if "\0" in text:
            return "the path contains NUL"
    else:
        text = scope["path"]
    if not {".", ".."}.isdisjoint(text.replace("\\", "/").split("/")):
        return "the path must not contain the segments . and .."
    if b"%" in query or not query.isascii():
        try:
            if "\0" in unquote_to_bytes(query).decode():
                return "the query contains NUL"
        except UnicodeDecodeError:
            return "the query is not UTF-8"
    return None


def _is_foreign(found: dict[bytes, bytes]) -> bool:
    """Whether another site's page fetches this without an Origin header, such as an image:
    https://w3.org/TR/fetch-metadata"""
    site = found.get(b"sec-fetch-site")
    return site in (b"cross-site", b"same-site") and found.get(b"sec-fetch-mode") != b"navigate"


def _split(host: str) -> tuple[str, str]:
    """The name, with its brackets, and the port; two empty texts for an invalid host."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host, ""
    if not port.isdigit() or (":" in name and not name.endswith("]")):
        return "", ""
    return name, port


def _same_address(name: str, own: str) -> bool:
    try:
        given, here = ip_address(name.strip("[]")), ip_address(own.partition("%")[0])
    except ValueError:
        return False
    return given == here or getattr(here, "ipv4_mapped", None) == given
