"""`state.data` behaves as the dict that it shows, and whatever changes it is written or refused as a whole."""

import copy
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdlog import DataConflictError, InvalidError, State, StateStore, UnavailableError, create_state
from holdlog.domain.names import thread_stream

FILES: dict[str, Any] = {"files": {"a.py": "1", "b": {"c": [1, 2, {"d": 3}]}}, "n": 1, "todo": ["x", "y"]}
"""Its keys are in their order, as those that were just read are."""


@pytest.fixture
def state() -> State[dict[str, Any]]:
    return create_state(copy.deepcopy(FILES))


def kept(state: State[Any]) -> dict[str, Any]:
    """What a program that opens the thread now would see."""
    return state.raw


def writes(state: State[Any], change: Callable[[], object]) -> int:
    """How many events a change made; what is shown is what is kept."""
    before = state.version
    change()
    assert state.data == kept(state)
    assert state.kv.all() == kept(state)
    return state.version - before


def set_item(target: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: target.__setitem__(key, value)


# --- each way of changing it, against a plain twin

CHANGES: dict[str, Callable[[Any], object]] = {
    "a key is set": lambda data: data.__setitem__("plan", {"goal": "g"}),
    "a key is set to something else": lambda data: data.__setitem__("n", 2.5),
    "a key is deleted": lambda data: data.__delitem__("n"),
    "a key inside is set": lambda data: data["files"].__setitem__("a.py", "2"),
    "a key inside is deleted": lambda data: data["files"].__delitem__("b"),
    "something deep is set": lambda data: data["files"]["b"]["c"][2].__setitem__("d", 4),
    "an item is appended": lambda data: data["todo"].append({"z": [1]}),
    "items are appended": lambda data: data["todo"].extend(iter(["a", "b"])),
    "an item is inserted": lambda data: data["todo"].insert(0, "first"),
    "an item is replaced": lambda data: data["todo"].__setitem__(-1, "last"),
    "a slice is replaced": lambda data: data["todo"].__setitem__(slice(0, 1), iter(["a", "b", "c"])),
    "a slice is deleted": lambda data: data["todo"].__delitem__(slice(None)),
    "an item is deleted": lambda data: data["todo"].__delitem__(0),
    "an item is removed": lambda data: data["todo"].remove("y"),
    "an item is popped": lambda data: data["todo"].pop(),
    "the first is popped": lambda data: data["files"]["b"]["c"].pop(0),
    "a list is sorted": lambda data: data["todo"].sort(reverse=True),
    "a list is reversed": lambda data: data["files"]["b"]["c"].reverse(),
    "a list is cleared": lambda data: data["todo"].clear(),
    "a list is doubled": lambda data: data["todo"].__imul__(2),
    "a list with objects is doubled": lambda data: data["files"]["b"]["c"].__imul__(2),
    "a list is emptied by a product": lambda data: data["todo"].__imul__(0),
    "a list is joined in place": lambda data: data["todo"].__iadd__(["q"]),
    "a dict is updated": lambda data: data["files"].update({"x": 1}, y=[2]),
    "a dict is updated by pairs": lambda data: data["files"].update([("x", 1)]),
    "a dict is joined in place": lambda data: data["files"].__ior__({"x": {"y": 1}}),
    "a dict is cleared": lambda data: data["files"].clear(),
    "a key is popped": lambda data: data["files"].pop("b"),
    "the last item of a dict is popped": lambda data: data["files"].popitem(),
    "a default is set": lambda data: data["files"].setdefault("new", []),
    "keys are updated": lambda data: data.update(n=2, m=3),
    "keys are joined in place": lambda data: data.__ior__({"n": 3, "k": None}),
    "a top key is popped": lambda data: data.pop("files"),
    "a top key gets a default": lambda data: data.setdefault("new", {"a": 1}),
    "the last key is popped": lambda data: data.popitem(),
    "all is cleared": lambda data: data.clear(),
    "a part is put in a second place": lambda data: data.__setitem__("again", data["files"]["b"]),
    "a part is put below itself": lambda data: data["files"]["b"]["c"].append(data["files"]["b"]["c"][2]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_change_of_live_data_is_one_event_and_equals_that_of_plain_data(
    state: State[dict[str, Any]], change: Callable[[Any], object]
) -> None:
    twin = copy.deepcopy(FILES)
    expected = change(twin)
    answers: list[object] = []
    assert writes(state, lambda: answers.append(change(state.data))) == 1
    assert state.data == twin
    assert answers == [expected]
    assert list(state.data) == list(twin)


def test_in_place_operators_write_once() -> None:
    state = create_state({"tags": ["a"], "more": {"x": 1}, "n": 1})

    def change() -> None:
        state.data["tags"] += ["b"]

    assert writes(state, change) == 1

    def join() -> None:
        state.data["more"] |= {"y": 2}

    assert writes(state, join) == 1

    def count() -> None:
        state.data["n"] += 1

    assert writes(state, count) == 1
    assert state.data == {"tags": ["a", "b"], "more": {"x": 1, "y": 2}, "n": 2}


def test_setdefault_returns_a_live_value(state: State[dict[str, Any]]) -> None:
    state.data.setdefault("notes", {}).setdefault("ann", []).append("hello")
    state.data.setdefault("notes", {"never": 1})
    assert kept(state)["notes"] == {"ann": ["hello"]}


def test_assigning_an_equal_value_writes_nothing(state: State[dict[str, Any]]) -> None:
    files = state.data["files"]
    assert writes(state, set_item(state.data, "files", copy.deepcopy(FILES["files"]))) == 0
    assert writes(state, set_item(state.data, "n", 1)) == 0
    files["a.py"] = "2"
    assert kept(state)["files"]["a.py"] == "2"


def test_value_equal_in_python_but_not_in_json_is_written(state: State[dict[str, Any]]) -> None:
    assert writes(state, set_item(state.data, "n", True)) == 1
    assert kept(state)["n"] is True
    assert writes(state, set_item(state.data, "n", 1.0)) == 1
    assert isinstance(kept(state)["n"], float)


# --- what is whose


def test_assigned_value_is_copied(state: State[dict[str, Any]]) -> None:
    mine: dict[str, Any] = {"a": [1]}
    state.data["mine"] = mine
    mine["a"].append(2)
    assert state.data["mine"] == {"a": [1]}
    state.data["mine"]["a"].append(3)
    assert mine == {"a": [1, 2]}
    assert kept(state)["mine"] == {"a": [1, 3]}


def test_object_appended_twice_becomes_two(state: State[dict[str, Any]]) -> None:
    part = {"a": 1}
    state.data["todo"].append(part)
    state.data["todo"].append(part)
    state.data["todo"].append(state.data["todo"][2])
    state.data["todo"][2]["a"] = 2
    assert kept(state)["todo"] == ["x", "y", {"a": 2}, {"a": 1}, {"a": 1}]


def test_moved_live_value_writes_at_its_new_place(state: State[dict[str, Any]]) -> None:
    was = state.data["files"]["b"]
    state.data["b"] = state.data["files"].pop("b")
    state.data["b"]["c"].append("new")
    was["c"].append("old")
    assert kept(state)["b"]["c"] == [1, 2, {"d": 3}, "new"]
    assert kept(state)["files"] == {"a.py": "1"}


@pytest.mark.parametrize(
    "remove",
    [
        lambda data: data["files"].pop("b"),
        lambda data: data["files"].__setitem__("b", None),
        lambda data: data.pop("files"),
        lambda data: data["files"].clear(),
        lambda data: data.__setitem__("files", {"b": {"c": []}}),
    ],
)
def test_removed_live_value_writes_nothing_when_changed(
    state: State[dict[str, Any]], remove: Callable[[Any], object]
) -> None:
    part = state.data["files"]["b"]
    remove(state.data)

    def change() -> None:
        part["c"].append(9)
        part["e"] = {"f": 1}
        part["e"]["f"] = 2

    assert writes(state, change) == 0
    assert part == {"c": [1, 2, {"d": 3}, 9], "e": {"f": 2}}


def test_popped_value_is_plain(state: State[dict[str, Any]]) -> None:
    assert type(state.data["files"].pop("b")) is dict
    assert type(state.data.pop("todo")) is list


def test_references_to_live_parts_stay_valid_while_others_change(state: State[dict[str, Any]]) -> None:
    inner, last = state.data["files"]["b"]["c"], state.data["files"]["b"]["c"][2]
    state.data["n"] = 5
    state.kv.set("other", 1)
    inner.insert(0, {"new": 0})
    inner.sort(key=repr)
    last["d"] = "late"
    assert last in kept(state)["files"]["b"]["c"]
    state.data["files"]["a.py"] = "2"
    state.data["files"]["b"]["e"] = 1
    inner.append("still there")
    assert kept(state)["files"]["b"]["c"][-1] == "still there"
    assert state.data["files"]["b"]["c"] is inner


def test_loop_may_change_the_live_data_it_iterates_over(state: State[dict[str, Any]]) -> None:
    state.data["scores"] = {"a": 1, "b": 2, "c": 3}
    scores = state.data["scores"]
    for name in scores:
        scores[name] += 1
    for name in list(scores):
        if scores[name] > 3:
            del scores[name]
    assert kept(state)["scores"] == {"a": 2, "b": 3}


# --- it is a dict


def test_live_data_equals_plain_data_and_prints_like_it(state: State[dict[str, Any]]) -> None:
    assert state.data == FILES
    assert state.data == FILES
    assert state.data["todo"] == ["x", "y"]
    assert repr(state.data["files"]) == repr(FILES["files"])
    assert isinstance(state.data, dict)
    assert isinstance(state.data["todo"], list)
    assert {**state.data} == FILES
    assert state.data["todo"] + ["z"] == ["x", "y", "z"]
    assert state.data | {"n": 2} == FILES | {"n": 2}


def test_live_data_can_be_encoded_as_json(state: State[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(state.data)) == FILES
    assert json.loads(json.dumps(state.data, indent=1)) == FILES


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data)), lambda data: data.copy()]
)
def test_copy_of_live_data_is_plain(state: State[dict[str, Any]], copied: Callable[[Any], Any]) -> None:
    for part in (state.data, state.data["todo"], state.data["files"]["b"]):
        found = copied(part)
        assert found == part
        assert type(found) in (dict, list)
    mine = copied(state.data)
    assert writes(state, lambda: mine.update(n=9)) == 0


def test_deep_copy_of_live_data_shares_nothing(state: State[dict[str, Any]]) -> None:
    for found in (copy.deepcopy(state.data), pickle.loads(pickle.dumps(state.data))):
        assert writes(state, set_item(found["files"]["b"]["c"][2], "d", 0)) == 0


# --- refusals leave it as it was

NO_JSON: list[Any] = [
    object(),
    {1, 2},
    (1, 2),
    b"x",
    float("nan"),
    float("inf"),
    {1: 2},
    {"a": {2: 3}},
    [object()],
    "\ud800",
    10**5000,
    lambda: 1,
    type,
]


def kind_of(value: object) -> str:
    return type(value).__name__


def hold_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value", [*NO_JSON, hold_itself(), nested(101), nested(5000)], ids=lambda it: type(it).__name__
)
def test_non_json_value_is_refused_and_live_data_unchanged(state: State[dict[str, Any]], value: Any) -> None:
    changes: list[Callable[[], object]] = [
        set_item(state.data, "new", value),
        set_item(state.data, "n", value),
        set_item(state.data["files"], "a.py", value),
        lambda: state.data["todo"].append(value),
        lambda: state.data["todo"].extend(["ok", value]),
        lambda: state.data.update(ok=1, bad=value),
        lambda: state.data.setdefault("bad", value),
        lambda: state.kv.set("n", value),
        lambda: create_state({"a": value}),
    ]
    for change in changes:
        with pytest.raises(InvalidError) as refused:
            change()
        assert "\n" not in str(refused.value)
    assert writes(state, lambda: None) == 0
    assert state.data == FILES
    assert state.version == 2


@pytest.mark.parametrize("key", ["", " ", "a\nb", "x" * 513, "e\u0301", "\ud800", "a\u202eb"])
def test_invalid_top_level_keys_of_live_data_are_refused(state: State[dict[str, Any]], key: str) -> None:
    for change in (set_item(state.data, key, 1), lambda: state.data.update({key: 1}), lambda: create_state({key: 1})):
        with pytest.raises(InvalidError, match="key") as refused:
            change()
        assert "\n" not in str(refused.value)
    assert state.data == FILES
    with pytest.raises(InvalidError, match="strings"):
        state.data[1] = 2  # type: ignore[index]


def test_any_text_is_a_key_below_the_top_level(state: State[dict[str, Any]]) -> None:
    state.data["files"]["e\u0301 \n"] = 1
    state.data["files"][""] = 2
    assert kept(state)["files"]["e\u0301 \n"] == 1


def test_live_data_raises_the_errors_of_plain_data(state: State[dict[str, Any]]) -> None:
    data = state.data
    for error, change in [
        (KeyError, lambda: data.__delitem__("none")),
        (KeyError, lambda: data["files"].pop("none")),
        (IndexError, lambda: data["todo"].pop(9)),
        (IndexError, lambda: data["todo"].__setitem__(9, 1)),
        (ValueError, lambda: data["todo"].remove("none")),
        (TypeError, lambda: data["files"]["b"]["c"].sort()),
        (TypeError, lambda: data["todo"].extend(3)),
        (TypeError, lambda: data["todo"].__imul__("x")),
    ]:
        with pytest.raises(error):
            change()
    assert state.data == FILES
    assert state.version == 2


def test_oversized_value_is_refused_and_live_data_unchanged() -> None:
    with StateStore(":memory:") as store:
        state = create_state({"files": {}}, store=store)
        with pytest.raises(InvalidError, match="262144 bytes"):
            state.data["files"]["big"] = "x" * 262_144
        with pytest.raises(InvalidError, match="262144 bytes"):
            state.data["files"]["big"] = "é" * 131_072
        assert state.data == {"files": {}} == kept(state)


def test_data_of_a_single_run_has_no_size_limit() -> None:
    state = create_state({"files": {}})
    state.data["files"]["big"] = "x" * 1_000_000
    assert len(kept(state)["files"]["big"]) == 1_000_000


@pytest.mark.check
def test_failed_write_leaves_live_data_unchanged_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(":memory:")
    state = create_state(copy.deepcopy(FILES), store=store)
    part = state.data["files"]["b"]
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with store._engine.store.transaction(deadline=9e9):
            started.set()
            go_on.wait(60)

    monkeypatch.setattr("holdlog.adapters.runtime.group_commit.COMMIT_TIMEOUT", 0.05)
    holder = threading.Thread(target=hold)
    holder.start()
    started.wait(60)
    for change in (
        set_item(part, "c", 1),
        lambda: part["c"].append(1),
        lambda: state.data.clear(),
        lambda: state.kv.set("n", 2),
        lambda: state.kv.delete("n"),
    ):
        with pytest.raises(UnavailableError):
            change()
    go_on.set()
    holder.join()
    assert state.data == FILES == kept(state)
    part["c"].append(4)
    assert kept(state)["files"]["b"]["c"][-1] == 4
    store.close()


# --- versions


def test_change_of_data_that_another_changed_is_refused() -> None:
    with StateStore(":memory:") as store:
        one = create_state(copy.deepcopy(FILES), thread_id="t", store=store)
        two = create_state(dict, thread_id="t", store=store)
        held = one.data["files"]["b"]
        two.data["n"] = 7
        changes: list[Callable[[], object]] = [
            set_item(held, "x", 1),
            set_item(one.data, "n", 8),
            set_item(one.data, "n", 1),
            set_item(one.data["files"], "a.py", "1"),
            lambda: one.data["todo"].sort(),
            lambda: one.kv.set("other", 1),
            lambda: one.kv.delete("n"),
            lambda: one.kv.delete("none"),
            lambda: setattr(one, "data", {}),
        ]
        for change in changes:
            with pytest.raises(DataConflictError) as refused:
                change()
            assert refused.value.detail.thread_id == "t"
            assert refused.value.detail.changed_keys == ("n",)
            assert "7" not in str(refused.value).replace(one.thread_id, "")
        assert one.data == FILES
        assert one.refresh() is True
        assert one.data["n"] == 7
        with pytest.raises(DataConflictError):
            held["x"] = 1
        one.data["files"]["b"]["x"] = 1
        with pytest.raises(DataConflictError):
            held["x"] = 1
        assert one.refresh() is False


def test_refresh_without_news_keeps_references_valid(state: State[dict[str, Any]]) -> None:
    held = state.data["files"]
    assert state.refresh() is False
    held["z"] = 1
    assert kept(state)["files"]["z"] == 1


def test_replacing_all_live_data_is_one_event(state: State[dict[str, Any]]) -> None:
    held = state.data["files"]

    def replace() -> None:
        state.data = {"n": 1, "new": [1]}

    assert writes(state, replace) == 1
    assert writes(state, replace) == 0
    state.data["new"].append(2)
    assert kept(state) == {"n": 1, "new": [1, 2]}
    with pytest.raises(DataConflictError):
        held["a"] = 1
    with pytest.raises(InvalidError):
        state.data = 3  # type: ignore[assignment]


def test_threads_sharing_a_state_lose_no_change() -> None:
    state = create_state({"todo": [], "counts": {}})

    def work(name: str) -> None:
        for number in range(20):
            state.data["todo"].append(f"{name}{number}")
            state.data["counts"][name] = number
            state.kv.set(name, number)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(kept(state)["todo"]) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))
    assert kept(state)["counts"] == dict.fromkeys("abcd", 19)
    assert state.data == kept(state)


def test_event_of_changed_data_contains_only_the_changed_keys() -> None:
    with StateStore(":memory:") as store:
        state = create_state(copy.deepcopy(FILES), thread_id="t", store=store, agent="ann")
        state.data["todo"].append("z")
        with store._engine.store.reader() as reader:
            newest = reader.history(thread_stream("t"), None, 1)[0]
        assert newest.event.model_dump() == {
            "value": {"todo": ["x", "y", "z"]},
            "written": ("todo",),
            "deleted": (),
            "by": "ann",
        }
