"""What happens by itself: news are never overlooked, whoever brings them and whenever."""

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.group_commit import Writer
from holdlog.adapters.runtime.lease_maintenance import LeaseMaintenance
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.commands import ClaimAcquired
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.retention import ChangeRetention
from tests.support.claim_calls import claim, left
from tests.support.clock import Clock
from tests.support.commands import run, until, whole_log, write

GRACE = 0.03
IDLE_LIMIT = 100.0


class WatchedClock(Clock):
    """Counts the looks of the thread that keeps leases."""

    looks = 0

    def steady(self) -> int:
        if threading.current_thread().name == "holdlog-upkeep":
            self.looks += 1
        return super().steady()

    def until_it_rests(self) -> None:
        """It sees nothing to do any more."""
        before = -1
        while self.looks > before:
            before = self.looks
            time.sleep(3 * GRACE)


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def store(clock: WatchedClock) -> SqliteStore:
    return open_memory(clock, clock.steady)


@pytest.fixture
def upkeep(store: SqliteStore, clock: WatchedClock) -> Iterator[LeaseMaintenance]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # races are frequent then
    kept = LeaseMaintenance(
        store, Writer(store, ProcessNotifier()), clock.steady, lambda server: True, GRACE, IDLE_LIMIT
    )
    yield kept
    kept.close()
    sys.setswitchinterval(before)


def held(store: SqliteStore) -> ClaimAcquired:
    return claim(store, lease=300 * SECOND, explicit=True)


def test_grant_is_renewed_even_if_it_arrives_as_the_thread_falls_asleep(
    upkeep: LeaseMaintenance, clock: WatchedClock
) -> None:
    for _ in range(3_000):
        upkeep.keep("a", 1)
        upkeep.stop_keeping("a", 1)
        before = clock.looks
        upkeep.keep("a", 1)
        until(lambda seen=before: clock.looks > seen)  # type: ignore[misc]
        upkeep.stop_keeping("a", 1)


def test_sessions_added_during_a_renewal_stop_no_renewals(
    upkeep: LeaseMaintenance, store: SqliteStore, clock: WatchedClock
) -> None:
    held(store)
    upkeep.keep_sessions("v1", "s1")
    for number in range(30_000):
        upkeep.record_call(f"other {number}")
    clock.pass_by(101)
    upkeep.record_call("s1")
    until(lambda: left(store, clock) == 300)


def test_session_that_calls_again_after_the_idle_limit_is_renewed_again(
    upkeep: LeaseMaintenance, store: SqliteStore, clock: WatchedClock
) -> None:
    held(store)
    upkeep.keep_sessions("v1", "s1")
    clock.pass_by(IDLE_LIMIT + 50)
    clock.until_it_rests()
    assert left(store, clock) == 150
    upkeep.record_call("s1")
    until(lambda: left(store, clock) == 300)


def test_ctrl_c_as_the_maintenance_thread_starts_loses_no_renewal(
    upkeep: LeaseMaintenance, store: SqliteStore, clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = held(store)

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            upkeep.keep("a", taken.version)
    clock.pass_by(101)
    upkeep.keep("a", taken.version)
    until(lambda: left(store, clock) == 300)


def test_former_values_that_are_due_are_removed_by_the_maintenance_thread(
    upkeep: LeaseMaintenance, store: SqliteStore, clock: WatchedClock
) -> None:
    run(store, ChangeRetention(namespace="n", seconds=10, by="ann"))
    write(store, "a", 1)
    write(store, "a", 2)
    clock.pass_by(11)
    upkeep.apply_retention()
    until(lambda: whole_log(store)[1].redacted)
    assert not whole_log(store)[2].redacted
