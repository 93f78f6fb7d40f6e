"""What operators measure, in the format of Prometheus."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from holdlog.adapters.engine.engine import Engine

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts what this server does, and reads what the store has."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "holdlog_requests", "Calls of operations, by the status of their response", ("kind", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.waiters = Gauge("holdlog_waiters", "Calls that wait in this server", registry=self.registry)

    def count(self, kind: str, status: str) -> None:
        self._requests.labels(kind, status).inc()

    def collect(self) -> bytes:
        """Reads the store: call it in the pool. Raises UnavailableError."""
        return generate_latest(self.registry)
