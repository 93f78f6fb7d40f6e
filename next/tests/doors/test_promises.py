"""The promises of holdlog, each with the test that names it. Those about claims (6 to 8) are elsewhere."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.library import in_thread
from tests.support.programs import environment, run
from tests.support.tampering import ask
from tests.support.waiting import until

in_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


def put(store, value=1, key="k", by="ann", **options):
    return store.set("n", key, value, updated_by=by, **options)


def length(store):
    return store.list("n").position


KILLED = """
import sys, holdlog
store = holdlog.StateStore(sys.argv[1])
while True:
    print(store.update("n", "k", lambda value: (value or 0) + 1, updated_by="ann").version, flush=True)
"""


def test_promise_1_what_was_acknowledged_survives_a_killed_process(db):
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, db], stdout=subprocess.PIPE, env=environment())
        lines = [process.stdout.readline() for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = int((lines + process.stdout.readlines())[-1])
        process.wait(60)
        process.stdout.close()
        with holdlog.StateStore(db) as store:
            found = store.get("n", "k")
            assert found.version == found.value
            assert acknowledged <= found.version <= acknowledged + 1
            assert [it.version for it in store.history("n", "k", limit=1000)] == list(range(found.version, 0, -1))


@both_stores
def test_promise_2_a_read_sees_every_acknowledged_write_and_a_list_is_one_snapshot(open_store):
    one, two = open_store(), open_store()
    ended = threading.Event()

    def write():
        for number in range(60):
            operations = [{"op": "set", "namespace": "n", "key": key, "value": number} for key in ("a", "b", "c")]
            done = one.transact(operations, updated_by="ann")
            assert two.get("n", "b").value == number
            assert two.list("n").position == done.position
        ended.set()

    writing, last = in_thread(write), 0
    while not ended.is_set() and writing.is_running:
        page = two.list("n")
        assert len({it.value for it in page.records}) <= 1
        assert page.position % 3 == 0
        assert page.position >= last
        last = page.position
    writing.result()


def test_promise_3_a_version_names_one_event_for_ever(store):
    seen = {}
    steps = [
        lambda: put(store, "x"),
        lambda: store.delete("n", "k", deleted_by="ann"),
        lambda: put(store, "y", expected_version=0),
        lambda: store.clear_namespace("n", deleted_by="ann"),
        lambda: put(store, "z", ttl_seconds=0.000_001),
        lambda: put(store, "z", expected_version=0),
        lambda: put(store, []),
        lambda: store.update("n", "k", append=1, updated_by="ann"),
    ]
    for step in steps * 2:
        step()
        for it in store.history("n", "k"):
            event = (it.value, it.event_type, it.updated_by, it.position)
            assert seen.setdefault(it.version, event) == event
    assert sorted(seen) == list(range(1, len(seen) + 1))


def refusals(store, version):
    """Calls that must be refused, of a store in which bob holds a.py and ann wrote n/k."""
    guard = [{"resource": "a.py", "version": version + 1}]
    operations = [
        {"op": "set", "namespace": "n", "key": "new", "value": 1},
        {"op": "check", "namespace": "n", "key": "k", "expected_version": 9},
    ]
    return [
        lambda: put(store, expected_version=0),
        lambda: put(store, expected_version=9),
        lambda: put(store, guard=guard),
        lambda: put(store, key="new", by="bob", guard=guard),
        lambda: store.delete("n", "k", deleted_by="ann", expected_version=9),
        lambda: store.delete("n", "never", deleted_by="ann"),
        lambda: store.transact(operations, updated_by="ann"),
        lambda: store.update("n", "k", append=1, updated_by="ann"),
        lambda: put(store, key=""),
        lambda: put(store, float("nan")),
    ]


def test_promise_4_a_refusal_changed_nothing(store):
    put(store, "text")
    version = store.claim("a.py", agent="bob").version
    before = length(store)
    for number, call in enumerate(refusals(store, version)):
        with pytest.raises(holdlog.HoldlogError):
            call()
        assert length(store) == before, number
    for result in (
        store.claim("a.py", agent="ann"),
        store.claim("b.py", agent="ann", also=["a.py"]),
        store.release("a.py", agent="ann"),
    ):
        assert not result
    assert length(store) == before
    assert [it.key for it in store.list("n").records] == ["k"]


@in_file
def test_promise_4_unavailable_says_that_nothing_was_written(store, db):
    put(store)
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(holdlog.UnavailableError) as refused:
            put(store, 2)
        other.execute("ROLLBACK")
    assert (refused.value.in_doubt, refused.value.retry_after > 0) == (False, True)
    assert put(store, 3).version == 2


WRITES = {
    "set": lambda store, it: store.set("n", "new", {"a": 1}, updated_by="ann", request_id=it),
    "delete": lambda store, it: store.delete("n", "k", deleted_by="ann", request_id=it),
    "clear": lambda store, it: store.clear_namespace("n", deleted_by="ann", request_id=it),
    "increment": lambda store, it: store.update("n", "k", increment=1, updated_by="ann", request_id=it),
    "function": lambda store, it: store.update("n", "k", lambda was: was + 1, updated_by="ann", request_id=it),
    "transact": lambda store, it: store.transact(
        [{"op": "increment", "namespace": "n", "key": "k", "by": 2}], updated_by="ann", request_id=it
    ),
    "release": lambda store, it: store.release("held.py", agent="ann", outcome="modified", request_id=it),
}


@pytest.mark.parametrize("write", WRITES)
@both_stores
def test_promise_5_a_repeated_request_returns_the_first_result(open_store, write):
    store = open_store(session="s")
    put(store)
    store.claim("held.py", agent="ann")
    first = WRITES[write](store, "r-1")
    written = length(store)
    store.close()
    again = open_store(session="s")
    assert WRITES[write](again, "r-1") == first
    assert length(again) == written


def test_promise_5_repeats_at_once_are_done_once_and_an_id_serves_one_request(store):
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(lambda _: store.update("n", "k", increment=1, updated_by="ann", request_id="r"), range(40))
        )
    assert ({it.version for it in done}, store.get("n", "k").value) == ({1}, 1)
    for other in (
        lambda: store.update("n", "k", increment=2, updated_by="ann", request_id="r"),
        lambda: put(store, request_id="r"),
    ):
        with pytest.raises(holdlog.InvalidError, match="request_id"):
            other()
    assert length(store) == 1


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["memory"], indirect=True)
def test_promise_5_ten_thousand_requests_are_remembered(store):
    first = put(store, "first", request_id="first")
    for number in range(9_999):
        put(store, number, request_id=str(number))
    count = length(store)
    assert put(store, "first", request_id="first") == first
    assert length(store) == count


@both_stores
def test_promise_9_a_watcher_that_should_wake_wakes(open_store):
    one, two = open_store(), open_store()
    with ThreadPoolExecutor(1) as pool:
        for version in range(40):
            watching = pool.submit(one.watch, "n", "k", version, 50)
            put(two, version)
            found = watching.result(60)
            assert (found.status, found.version, found.value) == ("ok", version + 1, version)
    watching = in_thread(one.watch, "n", "k", 40, 50)
    two.delete("n", "k", deleted_by="bob")
    found = watching.result()
    assert (found.status, found.version, found.deleted_by) == ("deleted", 41, "bob")


@both_stores
def test_promise_9_watch_is_ordered_and_resumable_and_misses_no_last_value(open_store):
    one, two = open_store(), open_store()

    def follow(since, last):
        found = []
        while since < last:
            since = one.watch("n", "k", since, 50).version
            found.append(since)
        return found

    following = [in_thread(follow, 0, 50) for _ in range(3)]
    for number in range(50):
        put(two, number)
    for it in following:
        versions = it.result()
        assert versions == sorted(set(versions))
        assert versions[-1] == 50
    assert follow(49, 50) == [50]
    timeout = one.watch("n", "k", 50, 0.01)
    assert (timeout.status, timeout.since_version) == ("timeout", 50)
    assert timeout.elapsed_seconds >= 0.01


OVERLOAD = """
import asyncio, collections, sqlite3, sys, holdlog

async def main():
    async with holdlog.AsyncStateStore(sys.argv[1]) as store:
        await store.set("n", "k", 0, updated_by="ann")
        other = sqlite3.connect(sys.argv[1], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        calls = [asyncio.ensure_future(store.set("n", str(it), it, updated_by="ann")) for it in range(12_000)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        refused = [it.exception() for it in calls if it.done()]
        other.execute("ROLLBACK")
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(it, holdlog.UnavailableError) and it.retry_after and not it.in_doubt for it in refused)
        print(len(refused) > 0, sum(not isinstance(it, Exception) for it in outcomes))

asyncio.run(main())
"""


@pytest.mark.rest
def test_promise_10_overload_is_refused_and_not_queued_without_limit(db):
    done = subprocess.run(
        [sys.executable, "-c", OVERLOAD, db],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    some_refused, written = done.stdout.split()
    with holdlog.StateStore(db) as store:
        assert (some_refused, len(store.list_keys("n"))) == ("True", int(written) + 1)


@in_file
def test_promise_11_views_equal_the_log(store, db):
    for number in range(30):
        put(store, number, str(number % 7), by=f"a{number % 3}")
        if number % 5 == 0:
            store.delete("n", str(number % 7), deleted_by="ann")
        store.claim(f"r{number % 4}", agent=f"a{number % 3}")
        store.release(f"r{number % 3}", agent=f"a{number % 2}")

    def seen():
        records = [(it.key, it.value, it.version, it.updated_by) for it in store.list("n").records]
        return records, [(it.resource, it.held_by, it.version) for it in store.status().claims]

    before = seen()
    assert run("doctor", "--rebuild", "--db", db).code == 0
    assert seen() == before


@in_file
def test_promise_12_the_log_is_never_rewritten_and_a_redacted_text_leaves_its_hash(store, db):
    select = "SELECT POSITION, STREAM, VERSION, at, digest, payload FROM EVENTS ORDER BY POSITION"
    put(store, "secret words")
    put(store, "safe")
    store.claim("a.py", agent="ann", note="mine")
    before = ask(db, select)
    store.release("a.py", agent="ann")
    store.delete("n", "k", deleted_by="ann")
    store.clear_namespace("n", deleted_by="ann")
    put(store, "new", expected_version=0)
    assert ask(db, select)[:3] == before
    assert run("redact", "record:n/k@1", "--reason", "private", "--db", db).code == 0
    after = ask(db, select)[:3]
    assert [row[:5] for row in after] == [row[:5] for row in before]
    assert [row[5] for row in after] == [None, *(row[5] for row in before[1:])]
    [(kept,)] = ask(db, "SELECT payload_hash FROM EVENTS WHERE POSITION = 1")
    assert len(kept) == 32


ADVICE = re.compile(r"\b(force|clear_namespace|clear|delete|re-?create|remove)\b", re.IGNORECASE)


def test_promise_13_no_hint_advises_to_force_clear_delete_or_recreate(stdio, db):
    ann, mark = stdio("--tools", "all"), "5tored-text"
    bob = holdlog.StateStore(db)
    put(bob, mark, by="bob")
    guard = [{"resource": "custom://a", "version": bob.claim("custom://a", agent="bob", note=mark).version}]
    ann.call("claim", resource="custom://b", agent="ann")
    waiting = in_thread(bob.claim, "custom://b", agent="bob", wait_seconds=50)
    until(lambda: ann.call("status").get("queues"))
    write = {"namespace": "n", "key": "k", "updated_by": "ann"}
    operations = [{"op": "check", "namespace": "n", "key": "k", "expected_version": 9}]
    refused = [
        ann.call("set", **write, value=1, expected_version=0),
        ann.call("set", **write, value=1, expected_version=1, guard=guard),
        ann.call("update", **write, append=1, expected_version=9),
        ann.call("transact", operations=operations, updated_by="ann"),
        ann.call("delete", namespace="n", key="k", deleted_by="ann", expected_version=9),
        ann.call("claim", resource="custom://a", agent="ann"),
        ann.call("claim", resource="custom://a", agent="bob"),
        ann.call("claim", resource="custom://a", agent="ann", wait_seconds=30),
        ann.call("release", resource="custom://a", agent="ann"),
        ann.call("wait", resource="custom://a", timeout_seconds=0),
        ann.call("watch", namespace="n", key="k", since_version=1, timeout_seconds=0),
    ]
    hints = [it.get("hint") for it in refused]
    assert all(hints), refused
    for hint in hints:
        assert ADVICE.search(hint) is None, hint
        assert mark not in hint
        assert len(hint) <= 200
    ann.call("release", resource="custom://b", agent="ann")
    assert waiting.result().status == "claimed"
    bob.close()
    assert {it["status"] for it in refused} >= {"conflict", "fenced", "busy", "deadlock", "not_holder", "timeout"}
