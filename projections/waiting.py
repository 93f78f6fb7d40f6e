"""Wait until a look at the log says so: subscribe, look, sleep, look again. Bells only wake.

What a waiter is concerned with is told by streams, and by beginnings of streams that end in `*`.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, TypeVar
from urllib.parse import quote

from holdlog.domain.claims.resource import covering
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Notifier

Found = TypeVar("Found")

EVERYTHING: Final = ("*",)


def wait_until(
    look: Callable[[], Found | None], bell: Notifier, timeout: float, ended: Callable[[], bool] = lambda: False
) -> Found | None:
    """What `look` finds, or None after `timeout` seconds. Blocks the thread; no read stays open meanwhile.

    `ended`: nobody waits any more; asked whenever the bell rings."""
    deadline = time.monotonic() + timeout
    rung = threading.Event()
    with bell.listen(rung.set):
        while True:
            rung.clear()
            found = look()
            if found is not None or ended():
                return found
            if not rung.wait(max(0.0, deadline - time.monotonic())):
                return look()


async def wait_until_async(
    look: Callable[[], Awaitable[Found | None]],
    listening: AbstractContextManager[asyncio.Event],
    timeout: float,
    ended: Callable[[], bool] = lambda: False,
) -> Found | None:
    """As `wait_until`, for a coroutine that `listening` wakes. A cancelled wait leaves nothing behind."""
    with listening as rung:
        try:
            async with asyncio.timeout(timeout):
                while (found := await look()) is None and not ended():
                    await rung.wait()
                    rung.clear()
                return found
        except TimeoutError:
            return await look()


# --- what concerns whom


def whole_namespace(namespace: str) -> tuple[str, ...]:
    """Concerned with every record of a namespace."""
    return (f"record:{quote(namespace, safe='')}/*",)


def what_overlaps(resource: str) -> tuple[str, ...]:
    """Concerned with every claim that overlaps a resource."""
    same_or_above = tuple(claim_stream(name) for name in covering(resource))
    return (*same_or_above, claim_stream(resource) + "*") if resource.endswith("/") else same_or_above


def concerned(stream: str) -> Iterator[str]:
    """All that a waiter may be concerned with who is to look when the stream grew."""
    yield stream
    yield "*"
    for at, character in enumerate(stream, start=1):
        if character in ":/":
            yield stream[:at] + "*"
