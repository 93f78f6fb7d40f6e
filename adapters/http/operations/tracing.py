"""OpenTelemetry: a span for each request, and one for each command within it, if the program has an SDK.

`opentelemetry-instrument holdlog serve …` configures one; without it nothing here runs. Spans contain nothing that an
agent wrote: only routes, kinds, outcomes, positions and principals.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from starlette.datastructures import Headers
from starlette.types import Scope

from holdlog.adapters.http.operations.outcomes import kind_of, outcome_of
from holdlog.adapters.runtime.group_commit import COMMIT_TIMEOUT, Job

QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that machines request all the time."""


class Traces:
    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("holdlog", version("holdlog"))

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Span | None]:
        """Open a span for the block. It continues the caller's trace; `answered` completes it."""
        if scope["path"] in QUIET:
            yield None
            return
        parent = propagate.extract(Headers(scope=scope))
        attributes = {"http.request.method": scope["method"], "network.protocol.version": scope["http_version"]}
        with self._tracer.start_as_current_span(
            scope["method"], parent, SpanKind.SERVER, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span

    def remote_context(self) -> Context:
        return context.get_current()

    def ran(self, batch: Sequence[Job]) -> None:
        """Record a span for each command that belongs to a trace, from its arrival to now."""
        end, now = time.time_ns(), time.monotonic()
        for job in batch:
            if not isinstance(job.seen, Context) or not trace.get_current_span(job.seen).is_recording():
                continue
            outcome = outcome_of(job)
            position = getattr(job.outcome, "position", None)
            began = end - round((now - job.deadline + COMMIT_TIMEOUT) * 1e9)
            kind = kind_of(job.command)
            span = self._tracer.start_span(f"holdlog {kind}", job.seen, start_time=began)
            span.set_attributes({"holdlog.command": kind, "holdlog.outcome": outcome, "holdlog.batch": len(batch)})
            if isinstance(position, int) and outcome not in (
                "busy",
                "queued",
            ):  # in that case it is the position in a queue
                span.set_attribute("holdlog.position", position)
            if outcome == "error":
                span.set_status(Status(StatusCode.ERROR))
            span.end(end)


def answered(span: Span, method: str, route: str, status: int, principal: str | None) -> None:
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if principal is not None:
        span.set_attribute("enduser.id", principal)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


def trace_id(span: Span) -> str | None:
    found = span.get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else None


def find_traces() -> Traces | None:
    """The tracing of this program; None if no SDK is configured: the API alone has providers that record nothing."""
    provider = trace.get_tracer_provider()
    nothing = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    return None if nothing else Traces(provider)
