"""`state.data` as a dict: an assignment is an event, everything else inside is read-only, and `edit` commits once."""

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


@pytest.fixture
def state() -> State[dict[str, Any]]:
    return create_state(copy.deepcopy(FILES))


def writes(state: State[Any], change: Callable[[], object]) -> int:
    """How many events a change made; what the State shows is what the log has."""
    before = state.version
    change()
    assert state.data == state.raw == state.kv.all()
    return state.version - before


def set_item(target: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: target.__setitem__(key, value)


def edited(state: State[Any], change: Callable[[Any], object]) -> None:
    with state.edit() as data:
        change(data)


# --- assignments


def test_assigning_and_deleting_a_key_is_one_event_each(state: State[dict[str, Any]]) -> None:
    data = state.data
    assert writes(state, set_item(data, "plan", {"goal": ["g"]})) == 1
    assert writes(state, set_item(data, "n", data["n"] + 1)) == 1
    assert writes(state, lambda: data.__delitem__("todo")) == 1
    assert data is state.data
    assert data == {"files": FILES["files"], "n": 2, "plan": {"goal": ["g"]}}
    with pytest.raises(KeyError):
        del data["none"]


def test_assigning_an_equal_value_writes_nothing(state: State[dict[str, Any]]) -> None:
    assert writes(state, set_item(state.data, "files", state.data["files"])) == 0
    assert writes(state, set_item(state.data, "n", 1)) == 0


def test_value_equal_in_python_but_not_in_json_is_written(state: State[dict[str, Any]]) -> None:
    assert writes(state, set_item(state.data, "n", True)) == 1
    assert state.raw["n"] is True
    assert writes(state, set_item(state.data, "n", 1.0)) == 1
    assert isinstance(state.raw["n"], float)


def test_assigned_value_is_copied(state: State[dict[str, Any]]) -> None:
    mine: dict[str, Any] = {"a": [1]}
    state.data["mine"] = mine
    mine["a"].append(2)
    assert state.data["mine"] == {"a": [1]}
    state.data["again"] = state.data["mine"]
    assert state.raw["again"] == {"a": [1]}


def test_replacing_all_data_is_one_event(state: State[dict[str, Any]]) -> None:
    def replace() -> None:
        state.data = {"n": 1, "new": [1]}

    assert writes(state, replace) == 1
    assert writes(state, replace) == 0
    assert state.raw == {"n": 1, "new": [1]}
    with pytest.raises(InvalidError):
        state.data = 3  # type: ignore[assignment]


def test_keys_of_data_are_in_alphabetical_order_after_every_change(state: State[dict[str, Any]]) -> None:
    state.data["b"] = {"z": 1, "a": 2}
    state.kv.set("a", 1)
    edited(state, lambda data: data.update(o=1, c=1))
    state.data["B"] = 1
    order = ["B", "a", "b", "c", "files", "n", "o", "todo"]
    for shown in (state.data, state.raw, state.kv.all(), state.clone().data, state.at(state.version).data):
        assert list(shown) == order
        assert list(shown["b"]) == ["z", "a"]
    with state.edit() as data:
        assert list(data) == order


# --- read-only parts

CHANGES: dict[str, Callable[[Any], object]] = {
    "a key inside is set": lambda data: data["files"].__setitem__("a.py", "2"),
    "a key inside is deleted": lambda data: data["files"].__delitem__("b"),
    "something deep is set": lambda data: data["files"]["b"]["c"][2].__setitem__("d", 4),
    "an item is appended": lambda data: data["todo"].append({"z": [1]}),
    "items are appended": lambda data: data["todo"].extend(iter(["a", "b"])),
    "an item is inserted": lambda data: data["todo"].insert(0, "first"),
    "an item is replaced": lambda data: data["todo"].__setitem__(-1, "last"),
    "a slice is replaced": lambda data: data["todo"].__setitem__(slice(0, 1), iter(["a", "b", "c"])),
    "a slice is deleted": lambda data: data["todo"].__delitem__(slice(None)),
    "an item is removed": lambda data: data["todo"].remove("y"),
    "an item is popped": lambda data: data["todo"].pop(),
    "a list is sorted": lambda data: data["todo"].sort(reverse=True),
    "a list is reversed": lambda data: data["files"]["b"]["c"].reverse(),
    "a list is cleared": lambda data: data["todo"].clear(),
    "a list is doubled": lambda data: data["todo"].__imul__(2),
    "a list is joined in place": lambda data: data["todo"].__iadd__(["q"]),
    "a dict is updated": lambda data: data["files"].update({"x": 1}, y=[2]),
    "a dict is joined in place": lambda data: data["files"].__ior__({"x": {"y": 1}}),
    "a dict is cleared": lambda data: data["files"].clear(),
    "a key is popped": lambda data: data["files"].pop("b"),
    "an item of a dict is popped": lambda data: data["files"].popitem(),
    "a default is set": lambda data: data["files"].setdefault("new", []),
    "keys are updated": lambda data: data.update(n=2, m=3),
    "keys are joined in place": lambda data: data.__ior__({"n": 3, "k": None}),
    "a top key is popped": lambda data: data.pop("files"),
    "a top key gets a default": lambda data: data.setdefault("new", {"a": 1}),
    "all is cleared": lambda data: data.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_change_inside_of_data_is_refused_with_the_remedy_and_done_by_an_edit(
    state: State[dict[str, Any]], change: Callable[[Any], object]
) -> None:
    with pytest.raises(InvalidError, match=r"`with state\.edit\(\) as data:`, or assign the whole value"):
        change(state.data)
    assert state.data == FILES == state.raw
    expected = copy.deepcopy(FILES)
    change(expected)
    assert writes(state, lambda: edited(state, change)) == 1
    assert state.data == expected


def test_in_place_operator_on_a_part_of_data_is_refused(state: State[dict[str, Any]]) -> None:
    with pytest.raises(InvalidError, match=r"state\.edit"):
        state.data["todo"] += ["z"]
    with pytest.raises(InvalidError, match=r"state\.edit"):
        state.data["files"] |= {"z": 1}
    state.data["n"] += 1
    state.data["todo"] = state.data["todo"] + ["z"]
    assert state.raw == FILES | {"n": 2, "todo": ["x", "y", "z"]}


def test_data_equals_plain_data_and_prints_like_it(state: State[dict[str, Any]]) -> None:
    assert state.data == FILES
    assert repr(state.data) == repr(FILES)
    assert isinstance(state.data, dict)
    assert isinstance(state.data["todo"], list)
    assert state.data["todo"] + ["z"] == ["x", "y", "z"]
    assert state.data | {"n": 2} == FILES | {"n": 2}
    assert json.loads(json.dumps(state.data)) == FILES
    assert json.loads(json.dumps(state.data, indent=1)) == FILES


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_deep_copy_of_data_is_plain_and_shares_nothing(
    state: State[dict[str, Any]], copied: Callable[[Any], Any]
) -> None:
    mine = copied(state.data)
    assert type(mine) is dict
    assert type(mine["todo"]) is list

    def change() -> None:
        mine["files"]["b"]["c"][2]["d"] = 0
        mine["todo"].append("z")
        mine["n"] = 2

    assert writes(state, change) == 0
    assert type(copy.copy(state.data)) is type(state.data.copy()) is dict
    assert type(copy.copy(state.data["todo"])) is list


def test_value_of_a_key_is_a_copy_that_only_set_stores(state: State[dict[str, Any]]) -> None:
    files = state.kv.get("files")
    files["b"]["c"].append("new")
    assert state.kv.get("files") == FILES["files"]
    assert writes(state, lambda: state.kv.set("files", files)) == 1
    assert state.data["files"]["b"]["c"] == [1, 2, {"d": 3}, "new"]


# --- edits


def test_edit_is_one_event_of_the_changed_keys() -> None:
    with StateStore(":memory:") as store:
        state = create_state(copy.deepcopy(FILES), thread_id="t", store=store, agent="ann")
        with state.edit() as data:
            data["todo"].append("z")
            del data["n"]
            data["m"] = []
            data["m"].append(data["todo"])
        with store._engine.store.reader() as reader:
            newest = reader.history(thread_stream("t"), None, 1)[0]
        assert newest.event.model_dump() == {
            "value": {"m": [["x", "y", "z"]], "todo": ["x", "y", "z"]},
            "written": ("m", "todo"),
            "deleted": ("n",),
            "by": "ann",
        }
        assert state.data == {"files": FILES["files"], "m": [["x", "y", "z"]], "todo": ["x", "y", "z"]}


def test_edit_that_changes_nothing_writes_nothing(state: State[dict[str, Any]]) -> None:
    def change(data: Any) -> None:
        data["todo"].append("z")
        data["todo"].pop()

    assert writes(state, lambda: edited(state, change)) == 0


def test_edit_that_raises_is_discarded(state: State[dict[str, Any]]) -> None:
    def fail(data: Any) -> None:
        data["n"] = 2
        data["todo"].clear()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        edited(state, fail)
    assert state.data == FILES == state.raw
    assert state.version == 2


def test_draft_of_a_finished_edit_writes_nothing(state: State[dict[str, Any]]) -> None:
    with state.edit() as data:
        data["n"] = 2
    data["n"] = 3
    data["todo"].append("z")
    assert state.data == FILES | {"n": 2} == state.raw


def test_edit_conflicts_with_another_change_at_its_end_and_is_discarded() -> None:
    with StateStore(":memory:") as store:
        one = create_state(copy.deepcopy(FILES), thread_id="t", store=store)
        two = create_state(dict, thread_id="t", store=store)

        def edit(meanwhile: Callable[[], object]) -> None:
            with one.edit() as data:
                meanwhile()
                data["todo"].append("z")

        with pytest.raises(DataConflictError) as refused:
            edit(lambda: two.kv.set("n", 7))
        assert refused.value.detail.changed_keys == ("n",)
        assert one.data == FILES
        assert one.refresh()
        edit(lambda: None)
        assert one.data == one.raw == FILES | {"n": 7, "todo": ["x", "y", "z"]}


def test_edit_conflicts_with_an_assignment_to_its_own_state(state: State[dict[str, Any]]) -> None:
    def change(data: Any) -> None:
        state.data["n"] = 2
        data["todo"].append("z")

    with pytest.raises(DataConflictError) as refused:
        edited(state, change)
    assert refused.value.detail.changed_keys == ("n",)
    assert state.data == FILES | {"n": 2} == state.raw


# --- refusals

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
def test_non_json_value_is_refused_and_data_unchanged(state: State[dict[str, Any]], value: Any) -> None:
    changes: list[Callable[[], object]] = [
        set_item(state.data, "new", value),
        set_item(state.data, "n", value),
        lambda: edited(state, lambda data: data["todo"].append(value)),
        lambda: edited(state, lambda data: data.update(ok=1, bad=value)),
        lambda: state.update(lambda data: data["files"].update(bad=value)),
        lambda: state.kv.set("n", value),
        lambda: create_state({"a": value}),
    ]
    for change in changes:
        with pytest.raises(InvalidError) as refused:
            change()
        assert "\n" not in str(refused.value)
    assert state.data == FILES == state.raw
    assert state.version == 2


@pytest.mark.parametrize("key", ["", " ", "a\nb", "x" * 513, "e\u0301", "\ud800", "a\u202eb"])
def test_invalid_keys_of_data_are_refused(state: State[dict[str, Any]], key: str) -> None:
    for change in (
        set_item(state.data, key, 1),
        lambda: edited(state, lambda data: data.update({key: 1})),
        lambda: create_state({key: 1}),
    ):
        with pytest.raises(InvalidError, match="key") as refused:
            change()
        assert "\n" not in str(refused.value)
    assert state.data == FILES
    with pytest.raises(InvalidError, match="strings"):
        state.data[1] = 2  # type: ignore[index]
    with pytest.raises(InvalidError, match="strings"):
        edited(state, lambda data: data.update({1: 2}))


def test_any_text_is_a_key_below_the_top_level(state: State[dict[str, Any]]) -> None:
    state.data["files"] = {"e\u0301 \n": 1, "": 2}
    assert state.raw["files"] == {"e\u0301 \n": 1, "": 2}


def test_oversized_value_is_refused_and_data_unchanged() -> None:
    with StateStore(":memory:") as store:
        state = create_state({"files": {}}, store=store)
        for big in ("x" * 262_144, "é" * 131_072):
            with pytest.raises(InvalidError, match="262144 bytes"):
                edited(state, lambda data, big=big: data["files"].update(big=big))  # type: ignore[misc]
            with pytest.raises(InvalidError, match="262144 bytes"):
                state.data["files"] = big
        assert state.data == {"files": {}} == state.raw


def test_data_of_a_single_run_has_no_size_limit() -> None:
    state = create_state({"files": {}})
    state.data["files"] = {"big": "x" * 1_000_000}
    assert len(state.raw["files"]["big"]) == 1_000_000


@pytest.mark.check
def test_failed_write_leaves_data_unchanged_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(":memory:")
    state = create_state(copy.deepcopy(FILES), store=store)
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
        set_item(state.data, "n", 2),
        lambda: edited(state, lambda data: data.clear()),
        lambda: state.kv.set("n", 2),
        lambda: state.kv.delete("n"),
    ):
        with pytest.raises(UnavailableError):
            change()
    go_on.set()
    holder.join()
    assert state.data == FILES == state.raw
    state.data["n"] = 4
    assert state.raw["n"] == 4
    store.close()


# --- versions


def test_change_of_data_that_another_changed_is_refused() -> None:
    with StateStore(":memory:") as store:
        one = create_state(copy.deepcopy(FILES), thread_id="t", store=store)
        two = create_state(dict, thread_id="t", store=store)
        held = one.data
        two.data["n"] = 7
        changes: list[Callable[[], object]] = [
            set_item(one.data, "n", 8),
            set_item(one.data, "n", 1),
            lambda: one.data.__delitem__("n"),
            lambda: edited(one, lambda data: data["todo"].sort()),
            lambda: edited(one, lambda data: None),
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
        assert held == FILES
        for _ in range(2):
            with pytest.raises(DataConflictError):
                held["x"] = 1
            one.data["y"] = one.data["n"] + 1
        assert one.refresh() is False


def test_refresh_without_news_keeps_the_data_object_valid(state: State[dict[str, Any]]) -> None:
    held = state.data
    assert state.refresh() is False
    held["z"] = 1
    assert held is state.data
    assert state.raw["z"] == 1


def test_data_object_follows_every_change_of_its_state(state: State[dict[str, Any]]) -> None:
    held = state.data
    state.kv.set("a", 1)
    edited(state, lambda data: data["todo"].append("z"))
    state.update(lambda data: data.pop("n"))
    held["b"] = 2
    assert held == state.raw == {"a": 1, "b": 2, "files": FILES["files"], "todo": ["x", "y", "z"]}


def test_threads_sharing_a_state_lose_no_change() -> None:
    state = create_state({"todo": []})

    def work(name: str) -> None:
        for number in range(20):
            state.update(lambda data, number=number: data["todo"].append(f"{name}{number}"))  # type: ignore[misc]
            state.data[name] = number
            state.kv.set(f"{name} too", number)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = state.raw
    assert sorted(found.pop("todo")) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))
    assert found == dict.fromkeys([*"abcd", *(f"{name} too" for name in "abcd")], 19)
    assert state.data == state.raw
