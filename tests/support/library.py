"""The library's stores as the doors use them."""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import holdlog
from tests.support.waiting import PATIENCE


class Blocking:
    """An AsyncStateStore, called by tests that know nothing of event loops: its methods wait for their results."""

    def __init__(self, place: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store = self.finish(_make(place, options))

    def finish(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(PATIENCE)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            return self.finish(_awaited(method, arguments, options))

        return call

    @contextmanager
    def claimed(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        block = self._store.claimed(*arguments, **options)
        claim = self.finish(block.__aenter__())
        try:
            yield claim
        except BaseException as error:
            if not self.finish(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.finish(block.__aexit__(None, None, None))

    def stop(self) -> None:
        """Close the store and end the event loop."""
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


async def _make(place: Any, options: dict[str, Any]) -> Any:
    return holdlog.AsyncStateStore(place, **options)


async def _awaited(method: Any, arguments: Any, options: Any) -> Any:
    result = method(*arguments, **options)
    return await result if inspect.isawaitable(result) else result


def in_thread(function: Any, *arguments: Any, **options: Any) -> "Background":
    """Call a function that blocks, in a thread of its own."""
    return Background(function, arguments, options)


class Background:
    def __init__(self, function: Any, arguments: Any, options: Any) -> None:
        self._outcome: list[Any] = []
        self._error: list[BaseException] = []

        def call() -> None:
            try:
                self._outcome.append(function(*arguments, **options))
            except BaseException as error:
                self._error.append(error)

        self._thread = threading.Thread(target=call, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        """What it returned; raises what it raised."""
        self._thread.join(PATIENCE)
        assert not self.is_running, "still waiting"
        if self._error:
            raise self._error[0]
        return self._outcome[0]
