"""The log as an answer: ordered, unique, complete, in pages that split no commit, and by what was chosen."""

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdlog.adapters.api.events import paging
from holdlog.adapters.api.pagination import MAX_PAGE_BYTES
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.values.responses import Events, EventView
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.python.async_store import AsyncStateStore
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.resource import overlap
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import DeniedError, InvalidError, StoreError
from holdlog.projections import fold
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, change, claim, drop, let_go, put, until, until_async, whole_log, write

LONG = 50.0


def calls_of(store: Store) -> Requests:
    return Requests(RequestRules(Settings(), lambda: 0, lambda: 0, lambda server: True, Identity("salt")))


def page(store: Store, after: int = 0, limit: int = 100, calls: Requests | None = None, **choice: Any) -> Events:
    calls = calls or calls_of(store)
    call = calls.events.page(calls.events.choice(**choice), after, limit)
    with store.snapshot() as reader:
        return call.answer(reader)


def pages(store: Store, limit: int = 100, **choice: Any) -> Iterator[Events]:
    after = 0
    while True:
        found = page(store, after, limit, **choice)
        yield found
        if found.next_position == found.bookmark:
            return
        assert found.next_position > after
        after = found.next_position


def all_events(store: Store, limit: int = 100, **choice: Any) -> list[EventView]:
    return [event for it in pages(store, limit, **choice) for event in it.events]


def positions(events: list[EventView]) -> list[int]:
    return [event.position for event in events]


# --- what is told


def test_event_answer_names_place_time_author_and_value(store: Store, clock: Clock) -> None:
    caller = Caller(session="secret-session", principal="token:ci", request_id="r-1", reason="ads for May")
    change(store, put("budget", {"a": [1, None]}, ttl=60), by="ann", caller=caller)
    (event,) = page(store).body()["events"]
    assert event == {
        "position": 1,
        "id": "record:n/budget@1",
        "stream": "record:n/budget",
        "version": 1,
        "kind": "ValueWritten",
        "at": "1970-01-01T00:16:40.000000+00:00",
        "by": "ann",
        "namespace": "n",
        "key": "budget",
        "value": {"a": [1, None]},
        "expires_at": "1970-01-01T00:17:40.000000+00:00",
        "principal": "token:ci",
        "request_id": "r-1",
        "reason": "ads for May",
        "operation": "set",
    }


def test_event_of_a_null_value_shows_null(store: Store) -> None:
    write(store, "k", None)
    change(store, drop("k"), by="bob")
    written, deleted = page(store).body()["events"]
    assert written["value"] is None
    assert (deleted["kind"], deleted["by"], "value" in deleted) == ("ValueDeleted", "bob", False)


def test_events_of_claims_and_agents_are_listed(engine: Engine) -> None:
    engine.claim(engine.requests.claims.claim("src/", "ann", also=["b.py"], note="ten minutes"), NOBODY)
    engine.claim(engine.requests.claims.claim("b.py", "bob", also=["c.py"], wait_seconds=0.01), NOBODY)
    engine.write(engine.requests.claims.release("src/", "ann", outcome="moved", moved_to="lib/"), NOBODY)
    engine.write(engine.requests.claims.release("b.py", "admin", forced=True, note="away"), NOBODY)
    engine.write(engine.requests.claims.register("ann", name="Ann", purpose="tests"), NOBODY)
    events = engine.read(engine.requests.events.page(engine.requests.events.choice())).body()["events"]
    by_kind = {event["kind"]: event for event in events}
    assert [events[0][it] for it in ("kind", "resource", "by", "agent", "note")] == [
        "ClaimGranted",
        "src/",
        "ann",
        "ann",
        "ten minutes",
    ]
    assert by_kind["ClaimQueued"]["also"] == ["c.py"]
    moved, forced = (it for it in events if it["kind"] == "ClaimReleased")
    assert (moved["outcome"], moved["moved_to"], moved["by"]) == ("moved", "lib/", "ann")
    assert (forced["by"], forced["agent"], forced["note"]) == ("admin", "ann", "away")
    registered = by_kind["AgentRegistered"]
    assert (registered["agent"], registered["by"], registered["name"]) == ("ann", "ann", "Ann")
    assert [event["position"] for event in events] == list(range(1, len(events) + 1))


def test_empty_log_has_an_empty_page(store: Store) -> None:
    assert page(store).body() == {"status": "ok", "events": [], "next_position": 0, "bookmark": 0}


def test_reading_beyond_the_end_of_the_log_is_refused_with_the_last_position(store: Store) -> None:
    write(store, "k", 1)
    assert page(store, after=1).events == []
    with pytest.raises(InvalidError, match="after: is 2, but the log ends at position 1; pass that or less"):
        page(store, after=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"after": -1}, "after"),
        ({"after": True}, "after"),
        ({"after": "1"}, "after"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"prefix": "a"}, "prefix"),
        ({"namespace": ""}, "namespace"),
        ({"kinds": []}, "kinds"),
        ({"kinds": "ValueWritten"}, "kinds"),
        ({"kinds": ["written"]}, "kinds"),
        ({"kinds": [["record"]]}, "kinds"),
        ({"resource": "../x"}, "resource"),
        ({"agent": "/"}, "agent"),
    ],
)
def test_bad_argument_of_an_event_query_is_refused_by_name(store: Store, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidError, match=f"^{named}"):
        page(store, **arguments)


# --- pages


def commits(store: Store, sizes: list[int], clock: Clock | None = None) -> None:
    for number, size in enumerate(sizes):
        if clock is not None:
            clock.move(0.001)
        change(store, *(put(f"k{key}", number) for key in range(size)), by=f"a{number % 3}")


def test_page_of_events_ends_with_a_commit(store: Store, clock: Clock) -> None:
    commits(store, [1, 3, 2, 5, 1], clock)
    assert [positions(it.events) for it in pages(store, limit=4)] == [
        [1, 2, 3, 4],
        [5, 6],
        [7, 8, 9, 10, 11],  # larger than a page, and whole
        [12],
    ]
    assert [len(it.events) for it in pages(store, limit=1)] == [1, 3, 2, 5, 1]


def test_page_of_events_may_begin_within_a_commit(store: Store, clock: Clock) -> None:
    commits(store, [1, 3, 2], clock)
    assert positions(page(store, after=2, limit=1).events) == [3, 4]


def test_commits_of_one_time_share_a_page_of_events_up_to_a_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a clock that was set back catches up."""
    monkeypatch.setattr(paging, "COMMIT_EVENTS", 10)
    commits(store, [3, 3, 3, 3, 3])
    assert [len(it.events) for it in pages(store, limit=1)] == [10, 5]


def test_page_of_events_ends_at_its_byte_limit_with_a_commit(store: Store, clock: Clock) -> None:
    large = "x" * 200_000
    for _ in range(5):
        clock.move(1)
        change(store, *(put(f"{number}", large) for number in range(2)))
    assert [len(it.events) for it in pages(store)] == [4, 4, 2]
    clock.move(1)
    change(store, *(put(f"{number}", large) for number in range(8)))
    found = list(pages(store))
    assert [len(it.events) for it in found] == [4, 4, 2, 8]


def test_commit_larger_than_a_response_is_split_into_pages(store: Store, clock: Clock) -> None:
    change(store, *(put(f"{number}", "x" * 250_000) for number in range(90)))
    found = list(pages(store, limit=1000))
    assert len(found) == 3
    assert [event.key for it in found for event in it.events] == [f"{number}" for number in range(90)]
    for it in found:
        assert len(it.events) * 250_000 <= paging.COMMIT_BYTES + MAX_PAGE_BYTES


@pytest.mark.check
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pages_of_events_together_are_the_whole_log(store: Store, clock: Clock, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), max_size=6))
    commits(store, sizes, clock if data.draw(st.booleans()) else None)
    if data.draw(st.booleans()):
        claim(store, "src/a.py", "ann")
        let_go(store, "src/a.py", "ann")
    limit = data.draw(st.integers(1, 9))
    log = whole_log(store)
    found = list(pages(store, limit))
    assert [event.id for it in found for event in it.events] == [
        f"{it.envelope.stream}@{it.envelope.version}" for it in log
    ]
    for one, following in pairwise(found):
        assert one.events[-1].at < following.events[0].at  # no commit is in two pages
    kinds = data.draw(st.sampled_from([None, ["record"], ["claim"], ["ValueWritten", "ClaimReleased"]]))
    agent = data.draw(st.sampled_from([None, "a0", "ann"]))
    namespace = data.draw(st.sampled_from([None, "n", "other"]))
    chosen = all_events(store, limit, kinds=kinds, agent=agent, namespace=namespace)
    assert positions(chosen) == [
        event.position
        for event in all_events(store, 1000)
        if (kinds is None or event.kind in kinds or event.stream.split(":")[0] in kinds)
        and (agent is None or event.by == agent)
        and (namespace is None or event.stream.startswith(f"record:{namespace}/"))
    ]


def test_search_for_rare_events_scans_a_limited_part_of_the_log_per_call(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "SCANNED_BYTES", 20 * 200)
    for number in range(100):
        clock.move(0.001)
        change(store, put("k", number, namespace="rare" if number == 77 else "n"))
    found = list(pages(store, namespace="rare"))
    assert [positions(it.events) for it in found if it.events] == [[78]]
    assert len(found) == 5
    assert [it.next_position for it in found] == [21, 42, 63, 82, 100]  # what was read counts with its value


def test_events_query_does_not_read_values_it_was_not_asked_for(store: Store) -> None:
    """An event that this build does not know can be passed over, but not told."""
    for number in range(3):
        write(store, "k", number, namespace="a" if number == 1 else "b")
    known = fold.EVENTS.pop("ValueWritten")
    try:
        assert page(store, namespace="c").next_position == 3
        with pytest.raises(StoreError, match="unknown topic"):
            page(store, namespace="a")
    finally:
        fold.EVENTS["ValueWritten"] = known


# --- what is chosen


def test_events_are_filtered_by_place_kind_and_agent(store: Store) -> None:
    change(store, put("a/1", 1), put("a/2", 1), put("b", 1), by="ann")
    change(store, put("a/1", 1, namespace="m"), by="ann/tests")
    change(store, drop("b"), by="anna")
    claim(store, "src/", "ann")
    claim(store, "lib/x.py", "bob")
    assert positions(all_events(store, namespace="n")) == [1, 2, 3, 5]
    assert positions(all_events(store, namespace="n", prefix="a/")) == [1, 2]
    assert positions(all_events(store, resource="src/deep/a.py")) == [6]
    assert positions(all_events(store, resource="src")) == [6]
    assert positions(all_events(store, resource="lib/")) == [7]
    assert positions(all_events(store, namespace="m", resource="lib/")) == [4, 7]
    assert positions(all_events(store, agent="ann")) == [1, 2, 3, 4, 6]
    assert positions(all_events(store, kinds=["ValueDeleted"])) == [5]
    assert positions(all_events(store, kinds=["ValueDeleted", "claim"])) == [5, 6, 7]
    assert positions(all_events(store, kinds=["record"], agent="anna")) == [5]


@settings(max_examples=50, deadline=None)
@given(*[st.sampled_from(["a", "a/", "a/b", "a/b/", "ab", "custom://a", "custom://a/"])] * 2)
def test_resource_filter_selects_events_of_overlapping_resources(changed: str, asked: str) -> None:
    calls = Requests(RequestRules(Settings(), lambda: 0, lambda: 0, lambda server: True, Identity("salt")))
    with StateStore(":memory:") as memory:
        memory.claim(changed, agent="ann")
        with memory._engine.store.reader() as reader:
            found = calls.events.page(calls.events.choice(resource=asked)).answer(reader)
    assert bool(found.events) == overlap(changed, asked)


def test_events_outside_the_grants_and_their_names_are_hidden(engine: Engine) -> None:
    engine.write(engine.requests.values.set("open", "k", 1, "ann", None), NOBODY)
    engine.write(engine.requests.values.set("hidden", "k", "secret", "ann", None), NOBODY)
    engine.claim(engine.requests.claims.claim("docs/a.md", "ann"), NOBODY)
    engine.claim(
        engine.requests.claims.claim("docs/a.md", "bob", also=["hidden.py", "docs/b.md"], wait_seconds=0.01), NOBODY
    )
    engine.write(engine.requests.claims.release("docs/a.md", "ann", outcome="moved", moved_to="hidden/a.md"), NOBODY)
    calls = engine.requests.within(Grants.parse(["read:open", "claim:docs/*"]))
    found = engine.read(calls.events.page(calls.events.choice()))
    assert {event.stream for event in found.events} == {"record:open/k", "claim:docs/a.md"}
    assert [event.also for event in found.events if event.kind == "ClaimQueued"] == [["docs/b.md"]]  # type: ignore[attr-defined]
    assert "hidden" not in found.model_dump_json()
    assert found.next_position == found.bookmark
    for denied in ({"namespace": "hidden"}, {"resource": "hidden.py"}):
        with pytest.raises(DeniedError):
            calls.events.choice(**denied)  # type: ignore[arg-type]
    assert len(engine.read(calls.events.page(calls.events.choice(namespace="open"))).events) == 1


# --- while others write


def test_reader_of_events_misses_and_repeats_nothing_while_others_write(place: str) -> None:
    with StateStore(place) as store:
        ended = threading.Event()

        def work(number: int) -> None:
            for step in range(40):
                store.set("n", f"{number}", step, updated_by=f"w{number}")
            if number == 0:
                store.clear_namespace("n", deleted_by="w0")

        def read() -> list[EventView]:
            found: list[EventView] = []
            after = 0
            while True:
                last = ended.is_set()
                answer = store.events(after, limit=7)
                found += answer.events
                after = answer.next_position
                if last and after == answer.bookmark:
                    return found

        with ThreadPoolExecutor(5) as pool:
            reading = pool.submit(read)
            for done in [pool.submit(work, number) for number in range(4)]:
                done.result(PATIENCE)
            ended.set()
            found = reading.result(PATIENCE)
        log = whole_log(store._engine.store)
        assert positions(found) == [it.envelope.position for it in log]
        assert [event.id for event in found] == [f"{it.envelope.stream}@{it.envelope.version}" for it in log]


# --- waiting


def test_long_poll_returns_the_next_matching_event(place: str) -> None:
    with StateStore(place) as store, ThreadPoolExecutor(1) as pool:
        store.set("n", "k", 1, updated_by="ann")
        waiting = pool.submit(store.events, 1, namespace="m", wait_seconds=LONG)
        until(lambda: store._engine.lease_maintenance.waiters == 1)
        store.set("n", "k", 2, updated_by="ann")
        assert not waiting.done()
        store.set("m", "k", 3, updated_by="ann")
        answer = waiting.result(PATIENCE)
        assert (positions(answer.events), answer.next_position) == ([3], 3)
        assert positions(store.events(1, wait_seconds=LONG).events) == [2, 3]


async def test_long_poll_of_a_coroutine_returns_the_next_matching_event(place: str) -> None:
    async with AsyncStateStore(place) as store:
        await store.set("n", "k", 1, updated_by="ann")
        waiting = asyncio.create_task(store.events(1, resource="src/", wait_seconds=LONG))
        await until_async(lambda: store._engine.lease_maintenance.waiters == 1)
        await store.set("n", "k", 2, updated_by="ann")
        await store.claim("src/a.py", agent="ann")
        answer = await asyncio.wait_for(waiting, PATIENCE)
        assert (positions(answer.events), answer.next_position) == ([3], 3)


def test_long_poll_that_times_out_returns_the_position_it_reached(place: str) -> None:
    with StateStore(place) as store:
        for number in range(3):
            store.set("n", "k", number, updated_by="ann")
        answer = store.events(1, namespace="m", wait_seconds=0.01)
        assert (answer.events, answer.next_position, answer.bookmark) == ([], 3, 3)
        with pytest.raises(InvalidError, match="but the log ends at position"):
            store.events(4, wait_seconds=LONG)


def test_long_poll_with_more_of_the_log_to_scan_returns_at_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "SCANNED_BYTES", 1)
    with StateStore(place) as store:
        for number in range(30):
            store.set("n", "k", number, updated_by="ann")
        answer = store.events(0, namespace="m", wait_seconds=LONG)
        assert answer.events == []
        assert 0 < answer.next_position < answer.bookmark == 30


def test_long_poll_lasts_no_longer_than_the_wait_limit(place: str) -> None:
    engine = open_holdlog(place, Settings(max_wait=0.01))
    calls = engine.requests
    assert engine.wait(calls.events.next_page(calls.events.choice(), 0, 1, 3600.0)).events == []
    engine.close()


# --- its document

DOCUMENT = (Path(__file__).parents[2] / "docs/events.md").read_text()


def test_events_document_lists_every_kind_with_its_fields() -> None:
    told = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.*) \|$", DOCUMENT, re.MULTILINE))
    told |= dict.fromkeys(re.findall(r"^\| `([A-Z]\w+)` \| \|$", DOCUMENT, re.MULTILINE), "")
    assert set(told) == set(fold.EVENTS)
    for kind, event in fold.EVENTS.items():
        named = {name.rstrip("?") for name in re.findall(r"`(\w+\??)`", told[kind])}
        assert set(event.model_fields) - {"by", "principal", *event.private_fields} <= named, kind
