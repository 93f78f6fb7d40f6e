"""`claimed`: a block that holds a claim, for threads and for coroutines."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.claims import LONG, file_alone, holders, line, take
from tests.support.library import in_thread
from tests.support.waiting import until


def test_block_holds_its_resources_and_releases_them(store):
    with store.claimed("./src//a.py", agent="ann", also=["b.md", "c/"], note="five minutes") as claim:
        assert (claim.resource, claim.version, claim.position) == ("src/a.py", 1, 1)
        assert [it["resource"] for it in claim.guard] == ["src/a.py", "b.md", "c/"]
        assert holders(store) == {"src/a.py": ["ann"], "b.md": ["ann"], "c/": ["ann"]}
        assert store.claim("src/a.py", agent="bob").holder_note == "five minutes"
    assert holders(store) == {}
    assert take(store, "src/a.py", "bob").previous_outcome == "released"


def test_block_that_raises_releases_its_resource(store):
    with pytest.raises(KeyError, match="mine"), store.claimed("a.md", agent="ann"):
        raise KeyError("mine")
    assert holders(store) == {}


def test_next_holder_sees_the_outcome_of_the_block(store):
    def last():
        status = store.status("a.md")
        return status.previous_outcome, status.previous_note, status.moved_to

    with store.claimed("a.md", agent="ann") as claim:
        claim.outcome, claim.note = "modified", "tests are red"
    assert last() == ("modified", "tests are red", None)
    with store.claimed("a.md", agent="bob", outcome="deleted"):
        pass
    assert last() == ("deleted", None, None)
    with store.claimed("a.md", agent="cleo") as claim:
        claim.moved_to = "./b.md"
    assert last() == ("moved", None, "b.md")


def test_bad_outcome_is_refused_where_it_is_set(store):
    bad = [("outcome", "burnt"), ("outcome", "moved"), ("moved_to", "../b.md"), ("note", "x" * 501)]
    with store.claimed("a.md", agent="ann") as claim:
        for name, value in bad:
            with pytest.raises(holdlog.InvalidError, match=name if value != "moved" else "moved_to"):
                setattr(claim, name, value)
        claim.outcome = "created"
    assert store.status("a.md").previous_outcome == "created"


@file_alone
def test_bad_argument_is_refused_before_anything_is_claimed(store):
    bad = {"agent": [" "], "outcome": ["burnt"], "wait_seconds": [-1, float("nan")], "lease_seconds": [0.5]}
    for name, values in (bad | {"mode": ["mine"], "also": ["b.md"]}).items():
        for value in values:
            options = {"agent": "ann", name: value}
            with pytest.raises(holdlog.InvalidError, match=name), store.claimed("a.md", **options):
                raise AssertionError("must not run")
    assert holders(store) == {}


# --- not granted


def test_block_on_a_held_resource_is_busy_and_holds_nothing(store):
    version = take(store, "a.md", "bob").version
    for seconds in (0, 0.05):
        with (
            pytest.raises(holdlog.BusyError, match="bob") as busy,
            store.claimed("b.md", agent="ann", also=["a.md"], wait_seconds=seconds),
        ):
            raise AssertionError("must not run")
        assert (busy.value.hold.held_by, busy.value.hold.resource) == ("bob", "a.md")
        assert (holders(store), line(store, "b.md")) == ({"a.md": ["bob"]}, [])
    assert store.status("a.md", version=version).current


def test_block_that_would_wait_for_ever_raises_deadlock(store):
    take(store, "a.md", "bob")
    with store.claimed("b.md", agent="ann"):
        waiting = in_thread(store.claim, "b.md", agent="bob", wait_seconds=LONG)
        until(lambda: line(store, "b.md"))
        with pytest.raises(holdlog.DeadlockError), store.claimed("a.md", agent="ann", wait_seconds=LONG):
            raise AssertionError("must not run")
        assert holders(store) == {"a.md": ["bob"], "b.md": ["ann"]}
    assert waiting.result().status == "claimed"


# --- lost


def test_guard_of_a_block_passes_while_it_holds_and_never_after(store):
    with store.claimed("a.md", agent="ann", also=["b.md"]) as claim:
        assert store.set("n", "k", 1, updated_by="ann", guard=claim.guard).version == 1
        with pytest.raises(holdlog.FencedError):
            store.set("n", "k", 2, updated_by="bob", guard=claim.guard)
    with pytest.raises(holdlog.FencedError):
        store.set("n", "k", 2, updated_by="ann", guard=claim.guard)


@file_alone
def test_block_whose_claim_was_taken_away_ends_with_fenced_and_leaves_the_next_holder_alone(store, command):
    with pytest.raises(holdlog.FencedError) as lost, store.claimed("custom://a", agent="ann", also=["b.md"]) as claim:
        taken = command("release", "custom://a", "--agent", "eve", "--force", "--reason", "it hangs")
        assert taken.code == 0, taken
        with pytest.raises(holdlog.FencedError, match="custom://a") as fenced:
            store.set("n", "k", 1, updated_by="ann", guard=claim.guard)
        assert fenced.value.reason == "it hangs"
        version = take(store, "custom://a", "bob").version
    assert (lost.value.resource, lost.value.version) == ("custom://a", 1)
    assert (lost.value.held_by, lost.value.current_version) == ("bob", version)
    assert holders(store) == {"custom://a": ["bob"]}


def test_release_inside_a_block_is_no_loss(store):
    with store.claimed("a.md", agent="ann"):
        assert store.release("a.md", agent="ann", outcome="modified").status == "released"
        take(store, "a.md", "bob")
    assert holders(store) == {"a.md": ["bob"]}


# --- blocks in blocks


def test_inner_block_leaves_what_was_held_before_and_releases_what_it_added(store):
    take(store, "z.md")
    with store.claimed("a.md", agent="ann") as outer:
        with store.claimed("a.md", agent="ann") as inner:
            assert inner.guard == outer.guard
        with store.claimed("b.md", agent="ann", also=["a.md", "z.md"]):
            assert len(holders(store)) == 3
        assert holders(store) == {"a.md": ["ann"], "z.md": ["ann"]}
        assert store.set("n", "k", 1, updated_by="ann", guard=outer.guard).version == 1
    assert holders(store) == {"z.md": ["ann"]}


# --- renewed


def test_block_outlives_the_lease_that_it_was_given(store):
    def ends():
        return [store.status(it).expires_at for it in ("a.md", "b.md")]

    with store.claimed("a.md", agent="ann", also=["b.md"], lease_seconds=3):
        for _ in range(2):
            first = max(ends())
            until(lambda first=first: min(ends()) > first)
            with store.claimed("a.md", agent="ann"):
                pass  # its end does not end the renewals of the outer one
    assert holders(store) == {}


# --- threads, coroutines, cancellations


@both_stores
def test_blocks_in_threads_exclude_each_other(open_store):
    store, other = open_store(), open_store()
    store.set("n", "count", 0, updated_by="ann")
    inside = []

    def work(name):
        mine = other if name % 2 else store
        for _ in range(4):
            with mine.claimed("a.md", agent=f"agent-{name}", wait_seconds=LONG) as claim:
                inside.append(name)
                assert inside == [name]
                count = mine.get("n", "count").value
                mine.set("n", "count", count + 1, updated_by=f"agent-{name}", guard=claim.guard)
                inside.remove(name)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert (store.get("n", "count").value, holders(store)) == (24, {})


async def test_cancelled_block_holds_nothing_wherever_it_was_cancelled(db):
    async with holdlog.AsyncStateStore(db) as store:
        entered = asyncio.Event()

        async def work():
            async with store.claimed("a.md", agent="ann"):
                entered.set()
                await asyncio.Event().wait()

        for turns in range(20):
            entered.clear()
            task = asyncio.create_task(work())
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns == 19:
                await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.status("a.md")).status == "available"


@file_alone
def test_block_interrupted_while_it_waits_leaves_the_queue(store):
    take(store, "a.md", "bob")
    threading.Thread(target=lambda: (until(lambda: line(store, "a.md")), os.kill(os.getpid(), signal.SIGINT))).start()
    with pytest.raises(KeyboardInterrupt), store.claimed("a.md", agent="ann", wait_seconds=LONG):
        raise AssertionError("must not run")
    assert line(store, "a.md") == []
