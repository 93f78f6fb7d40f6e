"""The application: its routes, and the middleware around them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastmcp import FastMCP
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from holdlog.adapters.http.answers import failed, refused
from holdlog.adapters.http.authentication import Authentication, TokenVerifier
from holdlog.adapters.http.changes import routes as changes
from holdlog.adapters.http.claims import routes as claims
from holdlog.adapters.http.edge.limits import RequestLimits
from holdlog.adapters.http.edge.request_checks import Guards, too_large
from holdlog.adapters.http.events import routes as events
from holdlog.adapters.http.hooks import routes as hooks
from holdlog.adapters.http.operations.routes import Operations
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.page import routes as page
from holdlog.adapters.http.policy import routes as policy
from holdlog.adapters.http.questions import routes as questions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.http.threads.data import routes as thread_data
from holdlog.adapters.http.threads.items import routes as threads
from holdlog.adapters.http.token import routes as token
from holdlog.adapters.http.values.kv import routes as key_value
from holdlog.adapters.http.values.transactions import routes as transactions
from holdlog.adapters.mcp.http.endpoint import Endpoint
from holdlog.adapters.operating_system.users import local_names
from holdlog.adapters.runtime.name_protection import OwnNames
from holdlog.domain.refusals import HoldlogError

if TYPE_CHECKING:
    from holdlog.adapters.nats.relay import Status


def build_app(
    mcp: FastMCP[Any],
    spaces: Tenants,
    verifier: TokenVerifier | None,
    options: HttpOptions,
    ending: Shutdown,
    relay: "Callable[[], Status] | None" = None,
) -> ASGIApp:
    """Build the application. `mcp`: a server built without a local store. Opens nothing; closes `spaces` when the
    application ends, and `ending` ends waiting calls. `relay`: the status of the server's relay. Routes find `options`,
    `spaces`, `ending` and `reports` in `request.app.state`."""
    endpoint = Endpoint(mcp)
    if verifier is not None:
        spaces.require_own_names(OwnNames(spaces.main, local_names()).require)
    ending.last += [spaces.finish_waiting, endpoint.sessions.finish]
    operations = Operations(mcp, spaces, options.access_log, ending, relay)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with endpoint.running():
            yield
        await spaces.close()

    app = Starlette(
        routes=[
            Route(options.path, endpoint, methods=["GET", "POST", "DELETE"]),
            *operations.routes,
            *key_value,
            *transactions,
            *changes,
            *claims,
            *events,
            *hooks,
            *policy,
            *questions,
            *threads,
            *thread_data,
            *token,
            *page,
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
    app.state.reports = asyncio.Lock()
    # From the inside out: the last one handles a request first.
    guarded: ASGIApp = RequestLimits(app, options)
    guarded = Authentication(guarded, spaces, verifier)
    return operations.around(Guards(guarded, options), app.routes)


async def _no_route(request: Request, error: Exception) -> Response:
    """Respond with 404, 405 and all methods of the path, or another status that a route or middleware raised."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return failed("unknown path; GET /openapi.json lists all paths; write a slash within a name as %2F", 404)
    if error.status_code == 405:
        methods = set[str]()
        for route in request.app.routes:
            if route.matches(request.scope)[0] is not Match.NONE:
                methods |= route.methods or set()
        allowed = ", ".join(sorted(methods))
        return failed(f"method not allowed; this path accepts {allowed}", 405, {"allow": allowed})
    if error.status_code == 413:
        return too_large(request.app.state.options.max_body_bytes)
    return failed(str(error.detail), error.status_code, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return failed("the request ended before its body was complete", 400)


async def _failed(request: Request, error: Exception) -> Response:
    """Respond to a bug; the traceback is in the log."""
    return failed(
        "internal error of holdlog; the operator finds details in its log on stderr", 500, {"connection": "close"}
    )
