"""The library's changes of many or computed values: transact, update, request ids. On every kind of store."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import holdlog
from tests.doors.conftest import both_stores

on_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


def op(name, key="k", /, **fields):
    return {"op": name, "namespace": "n", "key": key, **fields}


def transact(store, *operations, **options):
    return store.transact(list(operations), updated_by="ann", **options)


def update(store, key="k", **change):
    return store.update("n", key, updated_by="ann", **change)


def put(store, value, key="k", **options):
    return store.set("n", key, value, updated_by="bob", **options)


def length(store):
    """How many events the log has."""
    return len(store.events(limit=1000).events)


def rows(done):
    return [(it.namespace, it.key, it.version) for it in done.results]


# --- transactions


def test_transaction_runs_its_operations_in_order_and_reports_each(store):
    put(store, {"a": 1}, "object")
    done = transact(
        store,
        op("set", "number", value=1),
        op("increment", "number", by=2, expected_version=1),
        op("append", "list", value="x"),
        op("append", "list", value="x", unique=True),
        op("merge", "object", value={"a": None, "b": 2}),
        op("check", "nothing", expected_version=0),
        op("set", "gone", value=1),
        op("delete", "gone", expected_version=1),
        {"op": "set", "namespace": "other", "key": "k", "value": None},
    )
    assert (done.status, done.position, length(store)) == ("ok", 8, 8)
    assert rows(done) == [
        *(("n", "number", 1), ("n", "number", 2), ("n", "list", 1), ("n", "list", 1), ("n", "object", 2)),
        *(("n", "nothing", 0), ("n", "gone", 1), ("n", "gone", 2), ("other", "k", 1)),
    ]
    assert [done.results[it].value for it in (1, 2, 3, 4)] == [3, ["x"], ["x"], {"b": 2}]
    assert [it.value for it in store.list_keys("n")] == [["x"], 3, {"b": 2}]


def test_transaction_shares_one_time_and_one_reason(store):
    transact(store, op("set", "a", value=1), op("set", "b", value=1), reason="restock")
    times = {store.get("n", key).updated_at for key in ("a", "b")}
    assert len(times) == 1
    assert {store.history("n", key)[0].reason for key in ("a", "b")} == {"restock"}


REFUSED = {
    "conflict": ([op("set", "a", value=1), op("set", value=1, expected_version=9)], 1),
    "check": ([op("set", "a", value=1), op("check", expected_version=0)], 1),
    "missing": ([op("set", "a", value=1), op("delete", "b")], 1),
    "text": ([op("set", "a", value=1), op("increment", by=1)], 1),
    "no list": ([op("append", value=1)], 0),
    "in order": ([op("set", "a", value=[]), op("increment", "a", by=1)], 1),
    "too large": ([op("set", "a", value=1e308), op("increment", "a", by=1e308)], 1),
    "unknown": ([op("set", "a", value=1), op("incr", by=1)], 1),
    "no op": ([{"namespace": "n", "key": "k"}], 0),
    "extra": ([op("delete", expectd_version=1)], 0),
    "not for it": ([op("increment", by=1, ttl_seconds=1)], 0),
    "no key": ([{"op": "delete", "namespace": "n"}], 0),
    "no value": ([op("set")], 0),
    "no version": ([op("check")], 0),
    "bad version": ([op("set", value=1, expected_version=-1)], 0),
    "name": ([op("set", "a\n", value=1)], 0),
    "value": ([op("set", value=float("nan"))], 0),
    "no number": ([op("increment", by="x")], 0),
    "ttl": ([op("set", value=1, ttl_seconds=0)], 0),
    "no object": ([op("set", value=1), "x"], 1),
    "too many": ([op("set", value=1)] * 1001, None),
    "none": ([], None),
    "size": ([op("set", "a", value=1), op("set", value="x" * 300_000)], 1),
    "result": ([op("append", "big", value="x" * 200_000)] * 2, 1),
}


@on_file
def test_refused_transaction_names_its_operation_and_changes_nothing(store):
    put(store, "secret")
    for name, (operations, operation) in REFUSED.items():
        with pytest.raises(holdlog.HoldlogError) as refusal:
            transact(store, *operations)
        assert (name, refusal.value.operation) == (name, operation)
        assert "secret" not in str(refusal.value)
        assert length(store) == 1


def test_conflict_in_a_transaction_carries_the_current_value(store):
    put(store, {"theirs": 1})
    with pytest.raises(holdlog.ConflictError) as conflict:
        transact(store, op("set", "a", value=1), op("increment", by=1, expected_version=7))
    detail = conflict.value.detail
    assert (conflict.value.operation, detail.namespace, detail.key) == (1, "n", "k")
    assert (detail.expected_version, detail.actual_version, detail.actual_value) == (7, 1, {"theirs": 1})
    assert length(store) == 1


def test_conflict_of_one_caller_does_not_disturb_the_batch_of_others(store):
    put(store, 0)

    def write(number):
        if number % 2:
            with pytest.raises(holdlog.ConflictError):
                put(store, number, expected_version=99)
            return 0
        return update(store, increment=1).version

    with ThreadPoolExecutor(8) as pool:
        versions = sorted(pool.map(write, range(64)))
    assert versions == [0] * 32 + list(range(2, 34))
    assert store.get("n", "k").value == 32


def test_largest_transaction_is_accepted(store):
    done = transact(store, *[op("set", f"{number}", value="x" * 1_000) for number in range(1000)])
    assert (len(done.results), done.position) == (1000, 1000)


# --- updates of one value


def test_update_returns_the_value_that_the_store_computed(store):
    done = update(store, increment=2)
    assert (done.status, done.namespace, done.key, done.value) == ("ok", "n", "k", 2)
    assert (done.version, done.previous_version, done.position) == (1, None, 1)
    done = update(store, increment=0.5, expected_version=1, reason="half")
    assert (done.value, done.version, done.previous_version) == (2.5, 2, 1)
    assert store.history("n", "k", 1)[0].reason == "half"


def test_update_merges_as_rfc_7396_and_appends(store):
    assert update(store, merge={"a": {"b": 1}}).value == {"a": {"b": 1}}
    assert update(store, merge={"a": {"b": None, "c": 2}}).value == {"a": {"c": 2}}
    assert update(store, merge=None).value is None
    assert update(store, "l", append=None).value == [None]
    assert update(store, "l", append={"x": 1}, unique=True).value == [None, {"x": 1}]
    again = update(store, "l", append={"x": 1}, unique=True)
    assert (again.value, again.version, again.previous_version) == ([None, {"x": 1}], 2, 2)


def test_update_keeps_the_time_to_live(store):
    put(store, 1, ttl_seconds=3600)
    ends = store.get("n", "k").expires_at
    update(store, increment=1)
    assert store.get("n", "k").expires_at == ends


@on_file
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"merge": {}, "increment": 1},
        {"increment": 1, "unique": True},
        {"increment": "x"},
        {"append": {1}},
        {"merge": float("nan")},
        {"increment": 1},
        {"append": 1},
        {"merge": {}, "expected_version": 7},
        {"function": str, "increment": 1},
    ],
)
def test_refused_update_changes_nothing_and_shows_no_value(store, change):
    put(store, "secret")
    with pytest.raises(holdlog.HoldlogError) as refusal:
        update(store, **change)
    assert "secret" not in str(refusal.value)
    assert length(store) == 1


def test_update_by_a_function_gets_the_current_value(store):
    given = []

    def count(value):
        given.append(value)
        return (value or 0) + 1

    assert [update(store, function=count).version for _ in range(3)] == [1, 2, 3]
    store.delete("n", "k", deleted_by="bob")
    done = update(store, function=count)
    assert (done.value, done.version, given) == (1, 5, [None, 1, 2, None])


@both_stores
def test_update_by_a_function_runs_again_when_another_wrote(open_store):
    store, other = open_store(), open_store()
    put(store, 0)
    theirs = iter([10, 20])

    def count(value):
        if (written := next(theirs, None)) is not None:
            put(other, written)
        return value + 1

    assert (update(store, function=count).value, store.get("n", "k").version) == (21, 4)


@pytest.mark.rest
@on_file
def test_update_by_a_function_gives_up_after_a_bounded_number_of_attempts(open_store):
    store, other = open_store(), open_store()
    attempts = []

    def disturbed(_):
        put(other, len(attempts))
        attempts.append(1)
        return 0

    with pytest.raises(holdlog.ConflictError):
        update(store, function=disturbed)
    assert 2 <= len(attempts) <= 100


def test_exception_of_an_update_function_propagates_and_writes_nothing(store):
    with pytest.raises(ZeroDivisionError):
        update(store, function=lambda _: 1 / 0)
    assert length(store) == 0


# --- request ids


REPEATED = {
    "set": lambda store, request: store.set("n", "k", 2, updated_by="ann", request_id=request),
    "delete": lambda store, request: store.delete("n", "k", deleted_by="ann", request_id=request),
    "clear": lambda store, request: store.clear_namespace("n", deleted_by="ann", request_id=request),
    "increment": lambda store, request: store.update("n", "k", increment=1, updated_by="ann", request_id=request),
    "transact": lambda store, request: transact(
        store, op("increment", by=1), op("append", "l", value=1), request_id=request
    ),
    "release": lambda store, request: store.release("custom://held", agent="ann", request_id=request),
}


def test_repeated_request_returns_its_first_response_and_changes_nothing(store):
    for name, call in REPEATED.items():
        put(store, 1)
        store.claim("custom://held", agent="ann")
        first = call(store, name)
        written = put(store, 50).version
        assert (name, call(store, name)) == (name, first)
        assert (store.get("n", "k").value, store.get("n", "k").version) == (50, written)


def test_request_id_identifies_one_request(store):
    put(store, 1, request_id="r")
    for other in (
        lambda: put(store, 2, request_id="r"),
        lambda: put(store, 1, "other", request_id="r"),
        lambda: put(store, 1, request_id="r", expected_version=0),
        lambda: update(store, merge=1, request_id="r"),
    ):
        with pytest.raises(holdlog.InvalidError, match="request_id"):
            other()
    assert length(store) == 1


def test_refused_request_is_not_remembered(store):
    with pytest.raises(holdlog.ConflictError):
        put(store, 1, expected_version=1, request_id="r")
    put(store, 0)
    assert put(store, 1, expected_version=1, request_id="r").version == 2


def test_repeats_of_many_threads_are_done_once(store):
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: update(store, increment=1, request_id="r"), range(40)))
    assert {it.version for it in done} == {1}
    assert store.get("n", "k").value == 1


# --- events


def test_events_are_the_whole_log_in_order(store):
    put(store, {"a": 1})
    put(store, 2, expected_version=1, reason="because")
    store.claim("custom://x", agent="ann")
    store.delete("n", "k", deleted_by="ann")
    events = store.events().events
    assert [(it.position, it.stream, it.version, it.by) for it in events] == [
        (1, events[0].stream, 1, "bob"),
        (2, events[0].stream, 2, "bob"),
        (3, events[2].stream, 1, "ann"),
        (4, events[0].stream, 3, "ann"),
    ]
    assert [it.kind for it in events] == ["ValueWritten", "ValueWritten", "ClaimGranted", "ValueDeleted"]
    assert [(it.key, it.value) for it in events[:2]] == [("k", {"a": 1}), ("k", 2)]
    assert (events[1].based_on, events[1].reason) == (1, "because")
    assert len({it.id for it in events}) == 4
    assert [it.at for it in events] == sorted(it.at for it in events)
