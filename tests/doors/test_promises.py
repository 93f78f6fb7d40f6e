"""Promises of holdlog, each with the test that names it. Others are elsewhere: a killed process (1) in faults_kill,
claims (6 to 8), overload (10) in faults_processes, views (11) in past_model and audit."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.library import in_thread
from tests.support.programs import run
from tests.support.tampering import ask
from tests.support.waiting import until

in_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


def put(store, value=1, key="k", by="ann", **options):
    return store.set("n", key, value, updated_by=by, **options)


def length(store):
    return store.list("n").position


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


WRITES = {
    "set": lambda store, it: store.set("n", "new", {"a": 1}, updated_by="ann", request_id=it),
    "delete": lambda store, it: store.delete("n", "k", deleted_by="ann", request_id=it),
    "clear": lambda store, it: store.clear_namespace("n", deleted_by="ann", request_id=it),
    "increment": lambda store, it: store.update("n", "k", increment=1, updated_by="ann", request_id=it),
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
            watching = pool.submit(one.watch, "n", "k", version, timeout_seconds=50)
            put(two, version)
            found = watching.result(60)
            assert (found.status, found.version, found.value) == ("ok", version + 1, version)
    watching = in_thread(one.watch, "n", "k", 40, timeout_seconds=50)
    two.delete("n", "k", deleted_by="bob")
    found = watching.result()
    assert (found.status, found.version, found.deleted_by) == ("deleted", 41, "bob")


@both_stores
def test_promise_9_watch_is_ordered_and_resumable_and_misses_no_last_value(open_store):
    one, two = open_store(), open_store()

    def follow(since, last):
        found = []
        while since < last:
            since = one.watch("n", "k", since, timeout_seconds=50).version
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
    timeout = one.watch("n", "k", 50, timeout_seconds=0.01)
    assert (timeout.status, timeout.since_version) == ("timeout", 50)
    assert timeout.elapsed_seconds >= 0.01


@in_file
def test_promise_12_the_log_is_never_rewritten_and_a_redacted_text_leaves_its_hash(store, db):
    select = "SELECT position, stream, version, at, digest, payload FROM events ORDER BY position"
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
    [(kept,)] = ask(db, "SELECT payload_hash FROM events WHERE position = 1")
    assert len(kept) == 32


ADVICE = re.compile(r"\b(force|clear_namespace|clear|delete|re-?create|remove)\b", re.IGNORECASE)


@pytest.mark.xdist_group("stdio")
def test_promise_13_no_hint_advises_to_force_clear_delete_or_recreate(open_stdio, open_folder):
    ann, mark = open_stdio, "5tored-text"
    bob = holdlog.StateStore(open_folder / "state.db")
    at = {"namespace": "promise", "key": "k"}
    a, b = "custom://promise/a", "custom://promise/b"
    bob.set(**at, value=mark, updated_by="bob")
    guard = [{"resource": a, "version": bob.claim(a, agent="bob", note=mark).version}]
    ann.call("claim", resource=b, agent="ann")
    waiting = in_thread(bob.claim, b, agent="bob", wait_seconds=50)
    until(lambda: ann.call("status", resource=b)["queue_length"])
    write = {**at, "updated_by": "ann"}
    operations = [{"op": "check", **at, "expected_version": 9}]
    refused = [
        ann.call("set", **write, value=1, expected_version=0),
        ann.call("set", **write, value=1, expected_version=1, guard=guard),
        ann.call("update", **write, append=1, expected_version=9),
        ann.call("transact", operations=operations, updated_by="ann"),
        ann.call("delete", **at, deleted_by="ann", expected_version=9),
        ann.call("claim", resource=a, agent="ann"),
        ann.call("claim", resource=a, agent="bob"),
        ann.call("claim", resource=a, agent="ann", wait_seconds=30),
        ann.call("release", resource=a, agent="ann"),
        ann.call("wait", resource=a, timeout_seconds=0),
        ann.call("watch", **at, since_version=1, timeout_seconds=0),
    ]
    hints = [it.get("hint") for it in refused]
    assert all(hints), refused
    for hint in hints:
        assert ADVICE.search(hint) is None, hint
        assert mark not in hint
        assert len(hint) <= 200
    ann.call("release", resource=b, agent="ann")
    assert waiting.result().status == "claimed"
    bob.close()
    assert {it["status"] for it in refused} >= {"conflict", "fenced", "busy", "deadlock", "not_holder", "timeout"}
