"""Metrics for Prometheus: plain numbers that are updated in place, and formatted when Prometheus scrapes.

Labels contain no outside text: kinds, outcomes, routes and tools are the program's own names.
"""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from holdlog.adapters.http.operations.outcomes import kind_of, outcome_of
from holdlog.adapters.runtime.group_commit import COMMIT_TIMEOUT, Job

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COMMAND_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Any other method of a client is counted as `other`."""


class Histogram:
    """How many numbers were up to each bound, and the sum of all. Not thread-safe by itself."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, number: float) -> None:
        self._counts[bisect_left(self._bounds, number)] += 1
        self._sum += number

    def samples(self) -> tuple[list[tuple[str, float]], float]:
        """The buckets and sum that `HistogramMetricFamily.add_metric` takes."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


class Metrics:
    """All metrics of one server, as a `CommandObserver` of its writers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: Counter[tuple[str, str]] = Counter()
        self._command_seconds: dict[str, Histogram] = {}
        self._batches = Histogram(BATCH_SIZES)
        self._turned_away = 0
        self._events: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._request_seconds: dict[str, Histogram] = {}
        self._sent: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._tools: Counter[tuple[str, str]] = Counter()
        self._process = ProcessCollector(registry=None)

    # --- updates

    def received(self) -> object:
        return None

    def turned_away(self) -> None:
        with self._lock:
            self._turned_away += 1

    def ran(self, batch: Sequence[Job], topics: Sequence[str]) -> None:
        now = time.monotonic() + COMMIT_TIMEOUT
        with self._lock:
            self._batches.add(len(batch))
            self._events.update(topics)
            for job in batch:
                kind = kind_of(job.command)
                self._commands[kind, outcome_of(job)] += 1
                found = self._command_seconds.get(kind)
                if found is None:
                    found = self._command_seconds[kind] = Histogram(COMMAND_SECONDS)
                found.add(now - job.deadline)

    def answered(self, method: str, route: str, status: int, seconds: float, sent: int) -> None:
        """Count a completed request. `sent`: bytes of the response body."""
        with self._lock:
            self._requests[method if method in METHODS else "other", route, status] += 1
            self._sent[route] += sent
            found = self._request_seconds.get(route)
            if found is None:
                found = self._request_seconds[route] = Histogram(REQUEST_SECONDS)
            found.add(seconds)

    def streams(self, route: str, change: int) -> None:
        """Count a long-lived response that began (1) or ended (-1)."""
        with self._lock:
            self._streams[route] += change

    def called(self, tool: str, status: str) -> None:
        with self._lock:
            self._tools[tool, status] += 1

    # --- scrapes

    def families(self) -> Iterator[Metric]:
        yield InfoMetricFamily("holdlog_build", "The running version.", {"version": version("holdlog")})
        with self._lock:
            counted = list(self._counted())
        yield from counted
        yield from self._process.collect()

    def _counted(self) -> Iterator[Metric]:
        yield _counts("holdlog_commands", "Commands by outcome.", ("kind", "outcome"), self._commands)
        yield _histograms(
            "holdlog_command_seconds", "From the arrival of a command to its outcome.", "kind", self._command_seconds
        )
        batches = HistogramMetricFamily("holdlog_batch_commands", "Commands committed together.")
        batches.add_metric([], *self._batches.samples())
        yield batches
        turned_away = "Commands not run because too many waited, or for too long."
        yield CounterMetricFamily("holdlog_commands_turned_away", turned_away, self._turned_away)
        yield _counts("holdlog_events", "Events appended to the log by this server.", ("topic",), self._events)
        yield _counts(
            "holdlog_http_requests", "Requests with a response.", ("method", "route", "status"), self._requests
        )
        yield _histograms(
            "holdlog_http_request_seconds",
            "From the head of a request to the end of its response.",
            "route",
            self._request_seconds,
        )
        yield _counts("holdlog_http_sent_bytes", "Bodies of responses.", ("route",), self._sent)
        streams = GaugeMetricFamily("holdlog_http_streams", "Open event streams.", labels=["route"])
        for route, count in self._streams.items():
            streams.add_metric([route], count)
        yield streams
        yield _counts(
            "holdlog_tool_calls", "Calls of MCP tools by status of the response.", ("tool", "status"), self._tools
        )


class _Scrape(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposed(families: Iterable[Metric]) -> bytes:
    """The metrics in the Prometheus text format."""
    return generate_latest(_Scrape(families))


def _counts(name: str, help_text: str, labels: Sequence[str], counts: "Counter[Any]") -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for key, count in counts.items():
        family.add_metric([str(part) for part in (key if isinstance(key, tuple) else (key,))], count)
    return family


def _histograms(name: str, help_text: str, label: str, found: dict[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, histogram in found.items():
        family.add_metric([value], *histogram.samples())
    return family
