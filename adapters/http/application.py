"""The application over HTTP: all its routes, the page for people, and those for the programs that watch a server."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdlog.adapters.http.calls import Calls, render
from holdlog.adapters.http.edge import Edge
from holdlog.adapters.http.events import list_event_routes
from holdlog.adapters.http.hook import RemoteHooks
from holdlog.adapters.http.kv import EchoValue
from holdlog.adapters.http.openapi import describe_api
from holdlog.adapters.http.routes import derive_routes, handle_bug, handle_error
from holdlog.adapters.operations.json import refusal_to_object, to_text
from holdlog.adapters.stores.sql import STORE_ID
from holdlog.domain.refusals import HoldlogError


def build(calls: Calls, limit: int, hosts: Collection[str] = (), mounted: Sequence[Starlette] = ()) -> Starlette:
    """The application. `limit`: bytes of a body. `hosts`: names of the server besides those of loopback. `mounted`:
    applications whose routes it has, and which start and end with it."""

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in mounted:
                await stack.enter_async_context(part.router.lifespan_context(part))
            yield

    middleware = [
        Middleware(Edge, calls=calls, hosts=hosts, limit=limit),
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
        make_page(),
    ]


_INLINE: Final = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def make_page() -> Route:
    """The page. The browser runs only its one script, which connects only to this server and cannot parse HTML."""
    text = Path(__file__).with_name("page.html").read_text("utf-8")
    digests = {kind: b64encode(sha256(part.encode()).digest()).decode() for kind, part in _INLINE.findall(text)}
    policy = (
        "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors"
        f" 'none'; script-src 'sha256-{digests['script']}'; style-src 'sha256-{digests['style']}';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }

    async def show(request: Request) -> Response:
        return Response(text, headers=headers, media_type="text/html")

    return Route("/", show)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def list_probes(calls: Calls) -> list[Route]:
    async def is_alive(request: Request) -> Response:
        return render({"status": "ok"})

    async def is_ready(request: Request) -> Response:
        """Whether the store can be read, and the server is not stopping."""
        try:
            await calls.in_pool(calls.engine.store.read, STORE_ID, {})
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal), 503)
        return render({"status": "ending"}, 503) if calls.ending.is_set() else render({"status": "ok"})

    async def measure(request: Request) -> Response:
        try:
            request.scope["access"].require_store("metrics")
            return Response(await calls.in_pool(calls.metrics.collect), media_type=CONTENT_TYPE)
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))

    async def describe(request: Request) -> Response:
        return Response(to_text(describe_api()), media_type="application/json")

    described = Route("/openapi.json", describe)
    return [described, Route("/healthz", is_alive), Route("/readyz", is_ready), Route("/metrics", measure)]
