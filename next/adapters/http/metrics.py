"""What operators measure, in the format of Prometheus."""

import sys

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.stores.board import read_board
from holdlog.adapters.stores.sql import HEAD, TOPICS_SINCE
from holdlog.domain.results import utc
from holdlog.domain.state import Reads
from holdlog.projections.board import describe_board


class Metrics:
    """Counts what this server does, and reads what all do from the store when it is asked. Denials, conflicts and
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
        self._position = self._read_end()

    def count(self, kind: str, status: str) -> None:
        self._requests.labels(kind, status).inc()

    def collect(self) -> bytes:
        """Reads the store: call it in the pool. Raises UnavailableError."""
        store = self._engine.store
        board = describe_board(read_board(store, Reads(claims="all")), None, "", sys.maxsize)
        oldest = min((claim.claimed_at for claim in board.claims), default=None)
        self._claims.set(len(board.claims))
        self._queued.set(sum(queue.length for queue in board.queues))
        self._oldest.set(0 if oldest is None else (utc(store.now()) - oldest).total_seconds())
        for topic, number, position in store.read(TOPICS_SINCE, {"after": self._position}):
            self._events.labels(topic).inc(number)
            self._position = max(self._position, position)
        self._end.set(self._position)
        return generate_latest(self._registry)

    def _read_end(self) -> int:
        rows = self._engine.store.read(HEAD, {})
        return int(rows[0][0]) if rows else 0
