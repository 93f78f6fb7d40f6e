"""`claimed`: a block that holds a claim, for threads and for coroutines, on every store."""
# ruff: noqa: PT012 - it is the end of the block that raises

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from holdlog import (
    AsyncStateStore,
    BusyError,
    DeadlockError,
    FencedError,
    HeldClaim,
    InvalidError,
    Settings,
    StateStore,
    StoreError,
)
from holdlog.domain.claims.lease import Lease
from tests.support.commands import PATIENCE, until, until_async


class Awaited:
    """An AsyncStateStore that is used like a StateStore, blocks included."""

    def __init__(self, place: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._store = AsyncStateStore(place, **options)
        self._engine, self._requests = self._store._engine, self._store._requests

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._store, name)
        return lambda *arguments, **named: self._runner.run(call(*arguments, **named))

    def claimed(self, resource: str, **named: Any) -> "AwaitedBlock":
        return AwaitedBlock(self._runner, self._store.claimed(resource, **named))

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


class AwaitedBlock:
    def __init__(self, runner: asyncio.Runner, block: Any) -> None:
        self._runner = runner
        self._block = block

    def __enter__(self) -> HeldClaim:
        claim: HeldClaim = self._runner.run(self._block.__aenter__())
        return claim

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._block.__aexit__(kind, error, trace))


Library = Any
KINDS: list[Any] = [StateStore, Awaited]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[..., Library]:
    made: Callable[..., Library] = request.param
    return made


@pytest.fixture
def state(kind: Callable[..., Library], place: str) -> Iterator[Library]:
    store = kind(place)
    yield store
    store.close()


def force(state: Library, resource: str, reason: str = "stuck") -> None:
    """A person takes the claim away."""
    call = state._requests.claims.release(resource, "boss", note=reason, forced=True)
    state._engine.write(call, state._engine.caller)


def holder(state: Library, resource: str) -> str | None:
    found = state.status(resource)
    return found.held_by if found.status == "claimed" else None


def require_renewed(state: Library, resource: str) -> None:
    first = state.status(resource).expires_at
    until(lambda: bool((state.status(resource).expires_at - first).total_seconds() > 0.2))


# --- a block


def test_claimed_block_holds_its_resource_and_releases_it(state: Library) -> None:
    with state.claimed("./src//a.py", agent="ann") as claim:
        assert (claim.resource, claim.version, claim.position) == ("src/a.py", 1, 1)
        assert claim.answer.status == "claimed"
        assert holder(state, "src/a.py") == "ann"
        assert state.claim("src/a.py", agent="ben").status == "busy"
    assert holder(state, "src/a.py") is None
    assert state.claim("src/a.py", agent="ben").previous_outcome == "released"


def test_claimed_block_that_raises_releases_its_resource(state: Library) -> None:
    with pytest.raises(KeyError, match="mine"), state.claimed("a.md", agent="ann"):
        raise KeyError("mine")
    assert holder(state, "a.md") is None


def test_next_holder_sees_the_outcome_of_the_last_claimed_block(state: Library) -> None:
    with state.claimed("a.md", agent="ann", note="five minutes") as claim:
        assert state.status("a.md").holder_note == "five minutes"
        claim.outcome, claim.note = "modified", "tests are red"
        assert (claim.outcome, claim.note) == ("modified", "tests are red")
    with state.claimed("a.md", agent="ben", outcome="deleted") as claim:
        told = claim.answer
        assert (told.previous_holder, told.previous_outcome, told.previous_note) == ("ann", "modified", "tests are red")
    with state.claimed("a.md", agent="cleo") as claim:
        assert claim.answer.previous_outcome == "deleted"
        claim.moved_to = "./b.md"
        assert (claim.outcome, claim.moved_to) == ("moved", "b.md")
    again = state.claim("a.md", agent="dora")
    assert (again.previous_outcome, again.moved_to) == ("moved", "b.md")


def test_claimed_block_holds_several_resources_together(state: Library) -> None:
    with state.claimed("a.md", agent="ann", also=["b.md", "c/"]) as claim:
        assert [item["resource"] for item in claim.guard] == ["a.md", "b.md", "c/"]
        assert [holder(state, name) for name in ("a.md", "b.md", "c/x.py")] == ["ann"] * 3
    assert [holder(state, name) for name in ("a.md", "b.md", "c/x.py")] == [None] * 3


def test_claimed_blocks_share_a_resource_in_shared_mode(state: Library) -> None:
    with state.claimed("a.md", agent="ann", mode="shared"), state.claimed("a.md", agent="ben", mode="shared"):
        assert state.status("a.md").holders == ["ann", "ben"]


# --- not granted


def test_claimed_block_on_a_held_resource_is_busy_and_changes_nothing(state: Library) -> None:
    version = state.claim("a.md", agent="ben").version
    with pytest.raises(BusyError, match="ben") as busy, state.claimed("b.md", agent="ann", also=["a.md"]):
        raise AssertionError("must not run")
    assert (busy.value.hold.held_by, busy.value.hold.resource) == ("ben", "a.md")
    assert holder(state, "b.md") is None
    assert state.status("a.md", version).current


def test_two_claimed_blocks_that_wait_for_each_other_are_a_deadlock(state: Library) -> None:
    state.claim("a.md", agent="ben")
    with state.claimed("b.md", agent="ann"):
        waits = state._requests.claims.claim("b.md", "ben", wait_seconds=30).command
        state._engine.writer.run(waits, state._engine.caller)
        with (
            pytest.raises(DeadlockError, match="deadlock 2 agents"),
            state.claimed("a.md", agent="ann", wait_seconds=30),
        ):
            raise AssertionError("must not run")
        assert holder(state, "b.md") == "ann"


def test_claimed_block_queues_for_longer_than_one_call_may(kind: Callable[..., Library], place: str) -> None:
    state = kind(place, settings=Settings(max_wait=0.01))
    state.claim("a.md", agent="ben")

    def let_go_after_some_calls() -> list[Lease]:
        seen: list[Lease] = []

        def another_call() -> bool:
            with state._engine.store.reader() as reader:
                waits = [it for it in reader.leases.of(["a.md"]) if it.kind == "waits" and it.waiting_until]
            if waits and (not seen or waits[0].waiting_until > seen[-1].waiting_until):
                seen.append(waits[0])
            return len(seen) == 3

        until(another_call)
        state._engine.write(state._requests.claims.release("a.md", "ben"), state._engine.caller)
        return seen

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(let_go_after_some_calls)
        with state.claimed("a.md", agent="ann", wait_seconds=60) as claim:
            assert claim.answer.previous_holder == "ben"
        assert len({lease.version for lease in done.result()}) == 1  # the same place in line
    state.close()


def test_claimed_block_raises_busy_when_its_wait_times_out(state: Library) -> None:
    state.claim("a.md", agent="ben")
    with pytest.raises(BusyError, match="ben"), state.claimed("a.md", agent="ann", wait_seconds=0.05):
        raise AssertionError("must not run")


def test_claimed_block_that_times_out_leaves_the_queue_and_releases_nothing_else(state: Library) -> None:
    state.claim("a.md", agent="ben")
    state.claim("b.md", agent="ann")
    with pytest.raises(BusyError), state.claimed("a.md", agent="ann", also=["b.md", "c.md"], wait_seconds=0.05):
        raise AssertionError("must not run")
    board = state.board()
    assert (board.queues, [(it.resource, it.held_by) for it in board.claims]) == (
        [],
        [("a.md", "ben"), ("b.md", "ann")],
    )


@pytest.mark.parametrize(
    ("named", "which"),
    [
        ({"agent": " "}, "agent"),
        ({"agent": "ann", "outcome": "burnt"}, "outcome"),
        ({"agent": "ann", "outcome": "moved"}, "moved_to"),
        ({"agent": "ann", "wait_seconds": -1}, "wait_seconds"),
        ({"agent": "ann", "wait_seconds": float("nan")}, "wait_seconds"),
        ({"agent": "ann", "lease_seconds": 0.5}, "lease_seconds"),
        ({"agent": "ann", "mode": "mine"}, "mode"),
        ({"agent": "ann", "also": "b.md"}, "also"),
        ({"agent": "ann", "also": [f"{n}.md" for n in range(1_000)]}, "also"),
    ],
)
def test_claimed_block_refuses_a_bad_argument_before_it_claims_anything(
    state: Library, named: dict[str, Any], which: str
) -> None:
    with pytest.raises(InvalidError, match=which), state.claimed("a.md", **named):
        raise AssertionError("must not run")
    assert holder(state, "a.md") is None


def test_claimed_block_refuses_a_bad_outcome_where_it_is_set(state: Library) -> None:
    with state.claimed("a.md", agent="ann") as claim:
        with pytest.raises(InvalidError, match="outcome"):
            claim.outcome = "burnt"
        with pytest.raises(InvalidError, match="moved_to"):
            claim.outcome = "moved"
        with pytest.raises(InvalidError, match="moved_to"):
            claim.moved_to = "../b.md"
        with pytest.raises(InvalidError, match="note"):
            claim.note = "x" * 501
        claim.outcome = "created"
    assert state.status("a.md").previous_outcome == "created"


# --- lost


def test_guarded_write_in_a_claimed_block_succeeds_while_the_claim_is_held(state: Library) -> None:
    with state.claimed("a.md", agent="ann", also=["b.md"]) as claim:
        assert state.set("n", "k", 1, updated_by="ann", guard=claim.guard).version == 1
        with pytest.raises(FencedError):
            state.set("n", "k", 2, updated_by="ben", guard=claim.guard)
    with pytest.raises(FencedError):
        state.set("n", "k", 2, updated_by="ann", guard=claim.guard)


def test_a_lost_claim_fences_its_writes_and_the_end_of_its_block(state: Library) -> None:
    with pytest.raises(FencedError) as lost, state.claimed("a.md", agent="ann") as claim:
        force(state, "a.md", "it hangs")
        with pytest.raises(FencedError, match=r"a\.md"):
            state.set("n", "k", 1, updated_by="ann", guard=claim.guard)
    assert (lost.value.resource, lost.value.version, lost.value.reason) == ("a.md", 1, "it hangs")


def test_lost_claim_is_reported_even_after_others_held_and_released_it(state: Library) -> None:
    with pytest.raises(FencedError), state.claimed("a.md", agent="ann"):
        force(state, "a.md")
        state.claim("a.md", agent="ben")
        state.release("a.md", agent="ben")


def test_claimed_block_that_lost_its_claim_leaves_the_next_holder_alone(state: Library) -> None:
    with pytest.raises(FencedError) as lost, state.claimed("a.md", agent="ann", also=["b.md"]):
        force(state, "a.md")
        version = state.claim("a.md", agent="ben").version
    assert (lost.value.held_by, lost.value.current_version) == ("ben", version)
    assert state.status("a.md", version).current
    assert holder(state, "b.md") is None


def test_claimed_block_does_not_release_what_its_agent_claimed_again(state: Library) -> None:
    with pytest.raises(FencedError), state.claimed("a.md", agent="ann"):
        force(state, "a.md")
        version = state.claim("a.md", agent="ann").version
    assert state.status("a.md", version).current


def test_exception_of_a_claimed_block_precedes_that_of_the_loss(state: Library) -> None:
    with pytest.raises(KeyError), state.claimed("a.md", agent="ann"):
        force(state, "a.md")
        raise KeyError


def test_release_inside_a_claimed_block_is_not_a_loss(state: Library) -> None:
    with state.claimed("a.md", agent="ann"):
        assert state.release("a.md", agent="ann", outcome="modified").status == "released"
        state.claim("a.md", agent="ben")
    assert holder(state, "a.md") == "ben"


def test_closing_the_store_inside_a_claimed_block_is_reported(kind: Callable[..., Library], tmp_path: Path) -> None:
    store = kind(str(tmp_path / "state.db"))
    with pytest.raises(StoreError, match="closed"), store.claimed("a.md", agent="ann"):
        store._engine.close()


# --- an agent that holds it already


def test_claimed_block_keeps_a_claim_the_agent_held_before(state: Library) -> None:
    state.claim("a.md", agent="ann")
    with state.claimed("a.md", agent="ann") as claim:
        assert claim.answer.status == "already_claimed"
        assert claim.version == 1
    assert holder(state, "a.md") == "ann"


def test_inner_claimed_block_leaves_the_claim_to_the_outer_one(state: Library) -> None:
    with state.claimed("a.md", agent="ann") as outer:
        with state.claimed("a.md", agent="ann") as inner:
            assert inner.guard == outer.guard
        assert holder(state, "a.md") == "ann"
        assert state.set("n", "k", 1, updated_by="ann", guard=outer.guard).version == 1
    assert holder(state, "a.md") is None


def test_inner_claimed_block_releases_what_it_added(state: Library) -> None:
    with state.claimed("a.md", agent="ann"):
        with state.claimed("a.md", agent="ann", also=["b.md"]) as claim:
            assert len(claim.guard) == 2
        assert (holder(state, "a.md"), holder(state, "b.md")) == ("ann", None)
        with state.claimed("c.md", agent="ann", also=["a.md"]):
            pass
        assert (holder(state, "a.md"), holder(state, "c.md")) == ("ann", None)


def test_inner_claimed_block_reports_that_the_outer_claim_was_lost(state: Library) -> None:
    with (
        pytest.raises(FencedError, match="version 1"),
        state.claimed("a.md", agent="ann"),
        pytest.raises(FencedError, match="version 1"),
        state.claimed("a.md", agent="ann"),
    ):
        force(state, "a.md")


# --- renewed in the background


@pytest.mark.check
def test_claimed_block_outlives_its_lease(state: Library) -> None:
    with state.claimed("a.md", agent="ann", also=["b.md"], lease_seconds=1):
        require_renewed(state, "a.md")
        require_renewed(state, "b.md")
        with state.claimed("a.md", agent="ann"):
            pass  # its end does not end the renewals of the outer one
        require_renewed(state, "a.md")
    assert not state._engine.lease_maintenance._grants


def test_claim_made_before_a_claimed_block_is_renewed_inside_it(state: Library) -> None:
    state.claim("a.md", agent="ann", lease_seconds=1)
    with state.claimed("a.md", agent="ann"):
        require_renewed(state, "a.md")


# --- threads, coroutines, cancellations


def test_claimed_blocks_in_threads_exclude_each_other(place: str) -> None:
    inside: list[str] = []
    with StateStore(place) as store, ThreadPoolExecutor(8) as pool:
        store.set("n", "count", 0, updated_by="ann")

        def work(name: str) -> None:
            for _ in range(5):
                with store.claimed("a.md", agent=name, wait_seconds=60) as claim:
                    inside.append(name)
                    assert inside == [name]
                    count = store.get("n", "count").value
                    store.set("n", "count", count + 1, updated_by=name, guard=claim.guard)
                    inside.remove(name)

        list(pool.map(work, [f"agent-{number}" for number in range(8)]))
        assert store.get("n", "count").value == 40
        assert store.status("a.md").status == "available"


async def test_claimed_blocks_in_coroutines_exclude_each_other(place: str) -> None:
    inside: list[str] = []
    async with AsyncStateStore(place) as store:

        async def work(name: str) -> None:
            for _ in range(5):
                async with store.claimed("a.md", agent=name, wait_seconds=60):
                    inside.append(name)
                    await store.set("n", name, 1, updated_by=name)
                    assert inside == [name]
                    inside.remove(name)

        await asyncio.gather(*(work(f"agent-{number}") for number in range(8)))
        assert (await store.status("a.md")).status == "available"


async def test_cancelled_claimed_block_releases_its_resource(place: str) -> None:
    async with AsyncStateStore(place) as store:
        entered = asyncio.Event()

        async def work() -> None:
            async with store.claimed("a.md", agent="ann"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.status("a.md")).status == "available"


async def test_claimed_block_that_is_cancelled_while_queued_leaves_the_queue(place: str) -> None:
    async with AsyncStateStore(place) as store:
        await store.claim("a.md", agent="ben")
        block = store.claimed("a.md", agent="ann", wait_seconds=60)
        task = asyncio.ensure_future(block.__aenter__())

        def in_line() -> bool:
            with store._engine.store.reader() as reader:
                return bool(reader.queued())

        await until_async(in_line)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not in_line()


async def test_claimed_block_cancelled_while_it_is_granted_holds_nothing(place: str) -> None:
    async with AsyncStateStore(place) as store:
        for _ in range(50):
            task = asyncio.ensure_future(store.claimed("a.md", agent="ann").__aenter__())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.status("a.md")).status == "available"


async def test_claim_cancelled_while_it_gets_its_ticket_is_never_granted(place: str) -> None:
    """Or the resource would wait for it, free, while nobody comes."""
    async with AsyncStateStore(place) as store:
        await store.claim("a.md", agent="ben")
        engine = store._engine
        with engine.store.transaction(time.monotonic() + PATIENCE):  # its command is taken, and cannot be withdrawn
            task = asyncio.ensure_future(store.claim("a.md", agent="ann", wait_seconds=60))
            await asyncio.sleep(0)
            await until_async(lambda: engine.writer._led and not engine.writer._waiting)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # as anyio does
            with pytest.raises(asyncio.CancelledError):
                await task
        await until_async(
            lambda: (
                [it.present for queue in engine.read(store._requests.claims.board()).queues for it in queue.line]
                == [False]
            )
        )
        await store.release("a.md", agent="ben")
        assert (await store.claim("a.md", agent="cleo")).status == "claimed"


async def test_claim_cancelled_right_after_it_got_its_ticket_is_never_granted(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is asked whether the holder's process lives, which a database answers in a thread."""
    async with AsyncStateStore(place) as store:
        await store.claim("a.md", agent="ben")
        engine, asked, go_on = store._engine, threading.Event(), threading.Event()

        def connected(server: str) -> bool:
            asked.set()
            return go_on.wait(PATIENCE)

        monkeypatch.setattr(engine.store, "remote", True)
        monkeypatch.setattr(engine.liveness, "connected", connected)
        task = asyncio.ensure_future(store.claim("a.md", agent="ann", wait_seconds=60))
        await until_async(asked.is_set)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(
            lambda: (
                [it.present for queue in engine.read(store._requests.claims.board()).queues for it in queue.line]
                == [False]
            )
        )


def test_claimed_block_interrupted_while_queued_leaves_the_queue(place: str) -> None:
    with StateStore(place) as store, ThreadPoolExecutor(1) as pool:
        store.claim("a.md", agent="ben")

        def interrupt() -> None:
            until(lambda: bool(store.board().queues))
            os.kill(os.getpid(), signal.SIGINT)

        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt), store.claimed("a.md", agent="ann", wait_seconds=60):
            raise AssertionError("must not run")
        assert store.board().queues == []
