"""Keeps the holders of this process alive, and ends what is due: one thread, from the first claim to the end of the
store."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.stores.sql import CONVERSATION_HOSTS, HOLDERS_OF_HOST
from holdlog.domain.claims.commands import Beat, Leave, Renewal
from holdlog.domain.claims.holder import BEAT_PART, Who
from holdlog.domain.moment import LEASE, SECOND, Caller
from holdlog.domain.refusals import HoldlogError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.engine.engine import Engine

RETRY_SECONDS: Final = 1.0
"""After a beat that could not be written."""


class Beats:
    """The holders that this process beats for, if its callers have a `process`."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._recent: set[Who] = set()
        """Those that got something since the last beat began."""
        self.holders: dict[Who, Caller] = {}
        """Those that may hold something, with their last caller."""
        self._calls: dict[object, tuple[Who, tuple[Renewal, ...], Any]] = {}
        """Those that are open, with what they wait for."""
        self._shortest = LEASE
        """The lease after a part of which the next beat comes."""
        self.is_running = False
        self._server: Caller | None = None
        self._wake = threading.Event()
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread, before there is anything that it must keep. Raises UnavailableError."""
        with self._lock:
            if self.is_running:
                return
            try:
                threading.Thread(target=self._run, name="holdlog-beat", daemon=True).start()
            except RuntimeError as error:
                raise UnavailableError("this process cannot start a thread that keeps claims; try again") from error
            self.is_running = True

    def serve(self, caller: Caller) -> None:
        """Beat for the agents of the caller's host, too, which make their calls by hooks. Raises UnavailableError."""
        self._server = caller
        self.start()

    def follow(self, who: Who, caller: Caller) -> None:
        """Beat for a holder that gets something in the transaction that runs, until it holds nothing."""
        if caller.handle is None:
            return
        self._recent.add(who)
        if caller.request_id is not None:
            caller = caller._replace(request_id=None)  # a beat is no repeat of that request
        if self.holders.get(who) == caller:
            return
        with self._lock:
            self.holders[who] = caller
        if caller.lease < self._shortest:
            self._wake.set()

    @contextmanager
    def open_call(self, who: Who, renewals: tuple[Renewal, ...] = (), waits_for: Any = None) -> Iterator[None]:
        """While a call of the holder runs, it is heard all the time, and its leases are prolonged."""
        call = object()
        try:
            self._calls[call] = who, renewals, waits_for
            if renewals:
                self._wake.set()  # they may be shorter than a beat
            yield
        finally:
            self._calls.pop(call, None)

    def is_awaited(self, request: Any) -> bool:
        """Whether a call waits for this."""
        return any(it[2] == request for it in list(self._calls.values()))

    def list_calling(self) -> frozenset[Who]:
        """The holders with a call that is open here."""
        return frozenset(who for who, _, _ in list(self._calls.values()))

    def stop(self, calling: frozenset[Who]) -> list[tuple[Leave, Caller]]:
        """Stop beating, as the engine is closed, in which these had open calls. Returns the commands that say so, with
        their callers."""
        self._is_stopped = True
        self._wake.set()
        with self._lock:
            holders = dict(self.holders)
        guests = frozenset(holders)
        with suppress(HoldlogError):
            rows = self._engine.store.read(CONVERSATION_HOSTS, {}) if holders else ()
            conversations = {session for session, _, has_ended in rows if not has_ended}  # go on without this process
            guests = frozenset(who for who in holders if who.session in conversations)
        return [(Leave(calling, guests), caller) for caller in set(holders.values())]

    def _run(self) -> None:
        wait = self._count_seconds()
        while True:
            self._wake.wait(wait)
            self._wake.clear()
            if self._is_stopped:
                return
            try:
                self._beat()
                wait = self._count_seconds()
            except Exception:  # whatever it is, the next beat may succeed
                wait = RETRY_SECONDS

    def _count_seconds(self) -> float:
        """Until the next beat: a part of the shortest lease."""
        with self._lock:
            callers = filter(None, (*self.holders.values(), self._server))
            self._shortest = min((caller.lease for caller in callers), default=LEASE)
        pauses = [renewal.lease / 3 for _, renewals, _ in list(self._calls.values()) for renewal in renewals]
        return min(*pauses, self._shortest / BEAT_PART, LEASE) / SECOND

    def _beat(self) -> None:
        if self._server is not None and self._server.host is not None:
            times = {"host": self._server.host, "now": self._engine.store.steady()}
            for agent, session in self._engine.store.read(HOLDERS_OF_HOST, times):
                with self._lock:
                    self.holders.setdefault(Who(agent, session), self._server._replace(session=session))
        with self._lock:
            callers, self._recent = set(self.holders.values()), set()
        for caller in callers:
            with self._lock:
                holders = tuple(who for who, it in self.holders.items() if it == caller)
            calls = list(self._calls.values())
            renewals = tuple(renewal for _, renewals, _ in calls for renewal in renewals)
            beat = Beat(holders, self.list_calling(), renewals)
            active = self._engine.run(beat, caller)
            with self._lock:
                for who in holders:
                    if who not in active and who not in self._recent and self.holders.get(who) == caller:
                        del self.holders[who]
