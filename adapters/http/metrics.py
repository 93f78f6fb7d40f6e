"""What operators measure, in the format of Prometheus."""

import logging
import sys
import time
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.json import Object
from holdlog.adapters.operations.rows import read_position
from holdlog.adapters.stores.board import read_board
from holdlog.adapters.stores.sql import TOPICS_SINCE
from holdlog.domain.results import utc
from holdlog.domain.state import Reads
from holdlog.projections.board import describe_board

LOG: Final = logging.getLogger("holdlog")
LOG_EVERY: Final = 60.0
"""Seconds between lines about a store that is unavailable."""


class Metrics:
    """Counts what this server does, and reads from the store what all do, when it is scraped. Denials, conflicts and
    fenced writes are calls whose status is busy, conflict and fenced; expiries are events of the kind ClaimExpired."""

    def __init__(self, engine: Engine) -> None:
        """Raises UnavailableError."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._engine = engine
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("holdlog_requests", "Calls of operations", ("kind", "status"), registry=registry)
        self._events = Counter(
            "holdlog_events", "Events of all since this server started", ("kind",), registry=registry
        )
        self._end = Gauge("holdlog_position", "Position of the last event", registry=registry)
        self._claims = Gauge("holdlog_claims_held", "Claims that are held", registry=registry)
        self._queued = Gauge("holdlog_claims_queued", "Agents that wait for a claim", registry=registry)
        self._oldest = Gauge("holdlog_oldest_hold_seconds", "Age of the oldest claim", registry=registry)
        self.waiters = Gauge("holdlog_waiters", "Calls that wait in this server", registry=registry)
        self._position = read_position(engine.store)
        self._log_after = 0.0
        self._lock = Lock()

    def count(self, kind: str, response: Object) -> None:
        """Count a call by its result, and log that the store is unavailable."""
        self._requests.labels(kind, response["status"]).inc()
        if response["status"] == "unavailable" and time.monotonic() >= self._log_after:
            self._log_after = time.monotonic() + LOG_EVERY
            LOG.warning("holdlog: a call was refused: %s", response["message"])

    def collect(self) -> bytes:
        """Reads the store: call it in the pool. Raises UnavailableError."""
        store = self._engine.store
        board = describe_board(read_board(store, Reads(claims="all")), None, "", sys.maxsize)
        oldest = min((claim.claimed_at for claim in board.claims), default=None)
        self._claims.set(len(board.claims))
        self._queued.set(sum(queue.length for queue in board.queues))
        self._oldest.set(0 if oldest is None else (utc(store.now()) - oldest).total_seconds())
        with self._lock:  # several may ask at once
            for topic, number, position in store.read(TOPICS_SINCE, {"after": self._position}):
                self._events.labels(topic).inc(number)
                self._position = max(self._position, position)
            self._end.set(self._position)
        return generate_latest(self._registry)
