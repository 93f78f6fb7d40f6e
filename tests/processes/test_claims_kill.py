"""Holders that are stopped or killed, at any moment: nobody else is blocked for long, and nobody writes unguarded."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdlog import FencedError, StateStore
from holdlog.adapters.api.settings import Settings
from tests.processes.conftest import EVERY_STORE_IN_TIME, Serve, Start
from tests.processes.test_kill import KILLED
from tests.support.processes.claimants import granted, require_one_holder_at_a_time, waiting
from tests.support.processes.soundness import Place, require_sound
from tests.support.processes.strace import STRACE, Strace
from tests.support.processes.workers import until
from tests.support.slow import slow

NOTICED, MARGIN, BUSY_MACHINE = 1.0, 1.0, 2.0
"""Seconds. While somebody waits, servers that ended are looked for once a second; the promise adds a second, and a test
a little more. What would not be noticed at all would last for a minute."""
GRACE = 1.0
ROUNDS = 5
"""How often one asks for the gate differs from run to run: one round of kills may miss what lies between."""
SHORT = ("--lease-seconds", 60, "--grace-seconds", GRACE)
SETTINGS = Settings(lease=60, grace=GRACE)
AT = {"namespace": "n", "key": "k"}


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_holder_stopped_beyond_its_lease_is_fenced_when_it_continues(place: Place, serve: Serve) -> None:
    slow = serve("--lease-seconds", 1)
    mine = slow("claim", resource="a.md", agent="slow")
    guard = [{"resource": "a.md", "version": mine["version"]}]
    assert slow("set", **AT, value=1, updated_by="slow", force=True, guard=guard)["status"] == "ok"
    with StateStore(place, settings=SETTINGS) as store:
        slow.stop()
        got: Any = store.claim("a.md", agent="next", wait_seconds=20)
        assert (got.status, got.previous_outcome, got.previous_holder) == ("claimed", "expired", "slow")
        slow.go_on()
        fenced = slow("set", **AT, value=2, updated_by="slow", force=True, guard=guard)
        assert (fenced["status"], fenced["held_by"], fenced["current_version"]) == ("fenced", "next", got.version)
        assert [(it["resource"], it["why"], it["held_by"]) for it in fenced["lost"]] == [("a.md", "expired", "next")]
        assert slow("release", resource="a.md", agent="slow")["status"] in ("expired", "not_holder")
        assert store.get("n", "k").value == 1
        assert store.status("a.md", got.version).current  # type: ignore[union-attr]
        assert store.release("a.md", agent="next").status == "released"
        assert slow("status", resource="a.md")["status"] == "available"
    require_one_holder_at_a_time(place)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_renewal_timer_does_not_revive_a_claim_that_expired_while_stopped(place: Place, serve: Serve) -> None:
    slow = serve("--lease-seconds", 1)
    version = slow("claim", resource="a.md", agent="slow")["version"]
    with StateStore(place, settings=SETTINGS) as store:
        slow.stop()
        until(lambda: store.status("a.md").status == "available")  # told by reading: nothing was written
        slow.go_on()
        renewed_beside = slow("claim", resource="b.md", agent="slow")
        until(lambda: slow("status", resource="b.md")["expires_in_seconds"] < 0.9)
        until(lambda: slow("status", resource="b.md")["expires_in_seconds"] > 0.9)  # the timer ran
        assert slow("status", resource="a.md")["status"] == "available"
        guard = [{"resource": "a.md", "version": version}]
        assert slow("set", **AT, value=2, updated_by="slow", force=True, guard=guard)["status"] == "fenced"
        assert renewed_beside["status"] == "claimed"
        with pytest.raises(FencedError):
            store.set("n", "k", 1, updated_by="slow", guard=guard)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize(
    ("lease", "grace", "how"),
    [
        (60, 1, "waits in another server"),
        (2, 60, "waits in the library"),
        (60, 1, "comes later"),
        *slow((2, 60, "waits in another server"), (60, 1, "waits in the library"), (2, 60, "comes later")),
    ],
)
def test_claim_of_a_killed_holder_is_free_within_lease_or_grace_and_a_second(
    place: Place, serve: Serve, how: str, lease: int, grace: int
) -> None:
    settings = ("--lease-seconds", lease, "--grace-seconds", grace)
    holder, other = serve(*settings), serve(*settings)
    assert holder("claim", resource="a.md", agent="holder")["status"] == "claimed"
    with StateStore(place, settings=Settings(lease=lease, grace=grace)) as store, ThreadPoolExecutor(1) as executor:
        if how == "waits in another server":
            number = other.ask("claim", resource="a.md", agent="next", wait_seconds=30)
            take: Callable[[], str] = lambda: str(other.answer(number)["status"])  # noqa: E731
        else:
            take = lambda: store.claim("a.md", agent="next", wait_seconds=30).status  # noqa: E731
        if how == "comes later":
            holder.kill()
            waits = executor.submit(take)
        else:
            waits = executor.submit(take)
            until(lambda: waiting(place) == 1)
            holder.kill()
        killed = time.monotonic()
        assert waits.result() == "claimed"
        assert time.monotonic() - killed < min(lease, NOTICED + grace) + MARGIN + BUSY_MACHINE
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_grant_to_a_killed_waiter_moves_on_within_the_grace_and_a_second(place: Place, serve: Serve) -> None:
    dead, other = serve(*SHORT), serve(*SHORT)
    with StateStore(place, settings=SETTINGS) as store:
        store.claim("a.md", agent="first", lease_seconds=60)
        dead.ask("claim", resource="a.md", agent="dead", wait_seconds=30)
        until(lambda: waiting(place) == 1)
        number = other.ask("claim", resource="a.md", agent="last", wait_seconds=30)
        until(lambda: waiting(place) == 2)
        dead.kill()
        released: Any = store.release("a.md", agent="first")
        let_go = time.monotonic()
        assert other.answer(number)["status"] == "claimed"
        assert time.monotonic() - let_go < NOTICED + GRACE + MARGIN + BUSY_MACHINE
        assert [agent for agent, _ in granted(place, "a.md")][-1] == "last"
        assert released.granted_to in ("dead", "last")
    require_one_holder_at_a_time(place)
    require_sound(place)


@pytest.mark.check
@STRACE
@pytest.mark.parametrize("call", ["pwrite64", *slow("fdatasync", "flock", "fcntl")])
def test_process_killed_at_any_system_call_of_a_claim_blocks_nobody(path: Path, claimant: Start, call: str) -> None:
    faults = Strace(claimant, path, call, "signal=KILL")
    seen: set[tuple[str, ...]] = set()

    def strike_each(store: StateStore, executor: ThreadPoolExecutor) -> None:
        for number in faults.numbers():
            assert store.claim("a.md", agent="first").status == "claimed"
            child = executor.submit(faults.strike, number)
            until(lambda child=child: waiting(path) or child.done())  # type: ignore[misc]
            store.release("a.md", agent="first")
            said, status = child.result()
            ended = time.monotonic()
            next_ = store.claim("a.md", agent="next", wait_seconds=20)
            assert time.monotonic() - ended < 0.1 + NOTICED + MARGIN + BUSY_MACHINE
            assert next_.status == "claimed", next_
            store.release("a.md", agent="next")
            require_one_holder_at_a_time(path)
            seen.add(tuple(key for line in said for key in line))
            if status == 0:
                return
            assert status & 0x7F == KILLED
            require_sound(path)
        pytest.fail("there were more calls than the test strikes")

    with StateStore(path, settings=Settings(grace=0.1)) as store, ThreadPoolExecutor(1) as executor:
        for _ in range(ROUNDS):
            strike_each(store, executor)
            if len(seen) > 2:
                break
    assert len(seen) > 2, "the kills did not strike in between"
