"""The application over HTTP: all its routes."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.routing import BaseRoute

from holdlog.adapters.http.calls import Calls
from holdlog.adapters.http.edge import Edge
from holdlog.adapters.http.events import list_event_routes
from holdlog.adapters.http.hook import RemoteHooks
from holdlog.adapters.http.kv import EchoValue
from holdlog.adapters.http.probes import list_probes
from holdlog.adapters.http.routes import derive_routes, handle_bug, handle_error
from holdlog.adapters.mcp.lines import ESCAPED, MAX_LINE


def build(calls: Calls, hosts: Collection[str] = (), mounted: Sequence[Starlette] = ()) -> Starlette:
    """The application. `hosts`: names of the server besides those of loopback. `mounted`: applications whose routes it
    has, and which start and end with it."""

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in mounted:
                await stack.enter_async_context(part.router.lifespan_context(part))
            yield

    limit = max(MAX_LINE, ESCAPED * calls.limits.max_value_bytes)
    middleware = [
        Middleware(Edge, authenticator=calls.authenticator, hosts=hosts),
        Middleware(RequestBodyLimitMiddleware, max_body_size=limit),
    ]
    routes = [*list_routes(calls), *(route for part in mounted for route in part.routes)]
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=live,
        exception_handlers={HTTPException: handle_error, Exception: handle_bug},
    )


def list_routes(calls: Calls) -> list[BaseRoute]:
    """All routes but those of MCP."""
    return [
        *EchoValue(calls).list_routes(),
        *derive_routes(calls),
        *list_event_routes(calls),
        *RemoteHooks(calls).list_routes(),
        *list_probes(calls),
    ]
