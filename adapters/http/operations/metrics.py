"""Metrics for Prometheus: instruments of its client library.

Labels contain no outside text: kinds, outcomes, routes and tools are the program's own names.
"""

import time
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from holdlog.adapters.http.operations.outcomes import kind_of, outcome_of
from holdlog.adapters.runtime.group_commit import COMMIT_TIMEOUT, Job

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COMMAND_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Any other method of a client is counted as `other`."""


class Metrics:
    """All metrics of one server, as a `CommandObserver` of its writers. Thread-safe."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        own = self._registry = CollectorRegistry()
        Info("holdlog_build", "The running version.", registry=own).info({"version": version("holdlog")})
        ProcessCollector(registry=own)
        # The labels are few; looking them up would take longer than counting.
        self._commands = cache(
            Counter("holdlog_commands", "Commands by outcome.", ("kind", "outcome"), registry=own).labels
        )
        self._command_seconds = cache(
            Histogram(
                "holdlog_command_seconds",
                "From the arrival of a command to its outcome.",
                ("kind",),
                registry=own,
                buckets=COMMAND_SECONDS,
            ).labels
        )
        self._batches = Histogram(
            "holdlog_batch_commands", "Commands committed together.", registry=own, buckets=BATCH_SIZES
        )
        self._turned_away = Counter(
            "holdlog_commands_turned_away", "Commands not run because too many waited, or for too long.", registry=own
        )
        self._events = cache(
            Counter("holdlog_events", "Events appended to the log by this server.", ("topic",), registry=own).labels
        )
        self._requests = cache(
            Counter(
                "holdlog_http_requests", "Requests with a response.", ("method", "route", "status"), registry=own
            ).labels
        )
        self._request_seconds = cache(
            Histogram(
                "holdlog_http_request_seconds",
                "From the head of a request to the end of its response.",
                ("route",),
                registry=own,
                buckets=REQUEST_SECONDS,
            ).labels
        )
        self._sent = cache(Counter("holdlog_http_sent_bytes", "Bodies of responses.", ("route",), registry=own).labels)
        self._streams = Gauge("holdlog_http_streams", "Open event streams.", ("route",), registry=own)
        self._tools = cache(
            Counter(
                "holdlog_tool_calls", "Calls of MCP tools by status of the response.", ("tool", "status"), registry=own
            ).labels
        )

    # --- updates

    def received(self) -> object:
        return None

    def turned_away(self) -> None:
        self._turned_away.inc()

    def ran(self, batch: Sequence[Job], topics: Sequence[str]) -> None:
        now = time.monotonic() + COMMIT_TIMEOUT
        self._batches.observe(len(batch))
        for topic in topics:
            self._events(topic).inc()
        for job in batch:
            kind = kind_of(job.command)
            self._commands(kind, outcome_of(job)).inc()
            self._command_seconds(kind).observe(now - job.deadline)

    def answered(self, method: str, route: str, status: int, seconds: float, sent: int) -> None:
        """Count a completed request. `sent`: bytes of the response body."""
        self._requests(method if method in METHODS else "other", route, status).inc()
        self._sent(route).inc(sent)
        self._request_seconds(route).observe(seconds)

    def streams(self, route: str, change: int) -> None:
        """Count a long-lived response that began (1) or ended (-1)."""
        self._streams.labels(route).inc(change)

    def called(self, tool: str, status: str) -> None:
        """Count an MCP tool call by the status of its response."""
        self._tools(tool, status).inc()

    # --- the scrape

    def exposed(self, more: Iterable[Metric] = ()) -> bytes:
        """These metrics, and more that were read for this scrape, in the Prometheus text format."""
        return generate_latest(_Scrape([*self._registry.collect(), *more]))


class _Scrape(Collector):
    """Metrics that were read already."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
