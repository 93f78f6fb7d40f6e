"""Responses to pages of other origins that are allowed (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Send

METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
SENT: Final = (
    "accept, authorization, content-type, holdlog-session, idempotency-key, if-match, if-none-match, last-event-id,"
    " mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, x-agent, x-guard, x-token"
)
READ: Final = (
    "accept-patch, etag, holdlog-expires-at, holdlog-principal, holdlog-updated-at, holdlog-updated-by, location,"
    " mcp-session-id, retry-after, www-authenticate"
)
MAX_AGE: Final = "600"


def preflight(origin: str) -> Response:
    """The response that lists what a page may send."""
    allowed = {
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": SENT,
        "access-control-max-age": MAX_AGE,
    }
    return Response(status_code=204, headers=_allowing(origin) | allowed)


def open_to(origin: str, send: Send) -> Send:
    """Wrap `send` so that the page may read the responses. Cookies are never used: tokens arrive in a header."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            headers.update({"access-control-allow-origin": origin, "access-control-expose-headers": READ})
        await send(message)

    return sending


def _allowing(origin: str) -> dict[str, str]:
    return {"access-control-allow-origin": origin, "vary": "Origin"}
