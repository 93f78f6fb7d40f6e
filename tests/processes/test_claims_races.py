"""Many agents in several processes want one resource: one gets it, the others in their turn, and nothing gets lost."""

import asyncio
import itertools
import statistics
import threading
import time
from typing import Any

import pytest

from holdlog import AsyncStateStore, StateStore
from holdlog.domain.claims.claim import ClaimExpired, ClaimQueued, ClaimReleased, ClaimUnqueued
from tests.processes.conftest import EVERY_STORE, EVERY_STORE_IN_TIME, Serve, Start
from tests.support.processes.claimants import (
    change,
    ended,
    granted,
    leases,
    require_one_holder_at_a_time,
    steady,
    told_of,
    waiting,
)
from tests.support.processes.soundness import Place, require_sound
from tests.support.processes.workers import Worker, until
from tests.support.slow import check, slow

PROCESSES = 4
MANY = [
    (8, 200, "threads"),
    (8, 200, "coroutines"),
    (32, 200, "threads"),
    (32, 200, "coroutines"),
    (128, 200, "coroutines"),
]


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize(
    ("claimants", "rounds", "how", "resource"),
    [
        (8, 30, "threads", "the same"),
        *check((32, 20, "coroutines", "fresh"), (128, 5, "coroutines", "the same")),
        *slow(
            (8, 30, "threads", "fresh"),
            (32, 20, "coroutines", "the same"),
            (128, 5, "coroutines", "fresh"),
            *((*many, resource) for many in MANY for resource in ("the same", "fresh")),
        ),
    ],
)
def test_one_of_many_claimants_gets_the_claim_every_time(
    place: Place, claimant: Start, claimants: int, rounds: int, how: str, resource: str
) -> None:
    workers = [claimant("race", place, f"p{it}", claimants // PROCESSES, how) for it in range(PROCESSES)]
    for worker in workers:
        worker.hear()
    winners = []
    for number in range(rounds):
        for worker in workers:
            worker.tell("a.md" if resource == "the same" else f"a-{number}.md")
        said = [worker.hear() for worker in workers]
        won = [winner for it in said for winner in zip(it["won"], it["versions"], strict=True)]
        assert len(won) == 1, f"round {number}: {won}"
        assert sum(it["busy"] for it in said) == claimants - 1
        winners += won
    names = ["a.md"] if resource == "the same" else [f"a-{number}.md" for number in range(rounds)]
    assert [grant for name in names for grant in granted(place, name)] == winners
    require_one_holder_at_a_time(place)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_hundred_waiters_are_granted_in_the_order_of_their_tickets(place: Place, claimant: Start) -> None:
    with StateStore(place) as holder:
        first: Any = holder.claim("a.md", agent="first")
        workers = [claimant("stand_in_line", place, "a.md", f"p{it}", 25, 45) for it in range(PROCESSES)]
        until(lambda: waiting(place) == 100)
        assert holder.release("a.md", agent="first").status == "released"
        served = collected(workers)
        assert granted(place, "a.md") == [("first", first.version), *by_turn(place, served)]
        assert len(served) == 100
        require_all_released(place, "a.md")
    require_one_holder_at_a_time(place)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_waiters_that_time_out_and_return_keep_their_queue_positions(place: Place, claimant: Start) -> None:
    with StateStore(place) as holder:
        first: Any = holder.claim("a.md", agent="first")
        workers = [claimant("stand_in_line", place, "a.md", f"p{it}", 5, 0.3, 0, 0.3, 45) for it in range(PROCESSES)]
        until(lambda: waiting(place, seconds=10) == 20)
        holder.release("a.md", agent="first")
        served = collected(workers)
        said = [said for worker in workers for said in worker.said]
        tickets = {(it["agent"], it["ticket"]) for it in said if it["status"] == "busy"}
        assert len([it for it in said if it["status"] == "busy"]) == 60
        assert len(tickets) == 20
        assert granted(place, "a.md") == [("first", first.version), *by_turn(place, served)]
    assert not [it for it in told_of(place) if isinstance(it.event, ClaimUnqueued)]
    require_all_released(place, "a.md")
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_waits_that_time_out_during_a_grant_lose_and_duplicate_none(place: Place, claimant: Start) -> None:
    times = 40 if isinstance(place, str) else 60
    workers = [claimant("hurry", place, "a.md", f"p{it}", 5, times) for it in range(PROCESSES)]
    for worker in workers:
        worker.rest()
        assert worker.process.returncode == 0, worker.complaints
    said = [said for worker in workers for said in worker.said]
    assert {it["released"] for it in said} == {"released"}
    answered = [(it["agent"], it["version"]) for it in said]
    log = granted(place, "a.md")
    ends = ended(place, "a.md")
    queued = [it for it in told_of(place) if isinstance(it.event, ClaimQueued)]
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(log)
    # A grant that came between the last wait and the leaving was collected by nobody, and let go there.
    assert len(log) - len(answered) <= 20
    assert len(ends) == len(log)
    assert all(isinstance(end, ClaimReleased) for end in ends.values())
    assert len(queued) > 50, "nobody waited"
    require_one_holder_at_a_time(place)
    require_sound(place)
    with StateStore(place) as store:
        assert store.status("a.md").status == "available"


@pytest.mark.check
@EVERY_STORE
async def test_grant_of_a_cancelled_waiter_goes_to_the_next(place: Place) -> None:
    with StateStore(place) as holder:
        holder.claim("a.md", agent="first")
        async with AsyncStateStore(place) as cancelled:
            second = asyncio.create_task(cancelled.claim("a.md", agent="second", wait_seconds=30))
            await asyncio.to_thread(until, lambda: waiting(place) == 1)
            third = asyncio.create_task(asyncio.to_thread(holder.claim, "a.md", agent="third", wait_seconds=30))
            await asyncio.to_thread(until, lambda: waiting(place) == 2)
            released: Any = holder.release("a.md", agent="first")  # the loop stands: the waiter has not heard of it
            assert released.granted_to == "second"
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            ((_, agent, deadline, *_),) = leases(place, "kind = 'offered'")
            assert agent == "second"
            assert 25 < (deadline - steady(place)) / 1_000_000 <= 30
            assert not third.done()
            await asyncio.to_thread(change, place, "UPDATE leases SET deadline = 1 WHERE kind = 'offered'")
            assert (await third).status == "claimed"
            assert (await cancelled.status("a.md", 1)).held_by == "third"  # type: ignore[union-attr]
    (missed,) = [it.event for it in told_of(place, "a.md") if isinstance(it.event, ClaimExpired)]
    assert (missed.agent, missed.collected) == ("second", False)
    require_one_holder_at_a_time(place)
    require_sound(place)


@pytest.mark.check
@EVERY_STORE
async def test_cancelled_waiter_keeps_its_place_or_is_granted_and_nothing_else(place: Place) -> None:
    """The cancellation comes before, while and after the grant is made in another thread."""
    outcomes = set()
    with StateStore(place) as holder:
        async with AsyncStateStore(place) as store:
            for number in range(30 if isinstance(place, str) else 60):
                resource = f"a-{number}.md"
                holder.claim(resource, agent="holder")
                task = asyncio.create_task(store.claim(resource, agent="waiter", wait_seconds=30))
                while not leases(place, "resource = ? AND present_until > 0", resource):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                thread = threading.Thread(target=holder.release, args=(resource,), kwargs={"agent": "holder"})
                thread.start()
                await asyncio.sleep(number % 30 * 0.0003)
                if number % 30 == 29:  # however slow the machine is
                    await asyncio.wait([task])
                task.cancel()
                (answer,) = await asyncio.gather(task, return_exceptions=True)
                thread.join()
                if isinstance(answer, asyncio.CancelledError):
                    again: Any = await store.claim(resource, agent="waiter")
                    outcomes.add("cancelled")
                else:
                    again = answer
                    outcomes.add("granted")
                assert again.status in ("claimed", "already_claimed")  # cancelled when it had been collected
                assert [agent for agent, _ in granted(place, resource)] == ["holder", "waiter"]
                assert (await store.release(resource, agent="waiter")).status == "released"
                assert not leases(place, "resource = ?", resource)
    assert outcomes == {"cancelled", "granted"}
    require_sound(place)


@EVERY_STORE
def test_release_grants_to_the_waiter_of_another_process(place: Place, claimant: Start) -> None:
    times = 30 if isinstance(place, str) else 100
    workers = {agent: claimant("hand_over", place, "a.md", agent, times) for agent in ("ann", "ben")}
    turns = [said | {"agent": agent} for agent, worker in workers.items() for said in worker.rest()]
    turns.sort(key=lambda turn: turn["version"])
    assert len(turns) == 2 * times
    latencies = []
    for turn, following in itertools.pairwise(turns):
        if turn["granted_to"] is not None:
            assert turn["granted_to"] == following["agent"] != turn["agent"]
            latencies.append(following["came"] - turn["let_go"])
    assert len(latencies) >= 2 * times - 3  # the last ones find nobody in line
    report("library", latencies)
    require_one_holder_at_a_time(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_release_grants_to_the_agent_of_another_server(place: Place, serve: Serve) -> None:
    holder, waiter = serve(), serve()
    name = {holder: "ann", waiter: "ben"}
    assert holder("claim", resource="a.md", agent="ann")["status"] == "claimed"
    latencies = []
    for _ in range(30 if isinstance(place, str) else 100):
        number = waiter.ask("claim", resource="a.md", agent=name[waiter], wait_seconds=30)
        until(lambda: waiting(place) == 1)
        let_go = time.monotonic()
        asked = holder.ask("release", resource="a.md", agent=name[holder])
        assert waiter.answer(number)["status"] == "claimed"
        latencies.append(time.monotonic() - let_go)
        assert holder.answer(asked)["granted_to"] == name[waiter]
        holder, waiter = waiter, holder
    report("stdio", latencies)
    require_one_holder_at_a_time(place)


def collected(workers: list[Worker]) -> dict[str, int]:
    """What each agent got, once all have ended."""
    for worker in workers:
        worker.rest()
        assert worker.process.returncode == 0, worker.complaints
    said = [said for worker in workers for said in worker.said if said["status"] == "claimed"]
    assert len({it["agent"] for it in said}) == len(said)
    return {it["agent"]: it["version"] for it in said}


def by_turn(place: Place, served: dict[str, int]) -> list[tuple[str, int]]:
    """What the agents got, in the order in which they came to stand in line."""
    queued = [it.event for it in told_of(place, "a.md") if isinstance(it.event, ClaimQueued)]
    return [(event.agent, served[event.agent]) for event in sorted(queued, key=lambda event: event.turn)]


def require_all_released(place: Place, resource: str) -> None:
    """Every grant was collected and let go by its holder."""
    ends = ended(place, resource)
    assert len(ends) == len(granted(place, resource))
    assert all(isinstance(end, ClaimReleased) for end in ends.values())


def report(what: str, latencies: list[float]) -> None:
    """Figures, for who runs it with -s; no promise hangs on them here."""
    cuts = statistics.quantiles(latencies, n=100)
    print(f"\n{what}: release to claimed, p50 {cuts[49] * 1000:.2f} ms, p99 {cuts[98] * 1000:.2f} ms")
