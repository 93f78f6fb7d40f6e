"""MCP over Streamable HTTP at one address: 2026-07-28 and the versions before it, the same on every replica.

The SDK's own transports keep a session and four tasks per client or call, miss dropped connections, and respond to bad
bodies inconsistently. Here the SDK's kernel serves each request where it arrives.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, serve_one
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdlog.adapters.mcp.calling import MCP_SESSION
from holdlog.adapters.mcp.http.exchange import LISTEN, Exchange, answered, refused
from holdlog.adapters.mcp.http.reply import Reply
from holdlog.adapters.mcp.http.sessions import HttpSessions, Key
from holdlog.adapters.mcp.http.stream import stream
from holdlog.adapters.mcp.reading import Unreadable, read_message
from holdlog.adapters.mcp.salvage import answer, for_agent
from holdlog.adapters.mcp.server import quiet_framework
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.refusals import HoldlogError

VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"

_JSON: Final = frozenset({"application/json", "application/*", "*/*"})
_STREAM: Final = frozenset({"text/event-stream", "text/*", "*/*"})
_OF_SESSION: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})
_SESSION_ENDED: Final = "this session has ended; start a new one with initialize"
_log = logging.getLogger("holdlog")
_NO_SESSION: Final = "requires a session: send initialize, then pass its Mcp-Session-Id with every request"


class Endpoint:
    """An ASGI application (a class, so that Starlette's Route accepts it as one). Every request finds its
    `RequestContext` in `scope["state"]["served"]`. The context `running` must be open while it serves."""

    def __init__(self, server: FastMCP[Any]) -> None:
        self.sessions = HttpSessions()
        self._low = server._mcp_server
        self._lifespan: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        quiet_framework()
        async with self._low.lifespan(self._low) as self._lifespan:
            try:
                yield
            finally:
                await self.sessions.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = set_transport("streamable-http")
        try:
            headers = _headers(scope)
            modern = headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION) not in HANDSHAKE_PROTOCOL_VERSIONS
            match scope["method"]:
                case "POST":
                    await self._post(scope, headers, modern, receive, send)
                case "GET" if not modern and SESSION in headers:
                    await self._get(scope, headers, receive, send)
                case "DELETE" if not modern and SESSION in headers:
                    await self._delete(scope, headers[SESSION], send)
                case _:
                    await Reply(send).nothing(405, {"allow": "POST"})
        finally:
            reset_transport(token)

    # --- POST

    async def _post(self, scope: Scope, headers: dict[str, str], modern: bool, receive: Receive, send: Send) -> None:
        reply = Reply(send, *_accepted(headers.get("accept")))
        body = await Request(scope, receive).body()
        if not (reply.json or reply.streams):
            await _refuse(reply, 406, "Accept must allow application/json or text/event-stream")
        elif headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            await _refuse(reply, 415, "Content-Type must be application/json")
        elif isinstance(message := read_message(body), Unreadable):
            status = 200 if for_agent(*message) else 400
            await reply.end(answer(*message).rstrip(b"\n"), status)
        elif isinstance(message, JSONRPCRequest):
            exchange = Exchange(message, scope, headers, receive, reply)
            if modern or (_has_envelope(message) and message.method != "initialize"):
                await self._modern(message, scope, headers, exchange, reply)
            else:
                await self._legacy(message, scope, headers, exchange, reply)
        elif modern:
            await self._modern_notification(message, headers, reply)
        else:
            self._notified(message, scope, headers)
            await reply.nothing(202)

    async def _modern(
        self, message: JSONRPCRequest, scope: Scope, headers: dict[str, str], exchange: Exchange, reply: Reply
    ) -> None:
        """Serve a request of 2026-07-28: its envelope and its headers both describe it fully."""
        if message.method == LISTEN and not reply.streams:
            await _refuse(reply, 406, "Accept must allow text/event-stream", message.id)
            return
        twice = find_duplicated_routing_header((name.decode("latin-1"), "") for name, _ in scope["headers"])
        if twice is not None:
            await _refuse(reply, 400, f"{twice} header must be sent only once", message.id, HEADER_MISMATCH)
            return
        route = classify_inbound_request({"method": message.method, "params": message.params}, headers=headers)
        if isinstance(route, InboundLadderRejection):
            await _reject(reply, route, message.id)
            return
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        outcome = await exchange.outcome(partial(self._dispatched, exchange, message, connection))
        if outcome is None:
            await reply.over()
        else:
            code = outcome.code if isinstance(outcome, ErrorData) else 0
            await reply.end(answered(message.id, outcome), ERROR_CODE_HTTP_STATUS.get(code, 200))

    async def _modern_notification(self, message: JSONRPCMessage, headers: dict[str, str], reply: Reply) -> None:
        """Handle a message that is not a request: this version defines no client notifications, and asks the client
        nothing."""
        if not isinstance(message, JSONRPCNotification):
            await _refuse(reply, 400, "this version of the protocol does not send requests to clients")
        elif (unknown := unsupported_protocol_version_rejection(headers[VERSION])) is not None:
            await _reject(reply, unknown, None)
        else:
            await reply.nothing(202)

    async def _delete(self, scope: Scope, session: str, send: Send) -> None:
        """End the session at the client's request; its claims last as long as their leases."""
        context: RequestContext = scope["state"]["served"]
        self.sessions.end(_key(scope, session))
        ended = context.engine.identity.session("mcp", session)
        try:
            await context.engine.end_session(context.caller.model_copy(update={"session": ended}))
        except HoldlogError as error:  # its leases expire
            _log.warning("could not record the end of a session: %s", error)
        await Reply(send).nothing(200)

    async def _legacy(
        self, message: JSONRPCRequest, scope: Scope, headers: dict[str, str], exchange: Exchange, reply: Reply
    ) -> None:
        """Serve a request up to 2025-11-25, whether this replica knows the session or not."""
        key = _key(scope, headers[SESSION]) if SESSION in headers else None
        if key is not None:
            scope["state"][MCP_SESSION] = headers[SESSION]
        version = headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
        given: dict[str, str] | None = None
        if message.method == "initialize":
            given = {SESSION: self.sessions.new()}
        elif key is not None and self.sessions.ended(key):
            await _refuse(reply, 404, _SESSION_ENDED, message.id)
            return
        elif message.method in _OF_SESSION:
            await self._of_session(message, key, version, exchange, reply)
            return
        connection = Connection.from_envelope(version, None, None)
        with self.sessions.running(key, exchange):
            outcome = await exchange.outcome(partial(self._dispatched, exchange, message, connection))
        if outcome is not None:
            await reply.end(answered(message.id, outcome), 200, None if isinstance(outcome, ErrorData) else given)

    async def _of_session(
        self, message: JSONRPCRequest, key: Key | None, version: str, exchange: Exchange, reply: Reply
    ) -> None:
        if key is None:
            await _refuse(reply, 400, f"{message.method} {_NO_SESSION}", message.id)
            return
        with self.sessions.use(key) as session:
            if session is None:
                await _refuse(reply, 404, _SESSION_ENDED, message.id)
                return
            session.connection.protocol_version = version
            session.subscribed = True
            runner = ServerRunner(self._low, session.connection, self._lifespan)
            outcome = await exchange.outcome(partial(runner.on_request, exchange, message.method, message.params))
            if outcome is not None:
                await reply.end(answered(message.id, outcome))

    def _notified(self, message: JSONRPCMessage, scope: Scope, headers: dict[str, str]) -> None:
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            identity = (message.params or {}).get("requestId")
            if isinstance(identity, str | int) and SESSION in headers:
                self.sessions.cancel(_key(scope, headers[SESSION]), identity)

    async def _dispatched(self, exchange: Exchange, message: JSONRPCRequest, connection: Connection) -> dict[str, Any]:
        return await serve_one(
            self._low,
            exchange,
            message.method,
            message.params,
            connection=connection,
            lifespan_state=self._lifespan,
        )

    # --- GET

    async def _get(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        if not _accepted(headers.get("accept"))[1]:
            await _refuse(Reply(send), 406, "Accept must allow text/event-stream")
            return
        context: RequestContext = scope["state"]["served"]
        caller = context.engine.identity.session("mcp", headers[SESSION])
        request = context.engine.lease_maintenance.request_of(context.caller.principal, caller)
        with self.sessions.use(_key(scope, headers[SESSION])) as session, request:
            if session is None:
                await _refuse(Reply(send), 404, _SESSION_ENDED)
                return
            await stream(session, {SESSION: headers[SESSION]}, receive, send, context.still)


def _headers(scope: Scope) -> dict[str, str]:
    # Some parsers keep the white space around a value, which RFC 9110 excludes.
    found = {name.decode("latin-1"): value.decode("latin-1").strip(" \t") for name, value in scope["headers"]}
    if not found.get(SESSION, "-"):
        del found[SESSION]  # two clients without an id do not share a session
    return found


def _key(scope: Scope, session: str) -> Key:
    return scope["state"]["served"].caller.principal, session


def _accepted(accept: str | None) -> tuple[bool, bool]:
    """Whether a client accepts JSON, and whether it accepts a stream."""
    kinds = {kind.partition(";")[0].strip().lower() for kind in (accept or "*/*").split(",")}
    return bool(kinds & _JSON), bool(kinds & _STREAM)


def _has_envelope(message: JSONRPCRequest) -> bool:
    meta = (message.params or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


async def _refuse(
    reply: Reply, status: int, why: str, identity: str | int | None = None, code: int = INVALID_REQUEST
) -> None:
    await reply.end(refused(identity, ErrorData(code=code, message=why)), status)


async def _reject(reply: Reply, rejection: InboundLadderRejection, identity: str | int | None) -> None:
    error = ErrorData(code=rejection.code, message=rejection.message, data=rejection.data)
    await reply.end(refused(identity, error), ERROR_CODE_HTTP_STATUS.get(rejection.code, 400))
