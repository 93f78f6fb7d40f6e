"""MCP over Streamable HTTP, for both eras of the protocol."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from fastmcp.server.http import FastMCPStreamableHTTPSessionManager, StreamableHTTPASGIApp, set_http_request
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class _Endpoint:
    """An ASGI application (a class, so that Starlette's Route takes it for one)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = set_transport("streamable-http")
        try:
            with set_http_request(Request(scope)):
                await self._app(scope, receive, send)
        finally:
            reset_transport(token)


def mcp_over_http(server: FastMCP[Any]) -> tuple[ASGIApp, Callable[[], AbstractAsyncContextManager[None]]]:
    """The endpoint, and what must be running while it serves."""
    app = StreamableHTTPASGIApp(None)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        app.session_manager = FastMCPStreamableHTTPSessionManager(
            app=server._mcp_server,
            # Host and Origin are checked for all routes alike, before.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with app.session_manager.run():
            yield

    return _Endpoint(app), running
