"""Counts, logs and traces each request, around everything else."""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.trace import Span
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdlog.adapters.http.operations import tracing
from holdlog.adapters.http.operations.access_log import AccessLog, AccessLogEntry
from holdlog.adapters.http.operations.metrics import METHODS, Metrics
from holdlog.adapters.http.operations.tracing import Traces
from holdlog.adapters.http.routing import ApiRoute
from holdlog.adapters.runtime.group_commit import Job

NO_ROUTE: Final = "none"
GONE: Final = 499
"""Status for clients that left before the response began, as in nginx."""
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class MetricsMiddleware:
    """ASGI middleware. `routes`: the application's routes, for their names."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        metrics: Metrics,
        log: AccessLog | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log
        self._traces = traces
        self._names: dict[object, str] = {
            route.endpoint: route.template if isinstance(route, ApiRoute) else route.path
            for route in routes
            if isinstance(route, Route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._traces is None:
            await self._respond(scope, receive, send, None)
        else:
            with self._traces.request(scope) as span:
                await self._respond(scope, receive, send, span)

    async def _respond(self, scope: Scope, receive: Receive, send: Send, span: Span | None) -> None:
        began = time.perf_counter()
        seen = _Seen(send, None if self._log is None else _request_id(scope), lambda: self._streams(scope, 1))
        try:
            await self._app(scope, receive, seen.send)
        except BaseException:
            seen.status = seen.status or 500
            raise
        finally:
            if seen.streams:
                self._streams(scope, -1)
            self._answered(scope, seen, time.perf_counter() - began, span)

    def _answered(self, scope: Scope, seen: "_Seen", seconds: float, span: Span | None) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route, status = self._route_of(scope), seen.status or GONE
        self._metrics.answered(method, route, status, seconds, seen.sent)
        if span is not None:
            tracing.answered(span, method, route, status, _principal_of(scope))
        if self._log is not None:
            ms, trace = round(seconds * 1000, 2), None if span is None else tracing.trace_id(span)
            who = _principal_of(scope)
            self._log.write(AccessLogEntry(method, route, status, ms, seen.sent, who, seen.request_id, trace))

    def _streams(self, scope: Scope, change: int) -> None:
        self._metrics.streams(self._route_of(scope), change)

    def _route_of(self, scope: Scope) -> str:
        return self._names.get(scope.get("endpoint"), NO_ROUTE)


class _Seen:
    """Records what was sent of one response. Puts `request_id` into its headers; calls `on_stream` if it is a
    stream."""

    __slots__ = ("_on_stream", "_send", "request_id", "sent", "status", "streams")

    def __init__(self, send: Send, request_id: str | None, on_stream: Callable[[], None]) -> None:
        self._send = send
        self._on_stream = on_stream
        self.request_id = request_id
        self.status = 0
        self.sent = 0
        self.streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.get("headers", ())
            if dict(headers).get(b"content-type", b"").startswith(b"text/event-stream"):
                self.streams = True
                self._on_stream()
            if self.request_id is not None:
                message["headers"] = [*headers, (b"x-request-id", self.request_id.encode())]
        await self._send(message)


class ObserverGroup:
    """Passes what writers do to metrics and traces."""

    def __init__(self, metrics: Metrics, traces: Traces) -> None:
        self.received = traces.remote_context
        self.turned_away = metrics.turned_away
        self._metrics = metrics
        self._traces = traces

    def ran(self, batch: Sequence[Job], topics: Sequence[str]) -> None:
        self._metrics.ran(batch, topics)
        self._traces.ran(batch)


def _request_id(scope: Scope) -> str:
    """The caller's own request id if it is plain, so that both logs can be joined."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _principal_of(scope: Scope) -> str | None:
    context = scope.get("state", {}).get("served")
    return None if context is None else context.caller.principal
