"""Wait until a look at the log says so: subscribe, look, sleep, look again. Bells only wake."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from holdlog.domain.ports import Bell

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found | None], bell: Bell, timeout: float) -> Found | None:
    """What `look` finds, or None after `timeout` seconds. Blocks the thread; no read stays open meanwhile."""
    deadline = time.monotonic() + timeout
    rung = threading.Event()
    with bell.listen(rung.set):
        while True:
            rung.clear()
            found = look()
            if found is not None:
                return found
            if not rung.wait(max(0.0, deadline - time.monotonic())):
                return look()


async def wait_until_async(look: Callable[[], Awaitable[Found | None]], bell: Bell, timeout: float) -> Found | None:
    """As `wait_until`, for a coroutine. A cancelled wait leaves nothing behind."""
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(rung.set)

    with bell.listen(wake):
        try:
            async with asyncio.timeout(timeout):
                while (found := await look()) is None:
                    await rung.wait()
                    rung.clear()
                return found
        except TimeoutError:
            return await look()
