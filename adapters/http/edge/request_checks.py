"""What no request may do, whoever sends it: foreign Host or Origin, too much, bytes that mean nothing. ASGI middleware.

Host and Origin are checked because a page in somebody's browser can reach what listens on loopback, also by a name that
it lets point there (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning).
"""

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdlog.adapters.http.answers import failed
from holdlog.adapters.http.edge.cors import open_to, preflight
from holdlog.adapters.http.options import HttpOptions

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
UNHOSTED: Final = frozenset({"/healthz", "/readyz"})
"""Asked for by whatever name or address balancers and orchestrators use; they tell nothing."""
_REMEMBERED: Final = 256
_AT_MOST_ONE: Final = frozenset(
    {b"host", b"origin", b"content-length", b"authorization", b"x-token"}
    | {b"mcp-session-id", b"holdlog-session", b"idempotency-key", b"x-agent"}
)
_TOKENS: Final = frozenset({b"authorization", b"x-token"})
"""The same token twice is no contradiction."""


class Guards:
    """Answers 400, 403, 413 and 421 by itself; `app` gets the rest, with at most `max_body_bytes` each."""

    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self._app = app
        self._hosts = AllowedHosts(options.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in options.allowed_origins)
        self._max_body = options.max_body_bytes

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
            message = "this server is not known by that name; --allowed-host names it"
            await failed(message, 421, _CLOSE)(scope, receive, send)
            return
        if origin is not None:
            source = origin.decode("latin-1").lower()
            if source in self._origins or ("*" in self._origins and source != "null"):
                if scope["method"] == "OPTIONS" and b"access-control-request-method" in found:
                    await preflight(source)(scope, receive, send)
                    return
                send = open_to(source, send)
            elif source.partition("://")[2] != host or not host:
                await failed("this page may not call; --allowed-origin lets it", 403, _CLOSE)(scope, receive, send)
                return
        elif _is_foreign(found):
            await failed("this page may not call; --allowed-origin lets it", 403, _CLOSE)(scope, receive, send)
            return
        length = found.get(b"content-length")
        if length is not None and int(length) > self._max_body:
            await failed(self._too_large, 413, _CLOSE)(scope, receive, send)
        elif length is None and b"transfer-encoding" in found:
            await self._counted(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @property
    def _too_large(self) -> str:
        return f"the body may have {self._max_body} bytes at most (--max-body-bytes)"

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As a body of unknown length comes, so it is counted; with too much the client is answered at once, and the
        application learns that the client is gone."""
        left = self._max_body
        started = refused = False

        async def counting() -> Message:
            nonlocal left, refused
            message = {"type": "http.disconnect"} if refused else await receive()
            left -= len(message.get("body", b""))
            if left < 0 and not refused:
                refused = True
                if not started:
                    await failed(self._too_large, 413, _CLOSE)(scope, receive, send)
                return {"type": "http.disconnect"}
            return message

        async def sending(message: Message) -> None:
            nonlocal started
            if not refused:
                started = True
                await send(message)

        try:
            await self._app(scope, counting, sending)
        except Exception:
            if not refused:
                raise


class AllowedHosts:
    """The names by which a server is called: loopback, the very address that a connection came to, and `allowed`: a
    name with or without a port, `*.example.com` for all below it, `*` for any."""

    def __init__(self, allowed: Iterable[str]) -> None:
        names = [name.lower() for name in allowed]
        self._all = "*" in names
        self._exact = LOOPBACK.union(names)
        self._below = tuple(name[1:] for name in names if name.startswith("*."))
        self._known: set[str] = set()

    def has(self, host: str, server: tuple[str, int | None] | None) -> bool:
        """`host`: in lower case, with or without a port. An address cannot point elsewhere, as a name can."""
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
        return f"the header {found[b''].decode()} may stand there once"
    if b"host" not in found and scope["path"] not in UNHOSTED:
        return "the header host is missing"
    if not found.get(b"content-length", b"0").isdigit():
        return "the header content-length must be a number"
    return None


def _wrong_bytes(scope: Scope) -> str | None:
    """A path or query that is no UTF-8, holds NUL, or climbs: it would be read in one way here and in another there."""
    path, query = scope.get("raw_path") or b"", scope["query_string"]
    if b"%" in path or not path.isascii():
        try:
            text = unquote_to_bytes(path).decode()
        except UnicodeDecodeError:
            return "the path is not UTF-8"
        if "\0" in text:
            return "the path holds NUL"
    else:
        text = scope["path"]
    if not {".", ".."}.isdisjoint(text.replace("\\", "/").split("/")):
        return "the path may not have the parts . and .."
    if b"%" in query or not query.isascii():
        try:
            if "\0" in unquote_to_bytes(query).decode():
                return "the query holds NUL"
        except UnicodeDecodeError:
            return "the query is not UTF-8"
    return None


def _is_foreign(found: dict[bytes, bytes]) -> bool:
    """Whether another site's page fetches this without saying its origin, as for an image: https://w3.org/TR/fetch-metadata"""
    site = found.get(b"sec-fetch-site")
    return site in (b"cross-site", b"same-site") and found.get(b"sec-fetch-mode") != b"navigate"


def _split(host: str) -> tuple[str, str]:
    """The name, with its brackets, and the port; two empty texts for what is neither."""
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
