"""Cached results of the store for probes: few reads and short waits, however many clients probe."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Found = TypeVar("Found")


class CachedProbe(Generic[Found]):
    """A result that is at most `fresh` seconds old. For coroutines of one loop.

    One thread at a time reads, and it does not block shutdown: a store that hangs delays no caller for more than
    `timeout` seconds.
    """

    def __init__(self, probe: Callable[[], Found], fresh: float, timeout: float) -> None:
        self._probe = probe
        self._fresh = fresh
        self._timeout = timeout
        self._probed_at = 0.0
        self._found: asyncio.Future[Found] | None = None

    async def found(self) -> Found:
        """The result. Raises the error of the read, and TimeoutError when there is no result in time."""
        now = time.monotonic()
        if self._found is None or (self._found.done() and now - self._probed_at >= self._fresh):
            found: Future[Found] = Future()
            threading.Thread(target=self._answer, args=(found,), name="holdlog-probe", daemon=True).start()
            self._found = asyncio.wrap_future(found)
            self._found.add_done_callback(_ignore)
            self._probed_at = now
        async with asyncio.timeout(self._timeout):
            return await asyncio.shield(self._found)

    def _answer(self, found: "Future[Found]") -> None:
        try:
            found.set_result(self._probe())
        except Exception as error:
            found.set_exception(error)


def _ignore(found: "asyncio.Future[Found]") -> None:
    """Retrieve an error that nobody waits for any longer, so that asyncio does not log it."""
    if not found.cancelled():
        found.exception()
