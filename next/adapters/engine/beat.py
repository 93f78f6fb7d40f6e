"""Keeps the holders of this process alive, and ends what is due: one thread, from the first claim to the last."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from holdlog.domain.claims.commands import Beat, Leave, Renewal
from holdlog.domain.claims.holder import BEAT_PART, Who
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import HoldlogError

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
        self._open: Counter[Who] = Counter()
        self._renewals: Counter[Renewal] = Counter()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._left = False

    def follow(self, who: Who, caller: Caller) -> None:
        """Beat for a holder that gets something in the transaction that runs, until it holds nothing."""
        if caller.process is None:
            return
        self._recent.add(who)
        if caller.request_id is not None:
            caller = caller._replace(request_id=None)  # a beat is no repeat of that request
        if self.holders.get(who) == caller:
            return
        with self._lock:
            self.holders[who] = caller
            if self._thread is None and not self._left:
                self._thread = threading.Thread(target=self._run, name="holdlog-beat", daemon=True)
                self._thread.start()

    @contextmanager
    def open_call(self, who: Who, renewals: tuple[Renewal, ...] = ()) -> Iterator[None]:
        """While a call of the holder runs, it is heard all the time, and its leases are prolonged."""
        with self._lock:
            self._open[who] += 1
            self._renewals.update(renewals)
        if renewals:
            self._wake.set()  # they may be shorter than a beat
        try:
            yield
        finally:
            with self._lock:
                self._open -= Counter([who])
                self._renewals -= Counter(renewals)

    def leave(self) -> None:
        """The process ends, or closes its store: stop beating, and say so."""
        with self._lock:
            if self._left:
                return
            self._left = True
            thread, callers = self._thread, dict(self.holders)
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with suppress(HoldlogError):  # then they end as if it had been killed
            for caller in set(callers.values()):
                holders = tuple(who for who, it in callers.items() if it == caller)
                self._engine.run(Leave(holders), caller)

    def _run(self) -> None:
        wait = self._count_seconds()
        while True:
            self._wake.wait(wait)
            if self._left:
                return
            self._wake.clear()
            try:
                self._beat()
                wait = self._count_seconds()
            except HoldlogError:
                wait = RETRY_SECONDS

    def _count_seconds(self) -> float:
        """Until the next beat: a part of the shortest lease."""
        with self._lock:
            leases = [caller.lease / BEAT_PART for caller in self.holders.values()]
            leases += [renewal.lease / 3 for renewal in self._renewals]
        return min(leases, default=20 * SECOND) / SECOND

    def _beat(self) -> None:
        with self._lock:
            callers, self._recent = set(self.holders.values()), set()
        for caller in callers:
            with self._lock:
                holders = tuple(who for who, it in self.holders.items() if it == caller)
                is_open, renewals = frozenset(self._open), tuple(self._renewals)
            active = self._engine.run(Beat(holders, is_open, renewals), caller)
            with self._lock:
                for who in holders:
                    if who not in active and who not in self._recent and self.holders.get(who) == caller:
                        del self.holders[who]
