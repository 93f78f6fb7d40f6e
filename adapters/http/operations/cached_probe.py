"""What the store says, asked seldom and waited for briefly, however often and by however many it is wanted."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Found = TypeVar("Found")


class CachedProbe(Generic[Found]):
    """An answer that was asked for at most `fresh` seconds ago. For coroutines of one loop.

    One thread at a time asks, and it keeps nothing from ending: a store that hangs holds up nobody for longer than
    `patience` seconds.
    """

    def __init__(self, ask: Callable[[], Found], fresh: float, patience: float) -> None:
        self._ask = ask
        self._fresh = fresh
        self._patience = patience
        self._asked = 0.0
        self._found: asyncio.Future[Found] | None = None

    async def found(self) -> Found:
        """Raises what asking raised, and TimeoutError when there is no answer in time."""
        now = time.monotonic()
        if self._found is None or (self._found.done() and now - self._asked >= self._fresh):
            found: Future[Found] = Future()
            threading.Thread(target=self._answer, args=(found,), name="holdlog-look", daemon=True).start()
            self._found = asyncio.wrap_future(found)
            self._found.add_done_callback(_ignore)
            self._asked = now
        async with asyncio.timeout(self._patience):
            return await asyncio.shield(self._found)

    def _answer(self, found: "Future[Found]") -> None:
        try:
            found.set_result(self._ask())
        except Exception as error:
            found.set_exception(error)


def _ignore(found: "asyncio.Future[Found]") -> None:
    """Nobody may wait for it any more, which is no reason to log."""
    if not found.cancelled():
        found.exception()
