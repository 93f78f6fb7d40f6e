"""Health, readiness and metrics, for the programs that watch a server."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.http.calls import Calls
from holdlog.adapters.http.openapi import describe_api
from holdlog.adapters.http.responses import render
from holdlog.adapters.operations.json import refusal_to_object, to_text
from holdlog.adapters.stores.sql import STORE_ID
from holdlog.domain.refusals import HoldlogError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def list_probes(calls: Calls) -> list[Route]:
    async def is_alive(request: Request) -> Response:
        return render({"status": "ok"})

    async def is_ready(request: Request) -> Response:
        """Whether the store can be read, and the server goes on."""
        try:
            await calls.in_pool(calls.engine.store.read, STORE_ID, {})
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal), 503)
        return render({"status": "ending"}, 503) if calls.ending.is_set() else render({"status": "ok"})

    async def measure(request: Request) -> Response:
        try:
            request.scope["access"].require_store("admin")
            return Response(await calls.in_pool(calls.metrics.collect), media_type=CONTENT_TYPE)
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))

    async def describe(request: Request) -> Response:
        return Response(to_text(describe_api()), media_type="application/json")

    described = Route("/openapi.json", describe)
    return [described, Route("/healthz", is_alive), Route("/readyz", is_ready), Route("/metrics", measure)]
