"""The queue for a resource: who waits in it, who is granted next, what would never end; and waits that only notify."""

import asyncio
import signal

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.claims import LONG, file_alone, holders, line, log, process, take
from tests.support.library import in_thread
from tests.support.waiting import until


def step(store, resource, agent, **options):
    """Take a place in the queue and be absent at once."""
    busy = store.claim(resource, agent=agent, wait_seconds=0.01, **options)
    assert busy.status == "busy", busy
    return busy


@pytest.fixture
def queue(store):
    """Starts a claim that waits; returns when its agent is in the queue. What is left in it at the end is released."""
    waiting = []

    def start(resource, agent, **options):
        before = len(line(store, resource))
        waiting.append((agent, in_thread(store.claim, resource, agent=agent, wait_seconds=LONG, **options)))
        until(lambda: len(line(store, resource)) > before or not waiting[-1][1].is_running)
        return waiting[-1][1]

    yield start
    for agent, call in waiting:
        if call.is_running:
            store.release(agent=agent)
            assert not call.result() or store.release(agent=agent)


@both_stores
def test_closed_store_gives_up_the_turns_of_its_calls_that_wait(open_store):
    holder, gone, last = open_store(), open_store(), open_store()
    take(holder, "a")
    waiting = in_thread(gone.claim, "a", agent="gone", wait_seconds=LONG)
    until(lambda: line(holder) == ["gone"])
    gone.close()
    with pytest.raises(holdlog.StoreError, match="closed"):
        waiting.result()
    granted = in_thread(last.claim, "a", agent="last", wait_seconds=LONG)
    until(lambda: line(holder) == ["gone", "last"])
    assert holder.release("a", agent="ann").granted_to == "last"
    assert granted.result().status == "claimed"


# --- a place in the queue


def test_claim_that_waited_in_vain_has_a_ticket_and_a_place(store):
    take(store, "a")
    busy = step(store, "a", "bob", note="for a fix")
    assert (busy.held_by, busy.queue_position, busy.queue_length, busy.ticket) == ("ann", 1, 1, 2)
    assert step(store, "a", "cleo").queue_position == 2
    assert store.claim("a", agent="dora").ticket is None
    assert line(store) == ["bob", "cleo"]
    for agent, hint in (("bob", "number 1 in the queue"), ("cleo", "number 2 in the"), ("dora", "to queue for it")):
        assert hint in store.claim("a", agent=agent).hint
    waiter = store.claim("a", agent="ann").waiting[0]
    assert (waiter.agent, waiter.note) == ("bob", "for a fix")
    assert waiter.since_seconds >= 0


def test_waiter_that_calls_again_keeps_its_place_unless_it_wants_something_else(store):
    take(store, "a", also=["b"])
    for agent in ("bob", "cleo"):
        step(store, "a", agent)
    before = log(store)
    assert (step(store, "a", "bob").queue_position, store.claim("a", agent="bob").ticket) == (1, 2)
    assert log(store) == before
    for other in ({"mode": "shared"}, {"also": ["b"]}):
        first = line(store)[0]
        step(store, "a", first, **other)
        assert line(store)[-1] == first
    assert store.release("a", agent="bob").status == "released"
    assert line(store) == ["cleo"]


def test_place_is_kept_while_the_waiter_is_absent_but_others_may_overtake_it(store, queue):
    take(store, "a")
    step(store, "a", "bob")
    waiting = queue("a", "cleo")
    assert store.release("a", agent="ann").granted_to == "cleo"
    assert waiting.result().status == "claimed"
    assert step(store, "a", "bob").queue_position == 1
    store.release("a", agent="cleo")
    assert store.claim("a", agent="dora").status == "claimed"  # free, while all who wait are absent
    store.release("a", agent="dora")
    assert take(store, "a", "bob").version > 2


@pytest.mark.slow
@file_alone
def test_place_of_a_waiter_that_stays_away_for_two_minutes_is_gone(store):
    take(store, "a")
    step(store, "a", "bob")
    until(lambda: line(store) == [], 150)
    assert [kind for _, kind in log(store)] == ["ClaimGranted", "ClaimQueued", "ClaimUnqueued"]


# --- the next holder


def test_agent_that_left_the_queue_in_vain_learns_of_the_last_hold_when_it_claims_again(store):
    take(store, "a")
    step(store, "a", "bob")
    store.release("a", agent="ann", outcome="modified", note="half")
    claimed = take(store, "a", "bob")
    assert (claimed.previous_holder, claimed.previous_outcome, claimed.previous_note) == ("ann", "modified", "half")


def test_release_hands_over_to_the_first_waiter_in_its_own_transaction(store, queue):
    take(store, "a")
    first, second = queue("a", "bob"), queue("a", "cleo")
    released = store.release("a", agent="ann", outcome="modified", note="half")
    assert (released.granted_to, store.status("a").held_by) == ("bob", "bob")
    claimed = first.result()
    assert (claimed.status, claimed.previous_holder, claimed.previous_outcome) == ("claimed", "ann", "modified")
    both = store.events(after=3, limit=1).events  # a page never splits a transaction
    assert [(it.position, it.kind, it.by) for it in both] == [(4, "ClaimReleased", "ann"), (5, "ClaimGranted", "bob")]
    assert (claimed.version, claimed.position) == (5, 5)
    assert store.set("n", "k", 1, updated_by="bob", guard=[{"resource": "a", "version": claimed.version}])
    assert second.is_running
    assert store.release(agent="bob").granted_to == "cleo"
    assert second.result().previous_holder == "bob"


@both_stores
def test_every_end_of_a_claim_grants_to_the_queue(store, queue):
    ends = {"expired": None, "released": {"resource": None}, "moved": {"resource": "a", "moved_to": "c"}}
    for outcome, release in ends.items():
        take(store, "a", also=["b"], lease_seconds=None if release else 1)
        waiting = queue("a", "bob")
        if release:
            store.release(agent="ann", outcome=outcome, **release)
        assert (waiting.result().previous_outcome, store.status("a").held_by) == (outcome, "bob")
        store.release("a", agent="bob")


def test_sharing_waiters_are_granted_together_up_to_one_that_wants_it_alone(store, queue):
    take(store, "a")
    modes = {"bob": "shared", "cleo": "shared", "dora": "exclusive", "eve": "shared"}
    calls = {agent: queue("a", agent, mode=mode) for agent, mode in modes.items()}
    store.release("a", agent="ann")
    assert (holders(store), line(store)) == ({"a": ["bob", "cleo"]}, ["dora", "eve"])
    assert all(calls[agent].result() for agent in ("bob", "cleo"))
    assert store.claim("a", agent="fay", mode="shared").status == "busy"  # dora came first
    for agent in ("bob", "cleo"):
        store.release("a", agent=agent)
    assert (calls["dora"].result().status, line(store)) == ("claimed", ["eve"])
    store.claim("a", agent="dora", mode="shared")  # who shares what it had alone admits others
    assert calls["eve"].result().status == "claimed"


def test_share_waits_for_no_earlier_waiter_for_a_share(store, queue):
    take(store, "b")
    queue("a", "bob", mode="shared", also=["b"])
    take(store, "a", "cleo", mode="shared")
    assert holders(store) == {"a": ["cleo"], "b": ["ann"]}


def test_waiter_for_several_is_granted_when_all_are_free_and_not_before(store, queue):
    take(store, "a/")
    take(store, "b", "bob")
    waiting = queue("a", "cleo", also=["b"])
    store.release("a/", agent="ann")
    for name in ("a", "a/"):  # she waits in her call: nobody overtakes her
        assert store.claim(name, agent="dora").held_by == "cleo"
    assert store.release("b", agent="bob").granted_to == "cleo"
    assert [it.resource for it in waiting.result().also] == ["b"]
    assert holders(store) == {"a": ["cleo"], "b": ["cleo"]}


def test_nobody_overtakes_a_waiter_at_what_it_wants_besides(store, queue):
    take(store, "a")
    waiting = queue("a", "cleo", also=["b"])
    for name in ("b", "b/"):
        assert store.claim(name, agent="dora").held_by == "cleo"
    assert store.release("a", agent="ann").granted_to == "cleo"
    assert waiting.result().status == "claimed"


@both_stores
def test_queue_is_one_for_all_handles_of_the_store(open_store):
    mine, yours, theirs = open_store(), open_store(), open_store()
    for number in range(10):
        take(mine, "a", "x")
        waiting = in_thread(yours.claim, "a", agent="x", wait_seconds=LONG)  # the same name, another session
        until(lambda: line(theirs) == ["x"])
        mine.release("a", agent="x", note=str(number))
        assert (waiting.result().status, waiting.result().previous_note) == ("claimed", str(number))
        assert mine.claim("a", agent="x").same_name
        yours.release("a", agent="x")


@pytest.mark.rest
@file_alone
def test_grant_that_is_not_collected_goes_to_the_next_after_thirty_seconds(store, open_store, db):
    """Its process is stopped: it lives, but does not collect."""
    code = f"import holdlog; holdlog.StateStore({str(db)!r}).claim('a', agent='bob', wait_seconds=50)"
    take(store, "a")
    with process(code) as program:
        until(lambda: line(store) == ["bob"])
        program.send_signal(signal.SIGSTOP)
        waiting = in_thread(store.claim, "a", agent="cleo", wait_seconds=LONG)
        until(lambda: line(store) == ["bob", "cleo"])
        assert store.release("a", agent="ann", outcome="modified").granted_to == "bob"
        assert store.claim("a", agent="dora").held_by == "bob"
        claimed = waiting.result()
    assert (claimed.status, claimed.previous_holder, claimed.previous_outcome) == ("claimed", "ann", "modified")


# --- calls that are given up


async def test_cancelled_claim_is_never_granted(db):
    async with holdlog.AsyncStateStore(db) as store:
        await store.claim("a", agent="ann")
        for is_queued in (False, True):
            task = asyncio.create_task(store.claim("a", agent="bob", wait_seconds=LONG))
            await asyncio.sleep(0)
            while is_queued and not (await store.claim("a", agent="x")).queue_length:
                await asyncio.sleep(0.001)
                continue
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await store.release("a", agent="ann")
        assert (await store.claim("a", agent="cleo")).status == "claimed"


# --- deadlock


def cycle(response):
    assert response.status == "deadlock", response
    assert not response
    assert response.hint
    return [(it.agent, it.holds, it.waits_for) for it in response.cycle]


def test_wait_that_would_never_end_is_refused_with_its_cycle(store, queue):
    take(store, "src/a")
    take(store, "lib/", "bob")
    take(store, "c", "cleo")
    queue("lib/x", "ann")
    assert cycle(store.claim("src/", agent="bob", wait_seconds=LONG)) == [
        ("bob", "lib/", "src/a"),
        ("ann", "src/a", "lib/"),
    ]
    queue("x", "bob", also=["c"])
    assert cycle(store.claim("src/a", agent="cleo", wait_seconds=LONG)) == [
        ("cleo", "c", "src/a"),
        ("ann", "src/a", "lib/"),
        ("bob", "lib/", "c"),
    ]
    assert holders(store) == {"src/a": ["ann"], "lib/": ["bob"], "c": ["cleo"]}


def test_only_a_wait_that_would_never_end_is_refused(store, queue):
    take(store, "a")
    take(store, "b", "bob")
    step(store, "b", "ann")  # absent: she may come back or not
    assert store.claim("a", agent="bob", wait_seconds=0).status == "busy"
    waiting = queue("a", "bob")
    assert cycle(store.claim("b", agent="ann", wait_seconds=LONG)) == [("ann", "a", "b"), ("bob", "b", "a")]
    queue("b", "cleo")  # a chain
    store.release("a", agent="ann")
    assert waiting.result().status == "claimed"


@both_stores
def test_cycle_over_two_sessions_is_found(open_store):
    """In which two agents have one name."""
    mine, yours = open_store(session="one"), open_store(session="two")
    take(mine, "a", "x")
    take(yours, "b", "x")
    waiting = in_thread(mine.claim, "b", agent="x", wait_seconds=LONG)
    until(lambda: line(yours, "b"))
    assert yours.claim("a", agent="x", wait_seconds=LONG).status == "deadlock"
    yours.release("b", agent="x")
    assert waiting.result().status == "claimed"


def test_grant_that_would_close_a_cycle_goes_to_the_next_waiter(store, queue):
    take(store, "p", "cleo")
    take(store, "q", "dora")
    both, theirs = [queue("q", "bob"), queue("p", "bob")], queue("q", "cleo")
    assert store.release("q", agent="dora").granted_to == "cleo"  # with it, bob would wait for cleo, and she for him
    assert theirs.result().status == "claimed"
    store.release(agent="cleo")
    assert [it.result().status for it in both] == ["claimed"] * 2


# --- wait


def test_wait_returns_when_the_resource_is_free_and_grants_nothing(store):
    take(store, "a")
    waiting = in_thread(store.wait, "a", LONG)
    until(lambda: waiting.is_running)
    store.release("a", agent="ann", outcome="modified")
    available = waiting.result()
    assert (available.status, available.previous_holder, available.previous_outcome) == ("available", "ann", "modified")
    assert available.elapsed_seconds >= 0
    assert (store.wait("a", LONG).status, holders(store)) == ("available", {})
    take(store, "a", lease_seconds=1)
    assert (store.wait("a", LONG).status, take(store, "a", "bob").previous_outcome) == ("available", "expired")


def test_wait_in_vain_names_the_holder(store):
    take(store, "src/")
    before = log(store)
    timeout = store.wait("src/a", 0.01)
    assert (timeout.status, timeout.held_by, log(store)) == ("timeout", "ann", before)
    assert timeout.elapsed_seconds >= 0.01
    assert timeout.held_for_seconds >= 0
    assert timeout.hint
    for seconds in (-1, float("nan"), float("inf"), "x"):
        with pytest.raises(holdlog.InvalidError, match=r"^timeout_seconds"):
            store.wait("a", seconds)


@both_stores
def test_no_notification_between_two_handles_is_lost(open_store):
    mine, yours = open_store(), open_store()
    for _ in range(30):
        take(mine, "a")
        waiting = in_thread(yours.wait, "a", LONG)
        mine.release("a", agent="ann")
        assert waiting.result().status == "available"
