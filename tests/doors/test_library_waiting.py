"""The library's waits: watch a key, wait for a resource, follow events. On every kind of store, across handles and
processes."""

import asyncio
import contextlib
import time

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.library import in_thread
from tests.support.programs import python
from tests.support.waiting import until


def put(store, value=1, key="k", **options):
    return store.set("n", key, value, updated_by="ann", **options)


def watch(store, since_version, timeout_seconds=40):
    return store.watch("n", "k", since_version, timeout_seconds=timeout_seconds)


def is_waiting(background):
    """Whether the call still waits after the store had time to answer it."""
    with contextlib.suppress(AssertionError):
        until(lambda: not background.is_running, within=0.15)
    return background.is_running


CHANGES = {
    "a write": lambda store: put(store, 2),
    "an update": lambda store: store.update("n", "k", increment=1, updated_by="ann"),
    "a transaction": lambda store: store.transact(
        [{"op": "set", "namespace": "n", "key": "k", "value": 2}], updated_by="ann"
    ),
    "a deletion": lambda store: store.delete("n", "k", deleted_by="bob"),
    "a cleared namespace": lambda store: store.clear_namespace("n", deleted_by="bob"),
}


def test_every_change_of_the_key_ends_a_watch(store):
    for name, change in CHANGES.items():
        version = put(store).version
        watching = in_thread(watch, store, version)
        assert is_waiting(watching), name
        put(store, 1, "other")
        change(store)
        found = watching.result()
        deleted = name in ("a deletion", "a cleared namespace")
        assert (found.status, found.version) == ("deleted" if deleted else "ok", version + 1)
        assert (found.deleted_by == "bob") if deleted else (found.value == 2)


def test_watch_returns_earlier_changes_at_once(store):
    put(store, 1)
    put(store, 2)
    assert (watch(store, 1).value, watch(store, 0).version) == (2, 2)
    store.delete("n", "k", deleted_by="bob")
    assert watch(store, 1).status == "deleted"


def test_watch_from_version_0_waits_until_the_key_exists(store):
    for before in (lambda: None, lambda: store.delete("n", "k", deleted_by="bob")):
        before()
        watching = in_thread(watch, store, 0)
        assert is_waiting(watching)
        version = put(store, 1).version
        assert watching.result().version == version


def test_watch_from_a_future_version_waits_for_it(store):
    put(store, 1)
    watching = in_thread(watch, store, 2)
    assert is_waiting(watching)
    put(store, 2)
    assert is_waiting(watching)
    put(store, 3)
    assert watching.result().value == 3


def test_watch_times_out_with_the_version_it_waited_from(store):
    put(store, 1)
    timeout = watch(store, 1, timeout_seconds=0.02)
    assert (timeout.status, timeout.since_version) == ("timeout", 1)
    assert timeout.elapsed_seconds >= 0.02
    assert not timeout
    assert timeout.hint


def test_expiry_of_a_value_ends_a_watch(store):
    put(store, 1, ttl_seconds=0.3)
    assert watch(store, 1).status == "deleted"


def test_one_change_wakes_all_its_watchers(store):
    watchers = [in_thread(watch, store, 0, 20) for _ in range(10)]
    assert is_waiting(watchers[0])
    began = time.monotonic()
    put(store, 1)
    assert {it.result().version for it in watchers} == {1}
    assert time.monotonic() - began < 10, "they were not woken, and read again at the end of their time"


def test_no_wake_up_is_lost_in_a_hundred_races(store):
    for number in range(100):
        watching = in_thread(watch, store, number)
        put(store, number)
        assert watching.result().version == number + 1


def test_closing_the_store_ends_its_waits(store):
    watching = in_thread(watch, store, 0)
    assert is_waiting(watching)
    store.close()
    with pytest.raises(holdlog.HoldlogError, match="closed"):
        watching.result()


@both_stores
def test_change_through_another_handle_ends_waits(open_store):
    mine, other = open_store(), open_store()
    other.claim("custom://x", agent="ann")
    waits = in_thread(watch, mine, 0), in_thread(mine.wait, "custom://x", timeout_seconds=40)
    assert all(is_waiting(it) for it in waits)
    put(other, 1)
    other.release("custom://x", agent="ann", note="renamed parse()")
    assert [it.result().status for it in waits] == ["ok", "available"]
    assert waits[1].result().previous_note == "renamed parse()"


OTHER_PROCESS = """
import sys, holdlog
with holdlog.StateStore(sys.argv[1]) as store:
    store.set("n", "k", 1, updated_by="bob")
    answer = store.watch("n", "answer", 0, timeout_seconds=40)
    print(answer.value)
"""


@both_stores
def test_waits_work_between_processes_in_both_directions(open_store, kind, request):
    store = open_store()
    place = request.getfixturevalue("postgres" if kind == "postgres" else "db")
    watching = in_thread(watch, store, 0)
    other = in_thread(python, OTHER_PROCESS, place)
    assert watching.result().updated_by == "bob"
    put(store, "heard", "answer")
    assert other.result() == ["heard"]


# --- speed: a lost notification costs up to 100 ms, until the next poll

SERIES, ROUNDS = 10, 20
ECHO = """
import itertools, sys, holdlog
def echo(store):
    for number in itertools.count():
        if store.watch("n", "ping", number, timeout_seconds=60).value == "stop":
            return
        store.set("n", "pong", number, updated_by="bob")
if __name__ == "__main__":
    with holdlog.StateStore(sys.argv[1]) as store:
        echo(store)
"""


def is_quick(store):
    """Whether a round trip takes less than half a poll, in one of ten series: others may use the machine, too."""
    for series in range(SERIES):
        began = time.monotonic()
        for number in range(series * ROUNDS, (series + 1) * ROUNDS):
            store.set("n", "ping", number, updated_by="ann")
            assert store.watch("n", "pong", number, timeout_seconds=60).version == number + 1
        if quick := (time.monotonic() - began) / ROUNDS < 0.05:
            break
    store.set("n", "ping", "stop", updated_by="ann")
    return quick


@pytest.mark.rest
def test_callers_of_one_store_wake_each_other_at_once(store):
    names = {"__name__": "echo"}
    exec(ECHO, names)
    other = in_thread(names["echo"], store)
    assert is_quick(store)
    other.result()


@pytest.mark.rest
@both_stores
def test_processes_wake_each_other_at_once(open_store, kind, request):
    store = open_store()
    place = request.getfixturevalue("postgres" if kind == "postgres" else "db")
    other = in_thread(python, ECHO, place)
    assert is_quick(store)
    other.result()


# --- coroutines


async def test_cancelled_watch_leaves_the_store_usable(db):
    async with holdlog.AsyncStateStore(db) as store:
        watching = asyncio.create_task(store.watch("n", "k", 0, timeout_seconds=40))
        await asyncio.wait([watching], timeout=0.05)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        await store.set("n", "k", 1, updated_by="ann")
        assert (await store.get("n", "k")).value == 1


async def test_cancelled_write_has_ended_when_its_call_raises(db):
    async with holdlog.AsyncStateStore(db) as store:
        await store.set("n", "k", 0, updated_by="ann")
        for number in range(50):
            writing = asyncio.create_task(store.set("n", "k", number, updated_by="ann"))
            await asyncio.sleep(0)
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            version = (await store.get("n", "k")).version
            written = await store.set("n", "k", number, updated_by="ann", expected_version=version)
            assert written.version == version + 1


async def test_every_cancelled_write_of_many_ends(db):
    async with holdlog.AsyncStateStore(db) as store:
        for rounds in range(60):
            writes = [asyncio.create_task(store.set("n", f"{it}", it, updated_by="ann")) for it in range(20)]
            for _ in range(rounds % 7):
                await asyncio.sleep(0)
            for write in writes[::2]:
                write.cancel()
            async with asyncio.timeout(40):
                results = await asyncio.gather(*writes, return_exceptions=True)
            assert all(it.status == "ok" for it in results[1::2])


async def test_coroutines_share_a_store_while_others_wait(db):
    async with holdlog.AsyncStateStore(db) as store:
        watching = [asyncio.create_task(store.watch("n", f"{it}", 0, timeout_seconds=40)) for it in range(100)]
        await asyncio.gather(*(store.set("n", f"{it}", it, updated_by="ann") for it in range(100)))
        assert [it.value for it in await asyncio.gather(*watching)] == list(range(100))

        async def count():
            await store.update("n", "n", lambda value: (value or 0) + 1, updated_by="ann")

        await asyncio.gather(*(count() for _ in range(20)))
        assert (await store.get("n", "n")).value == 20
