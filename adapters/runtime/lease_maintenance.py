"""What has to happen by itself: leases that this process keeps are renewed, and what is due ends while somebody waits.

One thread, which runs only while there is something to do.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeGuard

from holdlog.adapters.runtime.group_commit import Writer
from holdlog.domain.claims.commands import Renew, Sweep, TouchSessions
from holdlog.domain.claims.lease import BY_CALLS, SECOND
from holdlog.domain.message import NOBODY
from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import HoldlogError, SealedError

SWEEP_EVERY: Final = 1.0
"""Seconds between looks for what is due and for servers that ended, while somebody waits."""
SOONEST: Final = 0.001
TOUCH_SECONDS: Final = 5.0
"""Seconds between notes that sessions which live by their calls are alive; less than `TOUCH_EVERY`."""
PARTS: Final = 3
"""A lease is renewed when one of so many parts of it is over."""


class LeaseMaintenance:
    """`steady`: the clock of leases. `connected`: whether a server lives. Durations in seconds. Safe in threads."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        steady: Callable[[], int],
        connected: Callable[[str], bool],
        grace: float,
        idle_limit: float,
        heirs: Callable[[Sequence[str], Reader], tuple[tuple[str, str, str], ...]] = lambda gone, reader: (),
    ) -> None:
        self._store = store
        self._writer = writer
        self._steady = steady
        self._connected = connected
        self._grace = grace
        self._idle_limit = idle_limit
        self._heirs = heirs
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._told = False
        self._next_look = math.inf
        self._waiters = 0
        self._server = ""
        self._heard: dict[str, int] = {}
        self._grants: Counter[tuple[str, int]] = Counter()
        self._requests: Counter[tuple[str | None, str]] = Counter()
        self._called: dict[tuple[str | None, str], int] = {}
        self._began: dict[tuple[str | None, str], int] = {}

    @contextmanager
    def request_of(self, principal: str | None, session: str) -> Iterator[None]:
        """While the block runs, a session that lives by its calls has a request open."""
        with self._news:
            key = (principal, session)
            self._requests[key] += 1
            self._called[key] = self._began[key] = self._steady()
            if self._next_look > time.monotonic() + TOUCH_SECONDS:
                self._wake()
        try:
            yield
        finally:
            with self._news:
                self._requests[key] -= 1
                if not self._requests[key]:
                    del self._requests[key], self._began[key]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the block runs, what is due ends in time."""
        with self._news:
            self._waiters += 1
            if self._waiters == 1:
                self._wake()
        try:
            yield
        finally:
            with self._news:
                self._waiters -= 1

    @property
    def waiters(self) -> int:
        """How many calls wait now."""
        return self._waiters

    def keep_sessions(self, server: str, session: str | None) -> None:
        """From now on, renew what sessions that call through this server hold. `session`: its
        own, which it keeps alive."""
        with self._news:
            self._server = server
            if session is not None:
                self._heard[session] = self._steady()
            self._wake()

    def heard(self, session: str | None) -> None:
        """A call of this session came."""
        if self._server and session is not None:
            with self._news:
                now, before = self._steady(), self._heard.get(session)
                self._heard[session] = now
                if before is None or now - before >= self._idle_limit * SECOND:  # nothing of it is renewed any more
                    self._wake()

    def took(self, lease: int) -> None:
        """There may be a new lease to keep, of so many microseconds: the thread wakes if it would come too late."""
        if self._server:
            with self._news:
                if self._next_look > time.monotonic() + lease / SECOND / PARTS:
                    self._wake()

    def keep(self, resource: str, version: int) -> None:
        """Renew this grant until it is let go as often as it was to be kept."""
        with self._news:
            self._grants[resource, version] += 1
            self._wake()

    def stop_keeping(self, resource: str, version: int) -> None:
        with self._news:
            self._grants -= Counter({(resource, version): 1})

    def close(self) -> None:
        """When this returns, nothing is renewed or swept any more."""
        with self._news:
            self._ended = True
            self._news.notify()
        thread = self._thread
        if _began(thread) and thread is not threading.current_thread():
            thread.join()

    def detach_after_fork(self) -> None:
        """In a forked child, where the thread is gone."""
        self._news = threading.Condition()
        self._ended = True

    def _wake(self) -> None:
        """With the condition held."""
        if not _began(self._thread) and not self._ended:
            self._thread = threading.Thread(target=self._run, name="holdlog-upkeep", daemon=True)
            self._thread.start()
        self._told = True
        self._news.notify()

    def _run(self) -> None:
        while True:
            try:
                pause = min(self._sweep(), self._renew(), self._touch())
            except SealedError:  # nothing ends or is renewed here any more
                pause = threading.TIMEOUT_MAX
            except HoldlogError:  # locked, full, replaced: whoever calls learns the cause; this tries again
                pause = SWEEP_EVERY
            with self._news:
                if self._ended:
                    return
                if not self._told:  # news that came during the look were not looked at
                    self._next_look = time.monotonic() + pause
                    self._news.wait(pause if pause < threading.TIMEOUT_MAX else None)
                self._next_look = math.inf
                self._told = False
                if self._ended:
                    return

    def _sweep(self) -> float:
        """End what is due. Seconds until the next look."""
        if not self._waiters:
            return threading.TIMEOUT_MAX
        left, servers, idle = self._left()
        gone = tuple(server for server in servers if not self._connected(server))
        if gone or left <= 0 or idle:
            with self._store.reader() as reader:
                heirs = self._heirs(gone, reader)
            self._writer.run(Sweep(ended=gone, heirs=heirs, grace=round(self._grace * SECOND)), NOBODY)
            left, _, _ = self._left()
        return min(SWEEP_EVERY, max(SOONEST, left))

    def _left(self) -> tuple[float, list[str], bool]:
        """Seconds until the next lease, queueing call or value ends, the servers that keep leases alive, and whether
        sessions that lived by their calls have ended."""
        with self._store.reader() as reader:
            lease, value = reader.leases.next_end(), reader.next_value_end()
            ends = [SWEEP_EVERY] if lease is None else [(lease - self._steady()) / SECOND]
            if value is not None:
                ends.append((value - reader.at) / SECOND)
            return min(ends), reader.leases.servers(), reader.leases.has_idle_sessions(self._steady())

    def _renew(self) -> float:
        """Renew what is worn. Seconds until the next look, which comes in time for whoever cuts leases to the grace."""
        if not self._server and not self._grants:
            return threading.TIMEOUT_MAX
        now = self._steady()
        with self._news:
            self._heard = {it: at for it, at in self._heard.items() if now - at < self._idle_limit * SECOND}
            sessions = tuple(self._heard.items())
            grants = tuple(self._grants)
        with self._store.reader() as reader:
            of_sessions = (lease for session, _ in sessions for lease in reader.leases.of_session(session))
            kept = [lease for lease in of_sessions if lease.principal is None]
            kept += [lease for lease in reader.leases.of([it for it, _ in grants]) if lease.key in grants]
        kept = [lease for lease in kept if lease.kind == "held"]
        worn = [lease.deadline - lease.duration + lease.duration // PARTS for lease in kept]
        left = any(lease.server != self._server and not self._connected(lease.server) for lease in kept)
        if left or any(at <= now for at in worn):
            self._writer.run(Renew(server=self._server, sessions=sessions, grants=grants), NOBODY)
            worn = [now + lease.duration // PARTS for lease in kept]
        if not worn and not sessions:
            return threading.TIMEOUT_MAX
        return min(self._grace / PARTS, max(SOONEST, (min(worn, default=now + SECOND * 3600) - now) / SECOND))

    def _touch(self) -> float:
        """Note that sessions which live by their calls are alive. Seconds until the next look."""
        with self._news:
            called, self._called = self._called | self._began, {}
        if not called:
            return threading.TIMEOUT_MAX
        try:
            with self._store.reader() as reader:
                held = {*reader.leases.sessions_of(BY_CALLS), *reader.leases.sessions_of("")}
            if sessions := tuple((*it, at) for it, at in called.items() if it[1] in held):
                self._writer.run(TouchSessions(sessions=sessions), NOBODY)
        except HoldlogError:
            with self._news:
                self._called = called | self._called
            raise
        return TOUCH_SECONDS


def _began(thread: threading.Thread | None) -> TypeGuard[threading.Thread]:
    """Ctrl-C may come between the making of a thread and its start."""
    return thread is not None and thread.ident is not None
