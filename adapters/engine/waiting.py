"""Waiting for changes. A notification only wakes: it may be lost, duplicated or late. So a caller that waits
subscribes, reads, sleeps and reads again."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from holdlog.adapters.engine.port import Listener, Store
from holdlog.adapters.stores.sql import HEAD, STREAMS_SINCE
from holdlog.domain.refusals import HoldlogError, UnavailableError

ALL: Final = ""
"""The topic for waiting for any event."""


class Wait(NamedTuple):
    """What a blocking query returns while it has no result. `until`: when it must read again even if no event came, in
    microseconds since 1970 (a value expires then)."""

    until: int | None = None


class Waiters:
    """The waiting calls of this process, by topic: a stream, a kind of streams such as `claim:`, or ALL. While there
    are any, one thread follows the commits of other processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.by_topic: dict[str, list[Callable[[], object]]] = {}
        self._position: int | None = None
        """Waiters have been woken for all events up to this position; None if there were no waiters since."""
        self._listener: Listener | None = None
        self._closed = False

    @contextmanager
    def subscribe(self, topics: tuple[str, ...], wake: Callable[[], object]) -> Iterator[None]:
        """Call `wake`, in any thread, after each event of one of the topics."""
        with self._lock:
            if self._listener is None and not self._closed:
                self._listener = self._store.listen(self._follow)
            for topic in topics:
                self.by_topic.setdefault(topic, []).append(wake)
        try:
            yield
        finally:
            with self._lock:
                for topic in topics:
                    self.by_topic[topic].remove(wake)
                    if not self.by_topic[topic]:
                        del self.by_topic[topic]

    def close(self) -> None:
        """Wake all waiters, and stop the thread."""
        with self._lock:
            self._closed = True
            listener, self._listener = self._listener, None
        self.wake_all()
        if listener is not None:
            listener.close()

    def _follow(self, is_new: bool = False) -> None:
        """Wake waiters after a possible commit of another process. `is_new`: the log may have become shorter."""
        if is_new or not self.by_topic:
            self._position = None
        if not self.by_topic:
            return
        after = self._position
        try:
            rows = self._store.read(HEAD if after is None else STREAMS_SINCE, {"after": after})
        except HoldlogError as error:
            if self._store.is_local or not isinstance(error, UnavailableError):  # a server is read again
                self.wake_all()  # those that wait read again, and get the error
            return
        if after is None:
            self._position = rows[0][0] if rows else 0
            self.wake_all()
        elif rows:
            self._position = rows[-1][0]
            self.wake({stream for _, stream in rows})

    def wake(self, streams: Iterable[str]) -> None:
        """Wake the waiters for one of the streams, and those for any event."""
        topics = {ALL}
        for stream in streams:
            topics |= {stream, stream[: stream.index(":") + 1]}
        with self._lock:
            wakes = [wake for topic in topics for wake in self.by_topic.get(topic, ())]
        _call(wakes)

    def wake_all(self) -> None:
        """Wake all waiters."""
        with self._lock:
            wakes = [wake for topic in self.by_topic.values() for wake in topic]
        _call(wakes)


def _call(wakes: Iterable[Callable[[], object]]) -> None:
    for wake in wakes:
        with suppress(RuntimeError):  # its event loop is closed
            wake()
