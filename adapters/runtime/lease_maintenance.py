"""Lease maintenance: renews the leases that this process keeps, ends what is due while calls wait, and removes former
values that are due.
Uses one thread, which runs only while there is work.
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
from holdlog.domain.retention import ApplyRetention, RetentionApplied, is_due

SWEEP_EVERY: Final = 1.0
"""Seconds between checks for due leases and ended processes, while calls wait."""
SOONEST: Final = 0.001
TOUCH_SECONDS: Final = 5.0
"""Seconds between records that sessions kept alive by their calls are alive; less than `TOUCH_EVERY`."""
RETENTION_EVERY: Final = 60.0
"""Seconds between checks for former values that are due, and between two parts of them (`RETENTION_PAUSE`)."""
RETENTION_PAUSE: Final = 1.0
PARTS: Final = 3
"""A lease is renewed after this fraction (1/PARTS) of its duration."""


class LeaseMaintenance:
    """Maintains leases. `steady`: the clock of leases. `connected`: whether a process is alive. `paused`: whether the
    turn of a session has ended, so that nothing renews what it holds; `resume`: ends that. Durations in seconds.
    Thread-safe."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        steady: Callable[[], int],
        connected: Callable[[str], bool],
        grace: float,
        idle_limit: float,
        heirs: Callable[[Sequence[str], Reader], tuple[tuple[str, str, str], ...]] = lambda gone, reader: (),
        paused: Callable[[str], bool] = lambda session: False,
        resume: Callable[[str], bool] = lambda session: False,
    ) -> None:
        self._store = store
        self._writer = writer
        self._steady = steady
        self._connected = connected
        self._grace = grace
        self._idle_limit = idle_limit
        self._heirs = heirs
        self._paused = paused
        self._resume = resume
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._notified = False
        self._next_run = math.inf
        self._next_retention = math.inf
        self._waiters = 0
        self._server = ""
        self._last_calls: dict[str, int] = {}
        self._grants: Counter[tuple[str, int]] = Counter()
        self._requests: Counter[tuple[str | None, str]] = Counter()
        self._called: dict[tuple[str | None, str], int] = {}
        self._began: dict[tuple[str | None, str], int] = {}

    @contextmanager
    def request_of(self, principal: str | None, session: str) -> Iterator[None]:
        """Count an open request of a session that its calls keep alive, while the block runs."""
        with self._news:
            key = (principal, session)
            self._requests[key] += 1
            self._called[key] = self._began[key] = self._steady()
            if self._next_run > time.monotonic() + TOUCH_SECONDS:
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
        """Make due leases and values end on time while the block runs."""
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
        """Number of calls that wait now."""
        return self._waiters

    def keep_sessions(self, server: str, session: str | None) -> None:
        """Renew from now on what sessions that call through process `server` hold. `session`: its own session, which it
        keeps alive."""
        with self._news:
            self._server = server
            if session is not None:
                self._last_calls[session] = self._steady()
            self._wake()

    def record_call(self, session: str | None) -> None:
        """Record a call of this session: what it holds is renewed again."""
        if self._server and session is not None:
            was_paused = self._resume(session)  # its hooks may have been removed since its turn ended
            with self._news:
                now, before = self._steady(), self._last_calls.get(session)
                self._last_calls[session] = now
                if was_paused or before is None or now - before >= self._idle_limit * SECOND:  # renewal had stopped
                    self._wake()

    def took(self, lease: int) -> None:
        """Wake the thread if it would otherwise renew a new lease, of `lease` microseconds, too late."""
        if self._server:
            with self._news:
                if self._next_run > time.monotonic() + lease / SECOND / PARTS:
                    self._wake()

    def keep(self, resource: str, version: int) -> None:
        """Renew this grant until `stop_keeping` has been called as often as `keep`."""
        with self._news:
            self._grants[resource, version] += 1
            self._wake()

    def stop_keeping(self, resource: str, version: int) -> None:
        with self._news:
            self._grants -= Counter({(resource, version): 1})

    def apply_retention(self) -> None:
        """Remove former values that are due from now on."""
        with self._news:
            self._next_retention = 0.0
            self._wake()

    def close(self) -> None:
        """Stop. Nothing is renewed or expired after this returns."""
        with self._news:
            self._ended = True
            self._news.notify()
        thread = self._thread
        if _began(thread) and thread is not threading.current_thread():
            thread.join()

    def detach_after_fork(self) -> None:
        """Detach in a forked child, where the thread is gone."""
        self._news = threading.Condition()
        self._ended = True

    def _wake(self) -> None:
        """Wake or start the thread. The caller must hold the condition."""
        if not _began(self._thread) and not self._ended:
            self._thread = threading.Thread(target=self._run, name="holdlog-upkeep", daemon=True)
            self._thread.start()
        self._notified = True
        self._news.notify()

    def _run(self) -> None:
        while True:
            try:
                pause = min(self._sweep(), self._renew(), self._touch(), self._retain())
            except SealedError:  # a sealed store ends and renews nothing
                pause = threading.TIMEOUT_MAX
            except HoldlogError:  # locked, full, replaced: callers get the cause; this thread tries again
                pause = SWEEP_EVERY
            with self._news:
                if self._ended:
                    return
                if not self._notified:  # else a wake-up came during this pass: run another one immediately
                    self._next_run = time.monotonic() + pause
                    self._news.wait(pause if pause < threading.TIMEOUT_MAX else None)
                self._next_run = math.inf
                self._notified = False
                if self._ended:
                    return

    def _sweep(self) -> float:
        """End what is due. Returns seconds until the next pass."""
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
        """Seconds until the next lease, queued call or value ends; the processes that keep leases alive; and whether
        sessions kept alive by their calls have ended."""
        with self._store.reader() as reader:
            lease, value = reader.leases.next_end(), reader.next_value_end()
            ends = [SWEEP_EVERY] if lease is None else [(lease - self._steady()) / SECOND]
            if value is not None:
                ends.append((value - reader.at) / SECOND)
            return min(ends), reader.leases.servers(), reader.leases.has_idle_sessions(self._steady())

    def _renew(self) -> float:
        """Renew leases that need it. Returns seconds until the next pass, soon enough for leases that another process
        cut to the grace period."""
        if not self._server and not self._grants:
            return threading.TIMEOUT_MAX
        now = self._steady()
        with self._news:
            self._last_calls = {it: at for it, at in self._last_calls.items() if now - at < self._idle_limit * SECOND}
            recent = tuple(self._last_calls.items())
            grants = tuple(self._grants)
        sessions = tuple(it for it in recent if not self._paused(it[0]))
        with self._store.reader() as reader:
            of_sessions = (lease for session, _ in sessions for lease in reader.leases.of_session(session))
            kept = [lease for lease in of_sessions if lease.principal is None]
            kept += [lease for lease in reader.leases.of([it for it, _ in grants]) if lease.key in grants]
        kept = [lease for lease in kept if lease.kind == "held"]
        renewal_times = [lease.deadline - lease.duration + lease.duration // PARTS for lease in kept]
        left = any(lease.server != self._server and not self._connected(lease.server) for lease in kept)
        if left or any(at <= now for at in renewal_times):
            self._writer.run(Renew(server=self._server, sessions=sessions, grants=grants), NOBODY)
            renewal_times = [now + lease.duration // PARTS for lease in kept]
        if not renewal_times and not recent:
            return threading.TIMEOUT_MAX
        return min(self._grace / PARTS, max(SOONEST, (min(renewal_times, default=now + SECOND * 3600) - now) / SECOND))

    def _touch(self) -> float:
        """Record that sessions kept alive by their calls are alive. Returns seconds until the next pass."""
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

    def _retain(self) -> float:
        """Remove some of the former values that are due. Returns seconds until the next pass."""
        if self._next_retention == math.inf:
            return threading.TIMEOUT_MAX
        if (left := self._next_retention - time.monotonic()) <= 0:
            with self._store.reader() as reader:
                has_work = is_due(reader)
            outcome = self._writer.run(ApplyRetention(), NOBODY) if has_work else None
            left = RETENTION_PAUSE if isinstance(outcome, RetentionApplied) and outcome.more else RETENTION_EVERY
            self._next_retention = time.monotonic() + left
        return left


def _began(thread: threading.Thread | None) -> TypeGuard[threading.Thread]:
    """Whether the thread has started: Ctrl-C may come between its creation and its start."""
    return thread is not None and thread.ident is not None
