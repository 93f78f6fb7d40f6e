"""Tails the log once for all coroutines of an event loop, and wakes those that new events concern."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import Final

from holdlog.adapters.runtime.read_batcher import ReadBatcher
from holdlog.domain.ports import Notifier, Store
from holdlog.domain.refusals import HoldlogError
from holdlog.projections.waiting import concerned

READ_AT_ONCE: Final = 1_000
"""Log entries; reading them takes about 2 ms."""
WOKEN_AT_ONCE: Final = 8
"""Waiters woken per iteration of the loop; each may read the store, so other tasks run in between."""

OnChange = Callable[[frozenset[str] | None], None]


class LogTailer:
    """Follows the log while there are listeners. Use it only on the event loop that created it.
    A caller that first listens and then reads the store misses nothing: later commits cause a notification.
    """

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self.read_batcher = ReadBatcher(store)
        self._store = store
        self._notifier = notifier
        self._loop = asyncio.get_running_loop()
        self._subscription = ExitStack()
        self._listeners = 0
        self._subscribers: list[OnChange] = []
        self._waiters: dict[str, dict[asyncio.Event, None]] = {}
        self._to_wake: dict[asyncio.Event, None] = {}
        self._notified = False
        self._reading: asyncio.Task[None] | None = None
        self._position: int | None = None  # notified up to here; None: report that any stream may have grown

    @contextmanager
    def subscribe(self, on_change: OnChange) -> Iterator[None]:
        """Call `on_change` on the loop, while the block runs, with the names of the streams that have new events
        (`domain/names.py`), once for many events; with None if any stream may have some. It must not block.
        The names only prompt a read, like any notification: these streams grew since the block began or since the
        previous call. One more call may come after the block.
        """
        with self._listening():
            self._subscribers.append(on_change)
            try:
                yield
            finally:
                self._subscribers.remove(on_change)

    @contextmanager
    def listen(self, concerns: Sequence[str]) -> Iterator[asyncio.Event]:
        """Yield an event that is set when something that concerns the waiter may be new (projections/waiting.py)."""
        woken = asyncio.Event()
        with self._listening():
            for concern in concerns:
                self._waiters.setdefault(concern, {})[woken] = None
            try:
                yield woken
            finally:
                self._to_wake.pop(woken, None)
                for concern in concerns:
                    waiters = self._waiters[concern]
                    del waiters[woken]
                    if not waiters:
                        del self._waiters[concern]

    def wake_all(self) -> None:
        """Wake all waiters, whatever they wait for. Callable from any thread."""
        with suppress(RuntimeError):  # the loop is closed: it has no waiters
            self._loop.call_soon_threadsafe(self._notify, None)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if not self._listeners:
            self._position, self._notified = None, False
            self._subscription.enter_context(self._notifier.listen(self._listen))
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._subscription.close()

    def _listen(self) -> None:
        """Schedule a read of the log. Callable from any thread; notifications that arrive before the read are
        merged."""
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._reading is None:
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            while self._notified and self._listeners:
                self._notified = False
                self._notify(await asyncio.to_thread(self._news) if self._store.remote else self._news())
                await asyncio.sleep(0)
        finally:
            self._reading = None

    def _news(self) -> frozenset[str] | None:
        """The streams that grew; None if any may have."""
        before = self._position
        try:
            with self._store.reader() as reader:
                if before is not None:
                    entries = reader.entries(max(0, before - 1), READ_AT_ONCE)
                    if before == 0 or (entries and entries[0].position == before):
                        if len(entries) == READ_AT_ONCE:
                            self._notified = True  # there may be more
                        self._position = entries[-1].position if entries else before
                        return frozenset(it.stream for it in entries if it.position > before)
                self._position = reader.position()  # first read, or the log was reset: nothing to compare with
        except HoldlogError:  # closed, locked, lost: callers get the cause when they read
            self._position = None
        return None

    def _notify(self, streams: frozenset[str] | None) -> None:
        if streams is None:
            concerns = list(self._waiters)
        else:
            concerns = [concern for stream in streams for concern in concerned(stream)] if self._waiters else []
        if streams is None or streams:
            for on_change in self._subscribers:
                self._loop.call_soon(on_change, streams)
        waking = bool(self._to_wake)
        for concern in concerns:
            self._to_wake |= self._waiters.get(concern, {})
        if self._to_wake and not waking:
            self._wake_some()

    def _wake_some(self) -> None:
        for woken in tuple(islice(self._to_wake, WOKEN_AT_ONCE)):
            del self._to_wake[woken]
            woken.set()
        if self._to_wake:
            self._loop.call_soon(self._wake_some)
