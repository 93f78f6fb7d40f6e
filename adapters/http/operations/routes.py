"""Routes for operators: liveness, readiness, metrics."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from fastmcp import FastMCP
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from holdlog.adapters.http.answers import failed, json_response
from holdlog.adapters.http.openapi import document
from holdlog.adapters.http.operations.access_log import AccessLog
from holdlog.adapters.http.operations.cached_probe import CachedProbe
from holdlog.adapters.http.operations.metrics import CONTENT_TYPE, Metrics
from holdlog.adapters.http.operations.observers import MetricsMiddleware, ObserverGroup
from holdlog.adapters.http.operations.tracing import find_traces
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import TEXT, Answer, ApiRoute, HttpOperation
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.counts import ToolCounts
from holdlog.domain.ports import Store
from holdlog.domain.refusals import DeniedError, HoldlogError

if TYPE_CHECKING:
    from holdlog.adapters.nats.relay import Status

PROBE_TIMEOUT: Final = 2.0
"""Seconds that the store has to answer a probe."""
READY_FRESH: Final = 1.0
"""Seconds for which a result of the store is reused, so that probes cost nothing."""
FACTS_FRESH: Final = 5.0

_log = logging.getLogger("holdlog")


class Healthy(BaseModel):
    status: Literal["ok"] = "ok"


class ServerFacts(NamedTuple):
    """Newest position and size in bytes of the main store; size in bytes of all open spaces together."""

    position: int
    main_bytes: int
    space_bytes: int


class Operations:
    """Observes the server from its creation. `access_log`: its format, or `off`; `relay`: the status of the server's
    relay."""

    def __init__(
        self,
        mcp: FastMCP[Any],
        spaces: Tenants,
        access_log: Literal["off", "text", "json"],
        ending: Shutdown,
        relay: "Callable[[], Status] | None" = None,
    ) -> None:
        self._spaces = spaces
        self._metrics = Metrics()
        self._traces = find_traces()
        self._log = None if access_log == "off" else AccessLog(access_log)
        self._ending = ending
        self._relay = relay
        self._ready = CachedProbe(self._position, READY_FRESH, PROBE_TIMEOUT)
        self._facts = CachedProbe(self._facts_now, FACTS_FRESH, PROBE_TIMEOUT)
        self._logged: str | None = None
        self._document: dict[str, Any] | None = None
        spaces.watched(self._metrics if self._traces is None else ObserverGroup(self._metrics, self._traces))
        mcp.add_middleware(ToolCounts(self._metrics.called))

    def around(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> ASGIApp:
        """The application, wrapped for observation. `routes`: all of its routes."""
        return MetricsMiddleware(app, routes, self._metrics, self._log, self._traces)

    @property
    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "/healthz",
                GET=HttpOperation(
                    self.healthz,
                    "Liveness",
                    {200: Answer("The process is alive.", Healthy)},
                    "For a liveness probe: it does not check the database, so an outage there does not restart the "
                    "process.",
                    query=None,
                    refusals=(),
                    public=True,
                ),
            ),
            ApiRoute(
                "/readyz",
                GET=HttpOperation(
                    self.readyz,
                    "Readiness",
                    {200: Answer("Ready.", Healthy)},
                    "For a readiness probe: the store can be read, and the server is not shutting down.",
                    query=None,
                    refusals=(503,),
                    public=True,
                ),
            ),
            ApiRoute(
                "/metrics",
                GET=HttpOperation(
                    self.metrics,
                    "Metrics for Prometheus",
                    {200: Answer("Metrics in the text format.", {TEXT: str})},
                    "Requires a grant of metrics:* if tokens are required. docs/operations.md describes each metric.",
                    query=None,
                ),
            ),
            ApiRoute(
                "/openapi.json",
                GET=HttpOperation(
                    self.openapi,
                    "This document",
                    {200: Answer("OpenAPI 3.1.", dict[str, Any])},
                    query=None,
                    refusals=(429,),
                    public=True,
                ),
            ),
        ]

    async def healthz(self, request: HttpRequest) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, request: HttpRequest) -> Response:
        if self._ending.began:
            return _not_ready("the server is shutting down")
        try:
            await self._ready.found()
        except TimeoutError:
            self._log_once(f"the store does not respond within {PROBE_TIMEOUT:g} s")
            return _not_ready("the store does not respond")
        except HoldlogError as error:
            self._log_once(str(error))  # the log may name the store, a response must not
            return _not_ready("the store cannot be read now")
        self._logged = None
        return json_response({"status": "ok"})

    async def metrics(self, request: HttpRequest) -> Response:
        context = request.context
        if context.engine is not self._spaces.main:  # its owner may do all in a space, but not see the server
            raise DeniedError("metrics:* in a token without a space")
        context.grants.require("metrics", "*")
        try:
            facts = await self._facts.found()
        except (TimeoutError, HoldlogError):
            facts = None
        return Response(
            self._metrics.exposed(self._gauges(facts)),
            headers={"cache-control": "no-store", "content-type": CONTENT_TYPE},
        )

    async def openapi(self, request: HttpRequest) -> Response:
        if self._document is None:
            self._document = document(request.app.routes)
        return json_response(self._document)

    def _position(self) -> int:
        with self._spaces.main.store.reader() as reader:
            return reader.position()

    def _facts_now(self) -> ServerFacts:
        main, *others = [it.store for it in self._spaces.engines()]
        return ServerFacts(self._position(), main.size(), sum(map(_size, others)))

    def _gauges(self, facts: ServerFacts | None) -> Iterator[Metric]:
        engines = self._spaces.engines()
        yield _gauge(
            "holdlog_writer_queue", "Commands that wait for a batch.", sum(it.writer.waiting for it in engines)
        )
        yield _gauge(
            "holdlog_waiters", "Calls that are waiting now.", sum(it.lease_maintenance.waiters for it in engines)
        )
        yield _gauge("holdlog_spaces_open", "Spaces with an open store.", len(engines) - 1)
        yield _gauge("holdlog_store_up", "Whether the store responds.", float(facts is not None))
        if facts is not None:
            yield _gauge("holdlog_store_position", "Position of the newest event in the main store.", facts.position)
            size = GaugeMetricFamily("holdlog_store_bytes", "Size of the stores.", labels=["store"])
            size.add_metric(["main"], facts.main_bytes)
            size.add_metric(["spaces"], facts.space_bytes)
            yield size
        if self._relay is not None:
            yield from _relayed(self._relay(), facts)

    def _log_once(self, message: str) -> None:
        """Log, once per change, why this server accepts no work."""
        if message != self._logged:
            self._logged = message
            _log.warning("not ready: %s", message)


def _size(store: Store) -> int:
    """The size of a space, which may be closed in the meantime."""
    try:
        return store.size()
    except HoldlogError:
        return 0


def _not_ready(message: str) -> Response:
    return failed(message, 503, {"retry-after": "1"})


def _gauge(name: str, help_text: str, number: float) -> Metric:
    return GaugeMetricFamily(name, help_text, number)


def _relayed(status: "Status", facts: ServerFacts | None) -> Iterator[Metric]:
    from holdlog.adapters.nats.relay import State

    states = GaugeMetricFamily("holdlog_relay_state", "1 for the current state of the relay.", labels=["state"])
    for state in get_args(State):
        states.add_metric([state], float(state == status.state))
    yield states
    if status.state == "waiting":  # another server's relay publishes, and reports its progress
        return
    if status.position:
        yield _gauge("holdlog_relay_position", "Position of the last event that NATS acknowledged.", status.position)
    if facts is not None and (status.position or status.state in ("publishing", "current")):
        lag = max(0, facts.position - status.position)
        yield _gauge(
            "holdlog_relay_lag_events", "Positions between the store's newest event and the last one in NATS.", lag
        )
