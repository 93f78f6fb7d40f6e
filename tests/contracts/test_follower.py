"""The log is read once for all that wait on a loop, and only those look again whom it concerns."""

import asyncio
import time
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.api.request import BlockingQuery
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime import log_tailer as follower
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.log_tailer import LogTailer
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.claims.resource import overlap
from holdlog.domain.message import NOBODY
from holdlog.domain.names import claim_stream, record_stream
from holdlog.domain.ports import HistoryEntry, Store
from holdlog.projections.fold import VIEWS
from holdlog.projections.waiting import EVERYTHING, concerned, what_overlaps, whole_namespace
from tests.support.commands import PATIENCE, change, claim, put, until_async, whole_log, write

LONG = 50.0


def entries(store: Store, after: int, limit: int = -1) -> list[HistoryEntry]:
    with store.reader() as reader:
        return reader.entries(after, limit)


def test_log_entries_name_the_stream_of_every_event(store: Store) -> None:
    for number in range(5):
        write(store, f"k{number}", number)
    claim(store, "src/a b.py")
    expected = [HistoryEntry(*_place(it.envelope)) for it in whole_log(store)]
    assert entries(store, 0) == expected
    assert (entries(store, 2, 2), entries(store, 6), entries(store, 0, 0)) == (expected[2:4], [], [])


def _place(envelope: Any) -> tuple[int, str, str, int]:
    return envelope.position, envelope.stream, envelope.topic, envelope.at


# --- who is concerned

PARTS = st.lists(st.sampled_from(["a", "b", "a.b", "a b", "é"]), min_size=1, max_size=4)
RESOURCES = st.builds(
    lambda root, parts, end: root + "/".join(parts) + end,
    st.sampled_from(["", "/", "file://tree/", "custom://", "custom://a//"]),
    PARTS,
    st.sampled_from(["", "/"]),
)


@given(RESOURCES, RESOURCES)
def test_event_of_a_claim_wakes_exactly_the_waiters_of_overlapping_resources(waited: str, changed: str) -> None:
    asked = set(what_overlaps(waited)) & set(concerned(claim_stream(changed)))
    assert bool(asked) == overlap(waited, changed)


@given(*[st.sampled_from(["a", "a/b", "a b", "*", "b"])] * 3)
def test_event_of_a_record_wakes_exactly_the_waiters_of_its_namespace(waited: str, namespace: str, key: str) -> None:
    asked = set(whole_namespace(waited)) & set(concerned(record_stream(namespace, key)))
    assert bool(asked) == (waited == namespace)
    assert set(EVERYTHING) & set(concerned(record_stream(namespace, key)))


# --- what is told


async def told(engine: Engine, *changes: Any) -> list[frozenset[str] | None]:
    """What a subscriber is told of changes, each told before the next; it has been told something before."""
    heard: list[frozenset[str] | None] = []
    with engine.log_tailer.subscribe(heard.append):
        engine.notifier.notify()
        await until_async(lambda: bool(heard))
        for each in changes:
            before = len(heard)
            each()
            engine.notifier.notify()
            await until_async(lambda before=before: len(heard) > before)  # type: ignore[misc]
    return heard


async def test_subscriber_of_the_log_tailer_learns_which_streams_grew(engine: Engine) -> None:
    heard = await told(
        engine,
        lambda: change(engine.store, put("k", 1), put("l", 1)),
        lambda: claim(engine.store, "src/"),
    )
    assert heard == [None, {"record:n/k", "record:n/l"}, {"claim:src/"}]


async def test_notifications_without_new_events_reach_no_subscriber(engine: Engine) -> None:
    def ring() -> None:
        for _ in range(50):
            engine.notifier.notify()
        write(engine.store, "k", 1)

    assert await told(engine, ring) == [None, {"record:n/k"}]


async def test_more_events_than_one_read_returns_all_reach_the_subscriber(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "READ_AT_ONCE", 7)
    keys = [f"{number}" for number in range(100)]
    heard: set[str] = set()
    with engine.log_tailer.subscribe(lambda streams: heard.update(streams or ())):
        write(engine.store, "first", 0)
        engine.notifier.notify()
        await until_async(lambda: engine.log_tailer._position is not None)
        change(engine.store, *(put(key, 1) for key in keys))
        engine.notifier.notify()
        await until_async(lambda: len(heard) == 100)
    assert heard == {record_stream("n", key) for key in keys}


async def test_log_that_was_set_back_makes_every_waiter_check_again() -> None:
    """As after the fail-over to a database that had not everything yet."""
    store, bell = open_memory(), ProcessNotifier()
    for number in range(3):
        write(store, "k", number)
    heard: list[frozenset[str] | None] = []
    following = LogTailer(store, bell)
    with following.subscribe(heard.append):
        bell.notify()
        await until_async(lambda: heard == [None])
        with store.transaction(time.monotonic() + PATIENCE) as transaction:
            for table in (EVENTS_TABLE, *(view.name for view in VIEWS)):
                transaction.connection.execute(f"DELETE FROM {table}")
            transaction.wrote = True
        bell.notify()
        await until_async(lambda: heard == [None, None])
        write(store, "other", 1)
        bell.notify()
        await until_async(lambda: heard == [None, None, {"record:n/other"}])


# --- who looks


class Looks:
    """A wait that never finds anything and counts how often it looked."""

    def __init__(self, concerns: tuple[str, ...]) -> None:
        self.count = 0
        self.call: BlockingQuery[Any] = BlockingQuery(self._look, lambda reader, elapsed: "over", LONG, concerns)

    def _look(self, reader: Any, elapsed: float) -> None:
        self.count += 1


async def test_only_waiters_concerned_by_an_event_check_again(engine: Engine) -> None:
    concerned_one, others = Looks((record_stream("n", "k"),)), Looks((record_stream("n", "other"), *what_overlaps("k")))
    all_of_it, everything = Looks(whole_namespace("n")), Looks(EVERYTHING)
    tasks = [
        asyncio.create_task(engine.wait_async(it.call)) for it in (concerned_one, others, all_of_it, everything, others)
    ]
    await until_async(lambda: engine.lease_maintenance.waiters == 5)
    engine.notifier.notify()
    await until_async(lambda: others.count == 4)  # nobody knows what came before the first bell
    for number in range(10):
        before = concerned_one.count, all_of_it.count, everything.count
        write(engine.store, "k", number)
        engine.notifier.notify()
        now = concerned_one, all_of_it, everything
        await until_async(lambda before=before, now=now: all(it.count > n for it, n in zip(now, before, strict=True)))  # type: ignore[misc]
    assert others.count == 4
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert engine.log_tailer._waiters == {}
    assert engine.log_tailer._to_wake == {}
    assert engine.notifier._wakers == []


async def test_other_tasks_run_while_many_waiters_are_woken() -> None:
    engine = open_holdlog(":memory:")
    engine.claim(engine.requests.claims.claim("r", "ann"), NOBODY)
    waiting = [asyncio.create_task(engine.wait_async(engine.requests.claims.wait("r", LONG))) for _ in range(400)]
    await until_async(lambda: engine.lease_maintenance.waiters == 400)
    engine.write(engine.requests.claims.release("r", "ann"), NOBODY)
    turns = 0
    while any(not it.done() for it in waiting):
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 400 / follower.WOKEN_AT_ONCE
    assert {(await it).status for it in waiting} == {"available"}
    engine.close()


async def test_many_waiters_of_one_loop_use_one_notification_listener(engine: Engine) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(engine.log_tailer.listen(EVERYTHING))
        assert len(engine.notifier._wakers) == 1
    assert engine.notifier._wakers == []


# --- the end of all waits


async def test_shutdown_answers_all_waiters_as_if_they_had_timed_out(engine: Engine) -> None:
    engine.claim(engine.requests.claims.claim("r", "ann"), NOBODY)
    in_line = engine.requests.claims.claim("r", "bob", wait_seconds=LONG)
    waiting = [
        asyncio.create_task(engine.wait_async(engine.requests.claims.wait("r", LONG))),
        asyncio.create_task(engine.wait_async(engine.requests.values.watch("n", "k", 0, LONG))),
        asyncio.create_task(engine.claim_async(in_line, NOBODY)),
        asyncio.create_task(asyncio.to_thread(engine.wait, engine.requests.claims.wait("r", LONG))),
        asyncio.create_task(
            asyncio.to_thread(engine.claim, engine.requests.claims.claim("r", "cid", wait_seconds=LONG), NOBODY)
        ),
    ]
    await until_async(lambda: engine.lease_maintenance.waiters == 5)
    engine.finish_waiting()
    answers: list[Any] = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    assert [it.status for it in answers] == ["timeout", "timeout", "busy", "timeout", "busy"]
    assert answers[2].ticket is not None
    assert answers[2].held_by == "ann"


async def test_shutdown_refuses_new_waits(engine: Engine) -> None:
    engine.claim(engine.requests.claims.claim("r", "ann"), NOBODY)
    engine.finish_waiting()
    async with asyncio.timeout(PATIENCE):
        assert (await engine.wait_async(engine.requests.claims.wait("r", LONG))).status == "timeout"
        assert (
            await engine.claim_async(engine.requests.claims.claim("r", "bob", wait_seconds=LONG), NOBODY)
        ).status == "busy"
    assert engine.wait(engine.requests.values.watch("n", "k", 0, LONG)).status == "timeout"
    assert engine.wait(engine.requests.claims.wait("free", LONG)).status == "available"
