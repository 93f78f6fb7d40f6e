"""The application: its routes, and what every request goes through first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdlog.adapters.http import events
from holdlog.adapters.http.answers import json_response, refused
from holdlog.adapters.http.authentication import Authentication, Verifier
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.mcp.http import mcp_over_http
from holdlog.adapters.spaces import Spaces
from holdlog.domain.refusals import HoldlogError


def build_app(mcp: FastMCP[Any], spaces: Spaces, verifier: Verifier | None, options: HttpOptions) -> ASGIApp:
    """`mcp`: a server built without a local store. Opens nothing; `spaces` are closed when the application ends."""
    endpoint, running = mcp_over_http(mcp)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with running():
            yield
        await spaces.close()

    return Starlette(
        routes=[
            Route(options.path, endpoint, methods=["GET", "POST", "DELETE"]),
            Route("/healthz", _healthz),
            *events.routes,
        ],
        middleware=[Middleware(Authentication, spaces=spaces, verifier=verifier)],
        exception_handlers={HoldlogError: refused},
        lifespan=lifespan,
    )


async def _healthz(request: Request) -> Response:
    return json_response({"status": "ok"})
