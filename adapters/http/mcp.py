"""MCP over HTTP, at one path for both eras. The SDK serves 2026-07-28, whose requests stand alone. Its sessions of the
eras before live in one process, so the requests of those are served here, each alone, too: a session is only a name."""

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import anyio
from fastmcp.server.dependencies import get_context
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data, serve_one
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    HEADER_MISMATCH,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdlog.adapters.engine.conversations import name_session
from holdlog.adapters.http.calls import SAFE, Calls, Cancellable, fail
from holdlog.adapters.http.routes import HEADERS
from holdlog.adapters.mcp.lines import Refused, read_message
from holdlog.adapters.mcp.tools import ToolServer, read_labels
from holdlog.adapters.operations.base import Operation
from holdlog.adapters.operations.json import Object, refusal_to_object
from holdlog.domain.refusals import HoldlogError

VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
PING_EVERY: Final = 15.0
"""Seconds of silence, after which a stream has a comment: proxies close silent ones after a minute."""
_PING: Final = b": ping\n\n"
_STREAM: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_CANCELLED: Final = ErrorData(code=-32800, message="the request was cancelled")
_MISMATCH: Final = ErrorData(code=HEADER_MISMATCH, message=f"{VERSION}: is not the version in _meta of the request")


def serve_mcp(calls: Calls, path: str, tools: tuple[tuple[str, ...], str], limit: int) -> Starlette:
    """The application of MCP. `tools`: their groups, and the first part of their names. `limit`: bytes of a message."""
    groups, prefix = tools
    surface = calls.make_surface(prefix)

    async def respond(kind: type[Operation], arguments: Any) -> Object:
        context: Any = get_context().request_context
        request: Request = context.request
        access = request.scope["access"]
        try:
            session, request_id, task = read_labels(context.meta or {})
            own = request.headers.get(SESSION)
            named, repeated, named_task = (request.headers.get(name) for name in HEADERS)
            session = session or named or (name_session(own) if own else None)
            caller = calls.name_caller(access, session, request_id or repeated, task or named_task)
        except HoldlogError as refusal:
            return refusal_to_object(refusal)
        return await calls.respond(kind, arguments, caller, access, surface)

    endpoint = Endpoint(ToolServer(groups, prefix, respond), limit)
    path = path.rstrip("/")
    return Starlette(
        routes=[Route(path, endpoint), Route(f"{path}/", endpoint)], lifespan=lambda _: endpoint.sessionless.run()
    )


class Endpoint:
    """An ASGI application: a class, so that `Route` leaves its requests as they are."""

    def __init__(self, server: ToolServer, limit: int) -> None:
        self._low = server._mcp_server
        self._limit = limit
        self.sessionless = StreamableHTTPSessionManager(self._low, stateless=True, max_request_body_size=limit)
        self._open: dict[tuple[str | None, str | None, str | int], Exchange] = {}
        """Calls that run, by principal, session and id, so that their clients can cancel them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        version = request.headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
        has_sessions = version in HANDSHAKE_PROTOCOL_VERSIONS
        accepted = check_accept_headers(request)
        if scope["method"] != "POST":
            await fail(405, "method: must be POST", {"allow": "POST"})(scope, receive, send)
        elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            await fail(415, "content-type: must be application/json")(scope, receive, send)
        elif not (any(accepted) if has_sessions else all(accepted)):
            await fail(406, "accept: must be application/json, text/event-stream")(scope, receive, send)
        elif not has_sessions:
            await self.sessionless.handle_request(scope, receive, send)
        else:
            await self._serve(request, version, send)

    async def _serve(self, request: Request, version: str, send: Send) -> None:
        message = read_message(await request.body(), self._limit)
        if isinstance(message, JSONRPCRequest):
            exchange = Exchange(message, request, send)
            if message.method != "initialize" and _has_envelope(message):
                await exchange.end(_MISMATCH, 400)
            else:
                await self._carry_out(message, exchange, version)
            return
        if isinstance(message, Refused):
            response = Response(message.response or b"", 400, SAFE, "application/json")
        else:
            self._notice(message, request)
            response = Response(status_code=202)
        await response(request.scope, request.receive, send)

    async def _carry_out(self, message: JSONRPCRequest, exchange: "Exchange", version: str) -> None:
        """Respond to a request, which its client may cancel."""
        result: dict[str, Any] | ErrorData = _CANCELLED
        call = _name_call(exchange.request, message.id)
        self._open[call] = exchange
        try:
            with exchange:
                connection = Connection.from_envelope(version, None, None)
                result = await serve_one(
                    self._low, exchange, message.method, message.params, connection=connection, lifespan_state=None
                )
        except Exception as error:
            result = modern_error_data(error)
        finally:
            if self._open.get(call) is exchange:
                del self._open[call]
        if not exchange.is_gone:
            await exchange.end(result)

    def _notice(self, message: JSONRPCMessage, request: Request) -> None:
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            identity = (message.params or {}).get("requestId")
            call = _name_call(request, identity) if isinstance(identity, str | int) else None
            if call is not None and call[1] is not None and call in self._open:
                self._open[call].cancel()


class Exchange(Cancellable):
    """A request up to 2025-11-25 and its response: JSON, or a stream once anything else is sent before it. It is what
    the SDK calls a DispatchContext."""

    can_send_request = False

    def __init__(self, message: JSONRPCRequest, request: Request, send: Send) -> None:
        super().__init__(request.receive, PING_EVERY)
        self.request = request
        self.request_id = message.id
        self.transport = TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers)
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self.cancel_requested = anyio.Event()
        self._token = progress_token_from_params(message.params)
        self._accepts_json, self._accepts_stream = check_accept_headers(request)
        self._headers = {SESSION: secrets.token_urlsafe(24)} if message.method == "initialize" else {}
        self._send = send
        self._has_begun = False

    async def end(self, result: dict[str, Any] | ErrorData, code: int = 200) -> None:
        """Send the response."""
        is_error = isinstance(result, ErrorData)
        part = {"error": result.model_dump(exclude_none=True)} if isinstance(result, ErrorData) else {"result": result}
        text = _to_text({"jsonrpc": "2.0", "id": self.request_id} | part)
        if self._has_begun or not self._accepts_json:
            await self._write(b"event: message\ndata: " + text + b"\n\n", is_last=True)
            return
        headers = SAFE if is_error else SAFE | self._headers
        await Response(text, code, headers, "application/json")(self.request.scope, self.request.receive, self._send)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        text = _to_text({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": dict(params)}))
        await self._write(b"event: message\ndata: " + text + b"\n\n")

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is not None:
            params = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {name: it for name, it in params.items() if it is not None})

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def ping(self) -> None:
        await self._write(_PING)

    async def _write(self, data: bytes, is_last: bool = False) -> None:
        if not self._accepts_stream and not is_last:
            return
        if not self._has_begun:
            self._has_begun = True
            headers = [(name.encode(), text.encode()) for name, text in (_STREAM | self._headers).items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})


def _name_call(request: Request, identity: str | int) -> tuple[str | None, str | None, str | int]:
    return request.scope["access"].principal, request.headers.get(SESSION), identity


def _has_envelope(message: JSONRPCRequest) -> bool:
    meta = (message.params or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


def _to_text(message: Object) -> bytes:
    """ASCII: some clients end a line of a stream at U+2028, too."""
    return json.dumps(message, separators=(",", ":")).encode()
