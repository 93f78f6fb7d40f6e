"""What a picture shows: spans and ticks of its lanes, scene by scene, in milliseconds. The demo measures them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from holdlog.adapters.cli.drawing.axis import Axis, Milliseconds

SpanKind = Literal["think", "write", "hold", "wait"]
TickKind = Literal["conflict", "busy"]


@dataclass
class Span:
    """An action that took an agent time. `text` may be set until it ends; an `end` below 0: still running."""

    agent: str
    kind: SpanKind
    start: float
    end: float = -1.0
    text: str = ""


@dataclass(frozen=True)
class Tick:
    """A refusal, at the moment its response arrived."""

    agent: str
    kind: TickKind
    at: float
    text: str


@dataclass(frozen=True)
class Wake:
    """One agent's action at `freed` woke another agent, which noticed it at `woken`."""

    by: str
    agent: str
    freed: float
    woken: float


@dataclass
class Scene:
    title: str
    start: float
    end: float = -1.0
    outcome: tuple[str, str] = ("", "")
    good: bool = True


@dataclass
class Timeline:
    """Spans and ticks; `agents` names the lanes. Measured times come from one monotonic clock of one process. `axis`:
    of each scene, from its beginning."""

    agents: tuple[str, ...]
    title: str = "holdlog demo: agents, their claims and their writes over time"
    axis: Axis = field(default_factory=Milliseconds)
    scenes: list[Scene] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    _began: float | None = None

    def now(self) -> float:
        """Milliseconds since the first reading of the clock."""
        clock = time.perf_counter()
        if self._began is None:
            self._began = clock
        return (clock - self._began) * 1000

    @contextmanager
    def scene(self, title: str) -> Iterator[Scene]:
        """Record the block as one scene; in the picture, a hold that outlives it ends with it."""
        scene = Scene(title, self.now())
        self.scenes.append(scene)
        try:
            yield scene
        finally:
            scene.end = self.now()
            for span in self.spans:
                if span.end < 0:
                    span.end = scene.end

    def begin(self, agent: str, kind: SpanKind, text: str = "") -> Span:
        span = Span(agent, kind, self.now(), text=text)
        self.spans.append(span)
        return span

    def end(self, span: Span) -> float:
        span.end = self.now()
        return span.end

    @contextmanager
    def during(self, agent: str, kind: SpanKind, text: str = "") -> Iterator[Span]:
        span = self.begin(agent, kind, text)
        try:
            yield span
        finally:
            self.end(span)
