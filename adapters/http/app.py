"""The application: its routes, and what every request goes through first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from holdlog.adapters.http import page
from holdlog.adapters.http.answers import failed, json_response, refused
from holdlog.adapters.http.authentication import Authentication, Verifier
from holdlog.adapters.http.ending import Ending
from holdlog.adapters.http.guards import Guards
from holdlog.adapters.http.limits import Limits
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.mcp.http import mcp_over_http
from holdlog.adapters.spaces import Spaces
from holdlog.domain.refusals import HoldlogError


def build_app(
    mcp: FastMCP[Any], spaces: Spaces, verifier: Verifier | None, options: HttpOptions, ending: Ending
) -> ASGIApp:
    """`mcp`: a server built without a local store. Opens nothing; `spaces` are closed when the application ends.
    Routes find `options`, `spaces` and `ending` in `request.app.state`."""
    endpoint, running = mcp_over_http(mcp)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with running():
            yield
        await spaces.close()

    app = Starlette(
        routes=[
            Route(options.path, endpoint, methods=["GET", "POST", "DELETE"]),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
            *page.routes,
        ],
        exception_handlers={
            HoldlogError: refused,
            HTTPException: _no_route,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.options, app.state.spaces, app.state.ending = options, spaces, ending
    # From the inside out: what comes last is asked first.
    guarded: ASGIApp = Limits(app, options)
    guarded = Authentication(guarded, spaces, verifier)
    return Guards(guarded, options)


async def _healthz(request: Request) -> Response:
    return json_response({"status": "ok"})


async def _readyz(request: Request) -> Response:
    if request.app.state.ending.began:
        return failed("this server is about to end", 503, {"retry-after": "1"})
    return json_response({"status": "ok"})


async def _no_route(request: Request, error: Exception) -> Response:
    """404 and 405, with all methods that the path has."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return failed("there is nothing at this path", 404)
    if error.status_code == 405:
        methods = set[str]()
        for route in request.app.routes:
            if route.matches(request.scope)[0] is not Match.NONE:
                methods |= route.methods or set()
        told = ", ".join(sorted(methods))
        return failed(f"this path takes {told}", 405, {"allow": told})
    return failed(str(error.detail), error.status_code, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return failed("the request ended before its body did", 400)


async def _failed(request: Request, error: Exception) -> Response:
    """A bug; the traceback is in the log."""
    return failed("internal error of holdlog; its log on stderr tells more", 500, {"connection": "close"})
