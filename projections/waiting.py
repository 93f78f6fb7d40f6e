"""Wait until a read of the log finds something: subscribe, read, sleep, read again. A notification only wakes the
waiter; the read decides.

The interests of a waiter are names of streams, and prefixes of them that end in `*`.
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
    read: Callable[[], Found | None], notifier: Notifier, timeout: float, ended: Callable[[], bool] = lambda: False
) -> Found | None:
    """Return what `read` finds, or None after `timeout` seconds. Blocks the thread; no read transaction is open while
    it sleeps.

    `ended`: whether to stop waiting early, such as at shutdown; checked after each read that finds nothing."""
    deadline = time.monotonic() + timeout
    notified = threading.Event()
    with notifier.listen(notified.set):
        while True:
            notified.clear()
            found = read()
            if found is not None or ended():
                return found
            if not notified.wait(max(0.0, deadline - time.monotonic())):
                return read()


async def wait_until_async(
    read: Callable[[], Awaitable[Found | None]],
    listening: AbstractContextManager[asyncio.Event],
    timeout: float,
    ended: Callable[[], bool] = lambda: False,
) -> Found | None:
    """Like `wait_until`, for a coroutine that `listening` wakes. Cancelling the wait unsubscribes."""
    with listening as notified:
        try:
            async with asyncio.timeout(timeout):
                while (found := await read()) is None and not ended():
                    await notified.wait()
                    notified.clear()
                return found
        except TimeoutError:
            return await read()


# --- interests


def whole_namespace(namespace: str) -> tuple[str, ...]:
    """The interest in every record of a namespace."""
    return (f"record:{quote(namespace, safe='')}/*",)


def what_overlaps(resource: str) -> tuple[str, ...]:
    """The interests in every claim that overlaps a resource."""
    same_or_above = tuple(claim_stream(name) for name in covering(resource))
    return (*same_or_above, claim_stream(resource) + "*") if resource.endswith("/") else same_or_above


def concerned(stream: str) -> Iterator[str]:
    """Every interest that matches a stream: its waiters must read again when the stream grows."""
    yield stream
    yield "*"
    for at, character in enumerate(stream, start=1):
        if character in ":/":
            yield stream[:at] + "*"
