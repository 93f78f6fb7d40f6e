"""A connection that times out if the database goes silent: stopped, or behind a network that drops all packets."""

import time
from collections.abc import Generator
from typing import Any, Final

import psycopg

from holdlog.adapters.operating_system.deadline import STOPPED

SILENT_SECONDS: Final = 30.0
"""Longer than any wait that the store requests: locks are waited for 5 s."""


class TimeoutConnection(psycopg.Connection[tuple[Any, ...]]):
    """Closes itself after `silence` seconds of waiting without data, and raises psycopg.OperationalError."""

    silence: float | None = None
    stopped = 0.0
    """Seconds that this process was stopped while it waited."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        if self.silence is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(self._bounded(gen, self.silence), *args, **kwargs)

    def _bounded(self, waits: Generator[Any, Any, Any], silence: float) -> Generator[Any, Any, Any]:
        until = time.monotonic() + silence
        try:
            request = next(waits)
            while True:
                began = time.monotonic()
                ready = yield request  # for a tenth of a second at most
                if (gap := time.monotonic() - began) > STOPPED:
                    self.stopped += gap
                    until += gap
                if ready:
                    until = time.monotonic() + silence
                elif time.monotonic() >= until:
                    self.close()
                    raise psycopg.OperationalError(f"the database did not respond for {silence:g} s")
                request = waits.send(ready)
        except StopIteration as end:
            return end.value
