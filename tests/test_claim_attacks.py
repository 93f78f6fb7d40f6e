"""What an attacker tried on claims: several stores of one session, several calls of one agent, blocks in blocks."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdlog
from holdlog.adapters.engine import engine as engine_module
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.values import SetValue
from holdlog.domain.claims.commands import Acquire, Beat, Call, GiveUp
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.moment import SECOND, Caller
from tests.conftest import both_stores
from tests.support.claims import LONG, line, take
from tests.support.library import in_thread
from tests.support.waiting import until

Open = Callable[..., holdlog.StateStore]


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the steady clock; beats do not notice."""
    now, ahead = time.monotonic_ns, [0.0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now() + int(ahead[0] * 10**9))

    def move(seconds: float) -> None:
        ahead[0] += seconds

    return move


@pytest.fixture
def open_file(tmp_path: Path) -> Any:
    stores = []

    def start(session: str | None = None) -> holdlog.StateStore:
        stores.append(holdlog.StateStore(tmp_path / "state.db", session=session))
        return stores[-1]

    yield start
    for store in stores:
        store.close()


def engine_of(store: holdlog.StateStore) -> tuple[Engine, Caller]:
    """To give commands that a call of the library would not end with."""
    return store._engine, store._caller


def handles(store: holdlog.StateStore, agent: str = "ann") -> list[int]:
    rows = engine_of(store)[0].store.read("SELECT handles FROM holders WHERE agent = :agent", {"agent": agent})
    return [len(row[0].split()) for row in rows]


# --- several stores of one session


def test_short_lived_stores_of_a_session_do_not_make_its_block_leave(open_file: Open) -> None:
    main, other = open_file("job"), open_file()
    with main.claimed("x", agent="ann"):
        workers = [open_file("job") for _ in range(8)]
        for number, worker in enumerate(workers):
            take(worker, f"w{number}")
        for worker in workers:
            worker.close()
        assert other.claim("x", agent="ann").status == "busy"


def test_closed_store_leaves_nothing_of_callers_that_it_did_not_serve(open_file: Open) -> None:
    other, server = open_file(), open_file()
    engine, caller = engine_of(server)
    hook = Caller("job", host=caller.host)
    assert engine.run(Acquire("x", "ann"), hook).status == "claimed"
    engine.run(Call("ann", begins="c", lasts=1800 * SECOND), hook)
    library = open_file("job")
    take(library, "z", "bob")
    library.close()
    assert other.claim("x", agent="ann").status == "busy"
    assert other.claim("z", agent="bob").status == "already_claimed"


def test_store_whose_agent_holds_nothing_any_more_is_no_handle_of_it(open_file: Open) -> None:
    first, second = open_file("job"), open_file("job")
    take(first, "y")
    first.release("y", agent="ann")
    engine, caller = engine_of(first)
    engine.run(Beat((HolderId("ann", "job"),)), caller)
    take(second, "x")
    assert handles(first) == [1]
    second.close()
    assert open_file().claim("x", agent="ann").status == "already_claimed"


def test_call_of_a_sub_agent_adds_its_store_to_no_other_holder(open_file: Open) -> None:
    first, second = open_file("job"), open_file("job")
    take(first, "x")
    take(second, "y", "ann/tests")
    assert (handles(first), handles(first, "ann/tests")) == ([1], [1])


def test_write_through_another_store_of_the_session_counts_as_a_call(
    open_file: Open, pass_time: Callable[[float], None]
) -> None:
    first, second = open_file("job"), open_file("job")
    take(first, "x")
    before = first.status("x").holder_idle_seconds
    pass_time(20)
    second.set("n", "k", 1, updated_by="ann")
    assert first.status("x").holder_idle_seconds <= before + 1


# --- several calls of one agent


def test_claim_that_was_offered_to_another_call_of_its_agent_is_its_own(open_file: Open) -> None:
    store, ben = open_file(), open_file()
    take(ben, "a", "ben")
    engine, caller = engine_of(store)
    assert engine.run(Acquire("a", "ann", wait_seconds=50), caller).status == "busy"
    ben.release("a", agent="ben")
    assert [it.resource for it in take(store, "b", also=["a"]).also] == ["a"]
    engine.run(GiveUp("a", "ann"), caller)
    assert ben.claim("a", agent="ben").status == "busy"


def test_what_is_held_when_a_call_waits_for_more_stays_held_until_its_deadline(open_file: Open) -> None:
    store, ben = open_file(), open_file()
    take(store, "a", lease_seconds=100)
    take(ben, "b", "ben")
    engine, caller = engine_of(store)
    assert engine.run(Acquire("b", "ann", also=["a"], mode="shared", wait_seconds=50), caller).status == "busy"
    ben.release("b", agent="ben")
    engine.run(GiveUp("b", "ann", also=("a",), mode="shared"), caller)
    assert ben.claim("a", agent="ben").status == "busy"
    assert 90 < store.status("a").expires_in_seconds <= 100


def test_call_that_ends_takes_no_place_from_another_that_waits_for_the_same(open_file: Open) -> None:
    store, ben = open_file(), open_file()
    take(ben, "a", "ben")
    waiting = in_thread(store.claim, "a", agent="ann", wait_seconds=LONG)
    until(lambda: line(ben, "a"))
    with pytest.raises(holdlog.BusyError), store.claimed("a", agent="ann", wait_seconds=0.01):
        pass
    assert line(ben, "a") == ["ann"]
    ben.release("a", agent="ben")
    assert waiting.result().status == "claimed"


def test_work_of_a_waiter_does_not_grow_with_the_cube_of_the_queue(open_file: Open) -> None:
    store = open_file()
    for number in range(100):
        take(store, f"f{number}", "zed")
    take(store, "x", "zed")
    engine, caller = engine_of(store)
    engine.run(Acquire("x", "w", also=["y"], wait_seconds=50), caller)
    calls = []
    for number in range(20):
        count = [0]

        def profile(_: Any, event: str, __: Any, count: list[int] = count) -> None:
            count[0] += event == "call"

        sys.setprofile(profile)
        engine.run(Acquire("y", f"w{number}", wait_seconds=50), caller)
        sys.setprofile(None)
        calls.append(count[0])
    assert calls[19] < 3 * calls[9], calls


@pytest.mark.rest
def test_release_to_a_long_queue_for_a_folder_and_its_files_takes_no_lock_for_seconds(open_file: Open) -> None:
    store = open_file()
    take(store, "d/", "zed")
    engine, caller = engine_of(store)
    for number in range(200):
        resource = "d/a" if not number else ("d/b", "d/")[number % 2]
        engine.run(Acquire(resource, f"w{number}", wait_seconds=500), caller)
    began = time.process_time()
    assert store.release("d/", agent="zed").granted_to == "w0"
    assert time.process_time() - began < 0.4


async def test_commands_for_which_a_transaction_has_no_time_run_in_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BATCH_SECONDS", -1.0)
    async with holdlog.AsyncStateStore(tmp_path / "state.db") as store:
        calls = (store.claim(f"f{number}", agent="ann") for number in range(50))
        claimed = await asyncio.gather(*calls)
        assert sorted(it.position for it in claimed) == list(range(1, 51))
        assert len({it.at for it in (await store.events()).events}) == 50


# --- blocks in blocks


@pytest.mark.parametrize(("outer", "inner"), [("shared", "exclusive"), ("exclusive", "shared")])
def test_inner_block_in_another_mode_ends_no_hold_of_the_outer(open_file: Open, outer: Any, inner: Any) -> None:
    store, ben = open_file(), open_file()
    with store.claimed("a", agent="ann", mode=outer) as block:
        with store.claimed("a", agent="ann", mode=inner):
            pass
        assert ben.claim("a", agent="ben").status == "busy"
        assert store.set("n", "k", 1, updated_by="ann", guard=block.guard).version == 1
    assert store.status("a").status == "available"


def test_block_whose_claim_was_made_anew_in_another_mode_and_expired_is_fenced(
    open_file: Open, pass_time: Callable[[float], None]
) -> None:
    store, ben = open_file(), open_file()
    with (
        pytest.raises(holdlog.FencedError, match="a"),
        store.claimed("a", agent="ann", mode="shared", lease_seconds=100),
    ):
        take(store, "a")
        pass_time(101)
        take(ben, "a", "ben")


def test_lease_never_becomes_shorter(open_file: Open) -> None:
    store = open_file()
    take(store, "a", lease_seconds=3600)
    assert store.claim("a", agent="ann", lease_seconds=2).expires_in_seconds > 3000
    with store.claimed("a", agent="ann", lease_seconds=2):
        assert store.status("a").expires_in_seconds > 3000


# --- losses and receipts


def test_loss_is_told_by_the_next_claim_although_nobody_else_looked(
    open_file: Open, pass_time: Callable[[float], None]
) -> None:
    store = open_file()
    take(store, "a", lease_seconds=10)
    pass_time(11)
    assert [it.resource for it in store.claim("b", agent="ann").lost] == ["a"]


def test_takeover_of_a_family_keeps_what_its_new_holders_have_lost(
    open_file: Open, pass_time: Callable[[float], None]
) -> None:
    left, store, ben = open_file(), open_file(), open_file()
    take(left, "x")
    take(left, "w", "ann/t")
    take(store, "y", "ann/t", lease_seconds=10)
    waiting = in_thread(store.claim, "x", agent="ann", wait_seconds=LONG)
    until(lambda: line(ben, "x"))
    pass_time(11)
    take(ben, "y", "ben")
    left.close()
    assert [it.resource for it in waiting.result().lost] == ["y"]


def test_receipt_is_no_session_and_serves_no_caller_that_has_one(open_file: Open) -> None:
    with pytest.raises(holdlog.InvalidError, match="session: must not begin with receipt-"):
        open_file("receipt-1")
    store = open_file()
    engine, _ = engine_of(store)
    version = engine.run(Acquire("a", "ann"), Caller("receipt-1", is_anonymous=True)).version
    command = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann"}
    with pytest.raises(holdlog.FencedError):
        engine.run(SetValue.parse(command | {"guard": [{"resource": "a", "version": version}]}), Caller("other"))


# --- what hooks hold, and what a family leaves


def test_family_is_left_to_nobody_while_one_of_it_lives(open_file: Open) -> None:
    parent, child, other = open_file("job"), open_file("job"), open_file()
    version = take(parent, "x").version
    take(child, "x", "ann/t")
    parent.close()
    assert other.claim("x", agent="ann").status == "busy"
    with pytest.raises(holdlog.FencedError):
        other.set("n", "k", 1, updated_by="ann", guard=[{"resource": "x", "version": version}])
    child.close()
    assert other.claim("x", agent="ann").status == "already_claimed"


def test_script_that_ends_leaves_nothing_of_the_hooks_of_its_session(open_file: Open) -> None:
    server, other = open_file(), open_file()
    engine, caller = engine_of(server)
    hook = Caller("conversation", host=caller.host)
    assert engine.run(Acquire("x", "ann"), hook).status == "claimed"
    script = open_file("conversation")
    take(script, "y", "script")
    script.close()
    assert other.claim("x", agent="ann").status == "busy"


def test_agent_whose_process_was_killed_lives_by_its_calls(open_file: Open, pass_time: Callable[[float], None]) -> None:
    server, other = open_file(), open_file()
    engine, caller = engine_of(server)
    killed = caller._replace(session="conversation", handle=f"{(caller.handle or '').rpartition('/')[0]}/1#abc")
    assert engine.run(Acquire("x", "ann"), killed).status == "claimed"
    pass_time(10)
    engine.run(Call("ann", begins="c", lasts=1800 * SECOND), killed._replace(handle=None))
    pass_time(1500)
    other.set("n", "k", 1, updated_by="ben")  # no silence
    assert other.claim("x", agent="ben").status == "busy"


def test_what_is_handed_over_to_a_holder_that_had_ended_has_a_full_life(
    open_file: Open, pass_time: Callable[[float], None]
) -> None:
    left, heir, ben = open_file(), open_file("heir"), open_file()
    engine, caller = engine_of(heir)
    take(left, "x")
    take(left, "w", "ann/t")
    assert engine.run(Acquire("old", "ann/t"), caller._replace(handle=None)).status == "claimed"
    pass_time(301)
    for store in (left, ben):
        store_engine, store_caller = engine_of(store)
        names = tuple(HolderId(name, store_caller.session) for name in ("ann", "ann/t"))
        store_engine.run(Beat(names), store_caller)
    waiting = in_thread(heir.claim, "x", agent="ann", wait_seconds=LONG)
    until(lambda: line(ben, "x"))
    left.close()
    assert waiting.result()
    assert ben.claim("w", agent="ben").status == "busy"


def test_shorter_wait_of_the_same_agent_costs_no_turn(open_file: Open) -> None:
    store, ben, zed = open_file(), open_file(), open_file()
    take(ben, "a", "ben")
    long = in_thread(store.claim, "a", agent="ann", wait_seconds=LONG)
    until(lambda: line(ben, "a"))
    store.claim("a", agent="ann", wait_seconds=0.01)
    later = in_thread(zed.claim, "a", agent="zed", wait_seconds=1)
    until(lambda: len(line(ben, "a")) == 2)
    ben.release("a", agent="ben")
    assert (long.result().status, later.result().status) == ("claimed", "busy")


@both_stores
def test_write_may_be_the_first_to_notice_what_a_waiter_of_several_gets(kind: str, request: Any) -> None:
    place = request.getfixturevalue("postgres" if kind == "postgres" else "db")
    with holdlog.StateStore(place) as first, holdlog.StateStore(place) as second:
        assert first.claim("x", agent="ann", lease_seconds=1)
        engine, caller = engine_of(second)
        assert engine.run(Acquire("x", "ben", also=["y"], wait_seconds=50), caller).status == "busy"
        until(lambda: first.status("x").status == "available")
        lost = first.set("n", "k", 1, updated_by="ann").lost
        assert [(it.resource, it.held_by) for it in lost or ()] == [("x", "ben")]
        assert second.status("y").held_by == "ben"
