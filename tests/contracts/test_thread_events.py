"""Threads in the log as an answer: told with their names, chosen by thread, seen with `read` on their id."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.following import follow
from holdlog.adapters.runtime.tail import RenderedEvent
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import DeniedError, InvalidError
from tests.contracts.test_events import LONG, all_events, calls_of, page, pages, positions
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, until, until_async, whole_log, write
from tests.support.thread_story import KINDS, append, change_data, fork, said, start, story


def told(store: Store, **choice: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page(store, **choice).body()["events"]
    return found


def test_every_thread_event_names_its_thread_and_author(store: Store) -> None:
    story(store)
    events = told(store)
    assert [it["kind"] for it in events] == KINDS
    assert {(it["thread"], it["stream"], it["by"]) for it in events} == {("run-7", "thread:run-7", "ann")}
    assert [it["id"] for it in events] == [f"thread:run-7@{version}" for version in range(1, 8)]
    _, began, message, result, changed, _, _ = events
    assert (began["written"], began["value"]) == (["plan", "files"], {"plan": "search", "files": {"a.py": "1"}})
    assert "deleted" not in began
    assert message["value"] == {"type": "text", "role": "user", "content": "which file?"}
    assert (result["agent"], result["value"]["output"][0]["content"]) == ("writer", "a.py")
    assert result["checksum"] == result["value"]["checksum"]
    assert (changed["value"], changed["written"], changed["deleted"]) == ({"plan": "write"}, ["plan"], ["files"])


def test_thread_event_names_its_caller_but_no_session(store: Store) -> None:
    start(store, caller=Caller(session="secret-session", principal="token:ci", reason="nightly"))
    (event,) = told(store)
    assert event == {
        "position": 1,
        "id": "thread:run-7@1",
        "stream": "thread:run-7",
        "version": 1,
        "kind": "ThreadStarted",
        "at": "1970-01-01T00:16:40.000000+00:00",
        "by": "ann",
        "thread": "run-7",
        "principal": "token:ci",
        "reason": "nightly",
    }


def test_fork_event_names_its_parent(store: Store) -> None:
    story(store)
    fork(store, "run 8/é")
    began = told(store, after=7)[0]
    assert (began["thread"], began["stream"]) == ("run 8/é", "thread:run%208%2F%C3%A9")
    assert (began["parent"], began["parent_version"]) == ("run-7", 7)


def test_page_of_thread_events_ends_by_bytes_of_messages(store: Store, clock: Clock) -> None:
    start(store)
    for _ in range(6):
        clock.move(1)
        append(store, said("x" * 400_000))
    assert [len(it.events) for it in pages(store)] == [3, 2, 2]


def test_events_are_filtered_by_their_thread(store: Store) -> None:
    start(store)
    start(store, "run-70")
    write(store, "run-7", 1, namespace="run-7")
    append(store, said("one"))
    append(store, said("two"), thread="run-70", by="bob")
    assert positions(all_events(store, thread="run-7")) == [1, 4]
    assert positions(all_events(store, thread="run-70")) == [2, 5]
    assert positions(all_events(store, thread="run-")) == []
    assert positions(all_events(store, kinds=["thread"])) == [1, 2, 4, 5]
    assert positions(all_events(store, thread="run-70", kinds=["MessageAppended"])) == [5]
    assert positions(all_events(store, thread="run-70", agent="ann")) == [2]
    assert positions(all_events(store, thread="run-7", namespace="run-7")) == [1, 3, 4]


@pytest.mark.parametrize("thread", ["", " ", "x" * 513, 7, "a\u202eb"])
def test_invalid_thread_id_in_an_event_query_is_refused_by_name(store: Store, thread: Any) -> None:
    with pytest.raises(InvalidError, match=r"^thread: "):
        page(store, thread=thread)


def test_thread_is_visible_with_read_on_its_id_alone(store: Store) -> None:
    story(store)
    fork(store, "open-1")
    story(store, "open-2")
    calls = calls_of(store).within(Grants.parse(["read:open-*", "claim:*"]))
    found = page(store, calls=calls)
    assert {event.stream for event in found.events} == {"thread:open-1", "thread:open-2"}
    assert "run-7" not in found.model_dump_json()  # not as the parent of the fork either
    began = found.body()["events"][0]
    assert (began["kind"], "parent_version" in began) == ("ThreadStarted", False)
    with pytest.raises(DeniedError):
        calls.events.choice(thread="run-7")
    assert len(page(store, calls=calls, thread="open-2").events) == len(KINDS)


def test_event_stream_hides_the_parent_of_a_fork_too(store: Store) -> None:
    story(store)
    fork(store, "open-1")
    happened = RenderedEvent(whole_log(store)[len(KINDS)], None)
    assert '"parent":"run-7"' in happened.text(None)
    assert "parent" not in happened.text(Grants.parse(["read:open-*"]).sees)
    assert '"parent":"run-7"' in happened.text(Grants.parse(["read:*"]).sees)


def test_long_poll_for_a_thread_sleeps_while_other_threads_change(place: str) -> None:
    with StateStore(place) as store, ThreadPoolExecutor(1) as pool:
        start(store._engine)
        start(store._engine, "run-70")
        waiting = pool.submit(store.events, 2, thread="run-7", wait_seconds=LONG)
        until(lambda: store._engine.lease_maintenance.waiters == 1)
        append(store._engine, said("other"), thread="run-70")
        assert not waiting.done()
        append(store._engine, said("mine"))
        answer = waiting.result(PATIENCE)
        assert (positions(answer.events), answer.next_position) == ([4], 4)


async def test_long_poll_of_a_coroutine_for_a_thread_sleeps_likewise(place: str) -> None:
    async with AsyncStateStore(place) as store:
        start(store._engine)
        waiting = asyncio.create_task(store.events(1, thread="run-7", wait_seconds=LONG))
        await until_async(lambda: store._engine.lease_maintenance.waiters == 1)
        await asyncio.to_thread(change_data, store._engine, {"plan": 1})
        assert positions((await asyncio.wait_for(waiting, PATIENCE)).events) == [2]


async def test_wait_for_messages_times_out_when_only_data_changed(place: str) -> None:
    async with AsyncStateStore(place) as store:
        engine = store._engine
        start(engine)
        append(engine, said("one"))
        change_data(engine, {"plan": 1})
        page = await engine.wait_async(engine.requests.threads.next_page("run-7", 2, wait_seconds=0.01))
        assert (page.version, page.body()["items"]) == (3, [])


def test_only_events_of_a_thread_wake_its_waiters(store: Store) -> None:
    calls = calls_of(store)
    assert calls.events.choice(thread="run 7").concerns == ("thread:run%207",)
    assert calls.events.choice(thread="t", namespace="n").concerns == ("record:n/*", "thread:t")
    assert calls.events.choice(agent="ann").concerns == ("*",)


async def test_follower_of_a_thread_gets_its_events_alone(engine: Engine) -> None:
    story(engine)
    start(engine, "other")
    following = follow(engine, engine.requests.events.choice(thread="run-7"), 0, 0.01)
    async with asyncio.timeout(PATIENCE):
        came = await anext(following)
        assert [it.kind for it in came.events] == KINDS
        await anext(following)
        await asyncio.to_thread(append, engine, said("no"), thread="other")
        await asyncio.to_thread(append, engine, said("yes"))
        found: list[RenderedEvent] = []
        while not found:
            found += (await anext(following)).events
    assert [it.position for it in found] == [len(KINDS) + 3]
    await following.aclose()
