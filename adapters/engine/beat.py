"""Keeps the holders of this process alive, and records expiries: one thread, from the first claim until the store is
closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.stores.sql import CONVERSATION_HOSTS, HOLDERS_OF_HOST
from holdlog.domain.claims.commands import Beat, Leave, Renewal
from holdlog.domain.claims.holder import BEAT_DIVISOR, HolderId
from holdlog.domain.moment import LEASE, SECOND, Caller
from holdlog.domain.refusals import HoldlogError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.engine.engine import Engine

RETRY_SECONDS: Final = 1.0
"""Pause after a beat that could not be written."""


class Beats:
    """The holders that this process beats for, if its callers have a `handle`."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._recent: set[HolderId] = set()
        """Holders that got a grant or ticket since the last beat began."""
        self.holders: dict[HolderId, Caller] = {}
        """Holders that may hold something, with their last caller."""
        self._calls: dict[object, tuple[HolderId, tuple[Renewal, ...], Any]] = {}
        """The open calls: for each, its holder, the leases to renew, and the request that it waits for, if any."""
        self._shortest_lease = LEASE
        """In microseconds. The next beat comes after a part of it."""
        self.is_running = False
        self._server: Caller | None = None
        self._wake = threading.Event()
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread; call it before the first grant. Raises UnavailableError."""
        with self._lock:
            if self.is_running:
                return
            try:
                threading.Thread(target=self._run, name="holdlog-beat", daemon=True).start()
            except RuntimeError as error:
                raise UnavailableError("this process cannot start a thread that keeps claims; try again") from error
            self.is_running = True

    def serve(self, caller: Caller) -> None:
        """Also beat for the agents of the caller's host whose calls come through hooks. Raises UnavailableError."""
        self._server = caller
        self.start()

    def follow(self, who: HolderId, caller: Caller) -> None:
        """Beat for a holder that gets a grant or ticket in the current transaction, until it holds nothing."""
        if caller.handle is None:
            return
        self._recent.add(who)
        if caller.request_id is not None:
            caller = caller._replace(request_id=None)  # a beat must not count as a repeat of that request
        if self.holders.get(who) == caller:
            return
        with self._lock:
            self.holders[who] = caller
        if caller.lease < self._shortest_lease:
            self._wake.set()

    @contextmanager
    def open_call(self, who: HolderId, renewals: tuple[Renewal, ...] = (), waits_for: Any = None) -> Iterator[None]:
        """While the block runs, each beat counts as a call of the holder, and renews these leases."""
        call = object()
        try:
            self._calls[call] = who, renewals, waits_for
            if renewals:
                self._wake.set()  # they may be shorter than a beat
            yield
        finally:
            self._calls.pop(call, None)

    def is_awaited(self, request: Any) -> bool:
        """Whether an open call waits for this request."""
        return any(waits_for == request for _, _, waits_for in list(self._calls.values()))

    def list_in_calls(self) -> frozenset[HolderId]:
        """The holders that have an open call in this process."""
        return frozenset(who for who, _, _ in list(self._calls.values()))

    def stop(self, calling: frozenset[HolderId]) -> list[tuple[Leave, Caller]]:
        """Stop beating, because the engine is being closed. `calling`: holders with open calls. Returns the commands
        that record it, with their callers."""
        self._is_stopped = True
        self._wake.set()
        with self._lock:
            holders = dict(self.holders)
        in_conversations = frozenset(holders)
        with suppress(HoldlogError):
            rows = self._engine.store.read(CONVERSATION_HOSTS, {}) if holders else ()
            conversations = {session for session, _, has_ended in rows if not has_ended}  # continue without us
            in_conversations = frozenset(who for who in holders if who.session in conversations)
        return [(Leave(calling, in_conversations), caller) for caller in set(holders.values())]

    def _run(self) -> None:
        wait = self._find_pause()
        while True:
            self._wake.wait(wait)
            self._wake.clear()
            if self._is_stopped:
                return
            try:
                self._beat()
                wait = self._find_pause()
            except Exception:  # the next beat may succeed
                wait = RETRY_SECONDS

    def _find_pause(self) -> float:
        """Seconds until the next beat: a part of the shortest lease."""
        with self._lock:
            callers = filter(None, (*self.holders.values(), self._server))
            self._shortest_lease = min((caller.lease for caller in callers), default=LEASE)
        pauses = [renewal.lease / 3 for _, renewals, _ in list(self._calls.values()) for renewal in renewals]
        return min(*pauses, self._shortest_lease / BEAT_DIVISOR, LEASE) / SECOND

    def _beat(self) -> None:
        if self._server is not None and self._server.host is not None:
            times = {"host": self._server.host, "now": self._engine.store.steady()}
            for agent, session in self._engine.store.read(HOLDERS_OF_HOST, times):
                with self._lock:
                    self.holders.setdefault(HolderId(agent, session), self._server._replace(session=session))
        with self._lock:
            callers, self._recent = set(self.holders.values()), set()
        for caller in callers:
            with self._lock:
                holders = tuple(who for who, last_caller in self.holders.items() if last_caller == caller)
            calls = list(self._calls.values())
            renewals = tuple(renewal for _, renewals, _ in calls for renewal in renewals)
            beat = Beat(holders, self.list_in_calls(), renewals)
            active = self._engine.run(beat, caller)
            with self._lock:
                for who in holders:
                    if who not in active and who not in self._recent and self.holders.get(who) == caller:
                        del self.holders[who]
