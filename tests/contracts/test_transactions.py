"""Transactions, and updates that the store computes: in the library, on every store."""

from collections.abc import Callable
from typing import Any

import pytest

from holdlog import (
    ConflictError,
    FencedError,
    HoldlogError,
    InapplicableError,
    InvalidError,
    NotFoundError,
    Settings,
)
from holdlog.adapters.api.values.transactions import MAX_OPERATIONS, MAX_TRANSACTION_BYTES
from tests.contracts.test_library import Library, kind, state

__all__ = ["kind", "state"]
"""Fixtures."""


def op(name: str, key: str = "k", /, **fields: Any) -> dict[str, Any]:
    return {"op": name, "namespace": "n", "key": key, **fields}


def transact(store: Library, *operations: Any, **options: Any) -> Any:
    return store.transact(operations, updated_by="ann", **options)


def update(store: Library, key: str = "k", **change: Any) -> Any:
    return store.update("n", key, updated_by="ann", **change)


def put(store: Library, value: Any, key: str = "k") -> Any:
    return store.set("n", key, value, updated_by="bob")


def position(store: Library) -> int:
    return int(store.events(limit=1000).bookmark)


# --- transactions


def test_transaction_runs_its_operations_in_order_and_reports_each(state: Library) -> None:
    put(state, {"a": 1}, "object")
    done = transact(
        state,
        op("set", "number", value=1),
        op("increment", "number", by=2, expected_version=1),
        op("append", "list", value="x"),
        op("append", "list", value="x", unique=True),
        op("merge", "object", value={"a": None, "b": 2}),
        op("patch", "object", patch=[{"op": "add", "path": "/c", "value": None}]),
        op("check", "nothing", expected_version=0),
        op("set", "gone", value=1),
        op("delete", "gone", expected_version=1),
        {"op": "set", "namespace": "other", "key": "k", "value": None},
    )
    assert done.body() == {
        "status": "ok",
        "results": [
            {"namespace": "n", "key": "number", "version": 1},
            {"namespace": "n", "key": "number", "version": 2, "value": 3},
            {"namespace": "n", "key": "list", "version": 1, "value": ["x"]},
            {"namespace": "n", "key": "list", "version": 1, "value": ["x"]},
            {"namespace": "n", "key": "object", "version": 2, "value": {"b": 2}},
            {"namespace": "n", "key": "object", "version": 3, "value": {"b": 2, "c": None}},
            {"namespace": "n", "key": "nothing", "version": 0},
            {"namespace": "n", "key": "gone", "version": 1},
            {"namespace": "n", "key": "gone", "version": 2},
            {"namespace": "other", "key": "k", "version": 1},
        ],
        "position": 9,
    }
    assert state.get("n", "number").value == 3
    assert state.get("n", "object").value == {"b": 2, "c": None}
    events = state.events(limit=100).events
    assert [(it.position, it.operation) for it in events] == [
        *((1, "set"), (2, "set"), (3, "increment"), (4, "append"), (5, "merge"), (6, "patch")),
        *((7, "set"), (8, "delete"), (9, "set")),
    ]


REFUSED: list[tuple[str, list[Any], type[HoldlogError], int | None, str]] = [
    ("conflict", [op("set", "a", value=1), op("set", value=1, expected_version=9)], ConflictError, 1, "found 1"),
    ("check", [op("set", "a", value=1), op("check", expected_version=0)], ConflictError, 1, "expected version 0"),
    ("missing", [op("set", "a", value=1), op("delete", "b")], NotFoundError, 1, "n/b does not exist"),
    ("patch nothing", [op("patch", "b", patch=[])], NotFoundError, 0, "n/b does not exist"),
    ("text", [op("set", "a", value=1), op("increment", by=1)], InapplicableError, 1, "not a number"),
    ("no list", [op("append", value=1)], InapplicableError, 0, "not a list"),
    ("in order", [op("set", "a", value=[]), op("increment", "a", by=1)], InapplicableError, 1, "not a number"),
    (
        "overflow",
        [op("set", "a", value=1e308), op("increment", "a", by=1e308)],
        InapplicableError,
        1,
        "too large for a decimal",
    ),
    (
        "place",
        [op("patch", patch=[{"op": "test", "path": "", "value": "secret"}, {"op": "remove", "path": "/x"}])],
        InapplicableError,
        0,
        "operations[0]: patch[1]: remove does not apply",
    ),
    (
        "test",
        [op("patch", patch=[{"op": "test", "path": "", "value": 1}])],
        InapplicableError,
        0,
        "operations[0]: patch[0]: the test failed",
    ),
    ("unknown", [op("set", "a", value=1), op("incr", by=1)], InvalidError, 1, "did you mean increment?"),
    ("no op", [{"namespace": "n", "key": "k"}], InvalidError, 0, "op: unknown operation"),
    ("op", [op("set", value=1) | {"op": ["set"]}], InvalidError, 0, "op: unknown operation"),
    ("extra", [op("delete", expectd_version=1)], InvalidError, 0, "did you mean expected_version?"),
    ("odd extra", [op("delete", **{"\n" * 99: 1})], InvalidError, 0, "a field: unknown argument"),
    ("not for it", [op("increment", by=1, ttl_seconds=1)], InvalidError, 0, "ttl_seconds: unknown argument"),
    ("no key", [{"op": "delete", "namespace": "n"}], InvalidError, 0, "key: is required"),
    ("no value", [op("set")], InvalidError, 0, "value: is required"),
    ("no version", [op("check")], InvalidError, 0, "expected_version: is required"),
    ("null version", [op("check", expected_version=None)], InvalidError, 0, "expected_version: must be a whole"),
    ("bad version", [op("set", value=1, expected_version=-1)], InvalidError, 0, "expected_version: must be a whole"),
    ("name", [op("set", "a\n", value=1)], InvalidError, 0, "operations[0]: key: "),
    ("value", [op("set", value=float("nan"))], InvalidError, 0, "value: a number must be finite"),
    ("by text", [op("increment", by="1")], InvalidError, 0, "by: must be a number"),
    ("by bool", [op("increment", by=True)], InvalidError, 0, "by: must be a number"),
    ("by nan", [op("increment", by=float("inf"))], InvalidError, 0, "by: a number must be finite"),
    ("unique", [op("append", value=1, unique=1)], InvalidError, 0, "unique: must be true or false"),
    ("ttl", [op("set", value=1, ttl_seconds=0)], InvalidError, 0, "ttl_seconds: "),
    ("patch object", [op("patch", patch={})], InvalidError, 0, "patch: must be a list"),
    ("patch op", [op("patch", patch=[{"op": "x", "path": ""}])], InvalidError, 0, "patch[0].op: must be one of add"),
    ("patch path", [op("patch", patch=[{"op": "remove", "path": "a"}])], InvalidError, 0, "patch[0].path: must be"),
    ("patch from", [op("patch", patch=[{"op": "copy", "path": ""}])], InvalidError, 0, "patch[0].from: is required"),
    ("patch value", [op("patch", patch=[{"op": "add", "path": ""}])], InvalidError, 0, "patch[0].value: is required"),
    ("patch step", [op("patch", patch=[[]])], InvalidError, 0, "patch[0]: must be an object"),
    ("patch steps", [op("patch", patch=[{"op": "test", "path": "", "value": 1}] * 1001)], InvalidError, 0, "at most"),
    ("no object", [op("set", value=1), "x"], InvalidError, 1, "must be an object with op, namespace and key"),
    ("too many", [op("set", value=1)] * 1001, InvalidError, None, "operations: must have 1 to 1000 entries"),
    ("none", [], InvalidError, None, "operations: must have 1 to 1000 entries"),
    ("one value", [op("set", value="x" * 300_000)], InvalidError, 0, "value: must have at most 262144 bytes"),
    ("all values", [op("set", value="x" * 200_000)] * 22, InvalidError, 20, "operations up to this one: must have"),
    ("result", [op("append", "big", value="x" * 200_000)] * 2, InvalidError, 1, "value: must have at most 262144"),
]


@pytest.mark.parametrize(
    ("operations", "error", "operation", "text"), [it[1:] for it in REFUSED], ids=[it[0] for it in REFUSED]
)
def test_refused_transaction_names_its_operation_and_changes_nothing(
    state: Library, operations: list[Any], error: type[HoldlogError], operation: int | None, text: str
) -> None:
    put(state, "secret")
    before = position(state)
    with pytest.raises(error) as refusal:
        transact(state, *operations)
    assert (refusal.value.operation, text in str(refusal.value)) == (operation, True), str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert position(state) == before
    assert [it.key for it in state.list_keys("n")] == ["k"]


def test_conflict_in_a_transaction_carries_the_current_value(state: Library) -> None:
    put(state, {"theirs": 1})
    with pytest.raises(ConflictError) as conflict:
        transact(state, op("set", "a", value=1), op("increment", by=1, expected_version=7))
    detail = conflict.value.detail
    assert (detail.key, detail.expected_version, detail.actual_version) == ("k", 7, 1)
    assert detail.actual_value == {"theirs": 1}


def test_too_much_work_in_one_transaction_is_refused(state: Library) -> None:
    put(state, ["x" * 100_000], "list")
    before = position(state)
    with pytest.raises(InvalidError, match=r"operations\[\d+\]: this takes too much work") as refusal:
        transact(state, *[op("append", "list", value=number) for number in range(1000)])
    assert refusal.value.operation is not None
    assert 20 <= refusal.value.operation <= 40
    assert position(state) == before


def test_transaction_of_the_largest_size_is_accepted(state: Library) -> None:
    value = "x" * 4_100
    done = transact(state, *[op("set", str(number), value=value) for number in range(MAX_OPERATIONS)])
    assert (len(done.results), done.position) == (MAX_OPERATIONS, MAX_OPERATIONS)
    assert MAX_OPERATIONS * (len(value) + 10) > MAX_TRANSACTION_BYTES * 0.97


def test_transaction_relies_on_claims(state: Library) -> None:
    claimed = state.claim("custom://deploy", agent="ann")
    guard = [{"resource": "custom://deploy", "version": claimed.version}]
    assert transact(state, op("increment", by=1), guard=guard).results[0].value == 1
    state.release("custom://deploy", agent="ann")
    before = position(state)
    for refused in (op("increment", by=1), op("increment", by=1, expected_version=9), op("append", value=1)):
        with pytest.raises(FencedError):
            transact(state, refused, guard=guard)
    with pytest.raises(FencedError):
        update(state, increment=1, guard=guard)
    assert position(state) == before


def test_repeated_transaction_returns_its_first_response(state: Library) -> None:
    operations = [op("increment", by=1), op("append", "l", value=None), op("set", "s", value=[1])]
    first = transact(state, *operations, request_id="r1")
    put(state, 99)
    assert transact(state, *operations, request_id="r1") == first
    assert [it.value for it in first.results] == [1, [None], None]
    for other in (operations[:2], [op("increment", by=2), *operations[1:]], operations[::-1]):
        with pytest.raises(InvalidError, match="request_id: was already used"):
            transact(state, *other, request_id="r1")
    assert state.get("n", "k").value == 99


def test_reason_and_author_of_a_transaction_are_kept(state: Library) -> None:
    transact(state, op("increment", by=5), reason="restock")
    (entry,) = state.history("n", "k")
    assert (entry.updated_by, entry.reason, entry.operation, entry.value) == ("ann", "restock", "increment", 5)
    assert (entry.based_on, entry.forced) == (None, None)


# --- updates of one value


def test_update_returns_the_value_that_the_store_computed(state: Library) -> None:
    done = update(state, increment=2)
    assert done.body() == {
        "status": "ok",
        "namespace": "n",
        "key": "k",
        "version": 1,
        "previous_version": None,
        "position": 1,
        "value": 2,
    }
    done = update(state, increment=0.5, expected_version=1, reason="half")
    assert (done.value, done.version, done.previous_version, done.position) == (2.5, 2, 1, 2)
    assert state.history("n", "k", 1)[0].reason == "half"


def test_update_merges_patches_and_appends(state: Library) -> None:
    assert update(state, merge={"a": {"b": 1}}).value == {"a": {"b": 1}}
    assert update(state, merge={"a": {"b": None, "c": 2}}).value == {"a": {"c": 2}}
    assert update(state, patch=[{"op": "move", "from": "/a/c", "path": "/d"}]).value == {"a": {}, "d": 2}
    assert update(state, merge=None).value is None
    assert update(state, "l", append=None).value == [None]
    assert update(state, "l", append={"x": 1.0}, unique=True).value == [None, {"x": 1.0}]
    again = update(state, "l", append={"x": 1}, unique=True)
    assert (again.value, again.version, again.previous_version) == ([None, {"x": 1.0}], 2, 2)
    assert [it.operation for it in state.history("n", "k")] == ["merge", "patch", "merge", "merge"]


def test_update_keeps_the_expiry(state: Library) -> None:
    state.set("n", "k", 1, updated_by="ann", ttl_seconds=3600)
    ends = state.get("n", "k").expires_at
    update(state, increment=1)
    assert state.get("n", "k").expires_at == ends
    update(state, "new", increment=1)
    assert state.get("n", "new").expires_at is None


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({}, InvalidError, "update: needs exactly one of merge, patch, increment, append"),
        ({"merge": {}, "increment": 1}, InvalidError, "update: needs exactly one of"),
        ({"increment": 1, "unique": True}, InvalidError, "unique: can only be combined with append"),
        ({"increment": "1"}, InvalidError, "increment: must be a number"),
        ({"append": {1}}, InvalidError, "append: a value must be JSON"),
        ({"append": 1, "unique": "yes"}, InvalidError, "unique: must be true or false"),
        ({"merge": float("nan")}, InvalidError, "merge: a number must be finite"),
        ({"patch": "x"}, InvalidError, "patch: must be a list"),
        ({"increment": 1}, InapplicableError, "the value is not a number"),
        ({"append": 1}, InapplicableError, "the value is not a list"),
        ({"patch": [{"op": "remove", "path": "/a"}]}, InapplicableError, "patch[0]: remove does not apply"),
        ({"merge": {}, "expected_version": 7}, ConflictError, "expected version 7, found 1"),
        ({"function": str, "increment": 1}, InvalidError, "function: can only be combined with guard, reason"),
        ({"function": str, "expected_version": 0}, InvalidError, "function: can only be combined"),
    ],
)
def test_refused_update_names_what_is_wrong_and_changes_nothing(
    state: Library, change: dict[str, Any], error: type[HoldlogError], text: str
) -> None:
    put(state, "secret")
    with pytest.raises(error) as refusal:
        update(state, **change)
    assert text in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert refusal.value.operation is None
    assert position(state) == 1


def test_missing_value_cannot_be_patched(state: Library) -> None:
    with pytest.raises(NotFoundError):
        update(state, patch=[{"op": "add", "path": "", "value": 1}])
    put(state, 1)
    state.delete("n", "k", deleted_by="bob")
    with pytest.raises(NotFoundError) as missing:
        update(state, patch=[])
    assert missing.value.facts["deleted_by"] == "bob"


def test_update_by_a_function_returns_its_value_and_relies_on_claims(state: Library) -> None:
    assert update(state, function=lambda value: [value]).value == [None]
    done = update(state, function=lambda value: [value])
    assert (done.value, done.version, done.previous_version) == ([[None]], 2, 1)
    with pytest.raises(FencedError):
        update(state, function=str, guard=[{"resource": "custom://deploy", "version": 1}])


def test_limit_of_a_value_applies_to_every_step_of_a_patch(kind: Callable[..., Library], place: str) -> None:
    store = kind(place, settings=Settings(max_value_bytes=100))
    try:
        put(store, {"a": "x" * 60})
        copied = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "remove", "path": "/b"}]
        with pytest.raises(InvalidError, match=r"patch\[0\]: value: must have at most 100 bytes"):
            update(store, patch=copied)
        assert update(store, patch=[copied[0] | {"path": "/a"}]).value == {"a": "x" * 60}
    finally:
        store.close()
