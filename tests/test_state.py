"""`State`: data as a dict or model, what replaces results, and threads that several programs write."""

import copy
import json
import pickle

import pydantic
import pytest

import holdlog
from holdlog.adapters.stores.decoding import TYPES
from holdlog.domain.state import Record, State
from holdlog.domain.threads import ResultAppended, ResultsCleared
from holdlog.projections.fold import fold
from tests.conftest import both_stores, in_postgres
from tests.doors.test_seed_agentkit import contents, result, text
from tests.support.library import in_thread
from tests.support.programs import run

on_files = pytest.mark.parametrize("kind", ["file", in_postgres], indirect=True)


@pytest.fixture
def place(kind, request):
    return request.getfixturevalue("postgres") if kind == "postgres" else str(request.getfixturevalue("db"))


@pytest.fixture
def state(db):
    with holdlog.create_state({"plan": "search"}, thread_id="t", store=db) as state:
        yield state


# --- data


def test_data_refuse_changes_in_place_and_copies_do_not(state):
    for change in (lambda data: data.update(n=1), lambda data: data.pop("plan"), lambda data: data.__setitem__("n", 1)):
        with pytest.raises(holdlog.InvalidError, match="edit"):
            change(state.data)
    for plain in (copy.deepcopy(state.data), copy.copy(state.data), pickle.loads(pickle.dumps(state.data))):
        plain["n"] = 1
        assert (type(plain), plain) == (dict, {"plan": "search", "n": 1})
    assert json.dumps(state.data) == '{"plan": "search"}'


def test_edit_writes_only_what_differs_and_removes_what_is_gone(state, db):
    state.kv.set("old", [1])
    with state.edit() as data:
        data["n"] = 1
        del data["old"]
    with state.edit() as data:
        data["n"] = 1
    with holdlog.StateStore(db) as store:
        assert [it.event_type for it in store.history("threads/t", "plan")] == ["write"]
        assert [it.event_type for it in store.history("threads/t", "old")] == ["delete", "write"]
        assert [it.value for it in store.history("threads/t", "n")] == [1]
        assert store.verify()
    state.kv.set("old", 2)
    assert state.kv.get("old") == 2


def test_true_replaces_one_and_names_are_in_nfc(state):
    state.kv.set("cafe\u0301", 1)
    with state.edit() as data:
        data["caf\u00e9"] = True
    assert state.kv.get("cafe\u0301") is True
    assert state.kv.delete("cafe\u0301")


@pytest.mark.parametrize("key", [7, None, "", "a\0b", "\ud800", "x" * 600])
def test_key_that_is_no_name_is_refused(state, key):
    with pytest.raises(holdlog.InvalidError):
        state.kv.set(key, 1)
    with pytest.raises(holdlog.InvalidError), state.edit() as data:
        data[key] = 1
    assert state.kv.all() == {"plan": "search"}


def test_changes_of_other_keys_do_not_conflict_and_a_deleted_key_does(state, db):
    with holdlog.create_state(thread_id="t", store=db) as other:
        other.kv.set("theirs", 1)
        state.kv.set("mine", 1)
        assert other.kv.delete("plan")
        for change in (lambda: state.kv.set("plan", 2), lambda: state.kv.delete("plan")):
            with pytest.raises(holdlog.ConflictError):
                change()
        assert state.refresh()
        assert not state.refresh()
        assert state.kv.all() == {"mine": 1, "theirs": 1}
        assert not state.kv.delete("plan")


@on_files
def test_update_loses_no_change_of_many_programs(place):
    def count(_):
        with holdlog.create_state(thread_id="t", store=place) as state:
            for _ in range(10):
                state.update(lambda data: data.update(n=data.get("n", 0) + 1))

    for worker in [in_thread(count, number) for number in range(4)]:
        worker.result()
    with holdlog.create_state(thread_id="t", store=place) as state:
        assert state.data == {"n": 40}


class Plan(pydantic.BaseModel):
    goal: str = pydantic.Field(default="", alias="theGoal")
    steps: list[int] = []

    @pydantic.computed_field
    @property
    def size(self) -> int:
        return len(self.steps)


def test_fields_of_a_model_are_stored_under_their_names_when_they_change(db):
    with holdlog.create_state({"goal": "a page", "other": 1}, thread_id="t", store=db):
        pass
    with holdlog.create_state(Plan, thread_id="t", store=db) as state:
        assert (state.data.goal, state.data.steps, state.kv.has("steps")) == ("a page", [], False)
        with state.edit() as plan:
            plan.steps.append(1)
        assert state.kv.all() == {"goal": "a page", "other": 1, "steps": [1]}
    with holdlog.create_state(Plan(theGoal="new"), thread_id="u", store=db) as state:
        assert state.kv.all() == {"goal": "new", "steps": []}


def test_data_that_do_not_fit_the_model_are_refused_without_their_values(db):
    with holdlog.create_state({"steps": "secret"}, thread_id="t", store=db):
        pass
    with pytest.raises(holdlog.InvalidError, match=r"^steps: [^\n]+$") as refused:
        holdlog.create_state(Plan, thread_id="t", store=db)
    assert "secret" not in str(refused.value)


# --- history


@on_files
def test_replaced_results_may_come_again_once(place, kind):
    with holdlog.create_state(thread_id="t", store=place, messages=[text("m", "user")]) as state:
        assert [state.append_result(result(it)) for it in ("a", "b")] == [True, True]
        state.set_results([result("b"), result("c"), result("c")])
        assert contents(state.results) == [("writer", "b"), ("writer", "c")]
        assert [state.append_result(result(it)) for it in ("b", "a", "a")] == [False, True, False]
        state.set_results([])
        assert (state.results, [it.content for it in state.messages]) == ([], ["m"])
        assert state.append_result(result("a"))
        assert [it.content for it in state.format_history()] == ["m", "a"]
    with holdlog.StateStore(place) as store:
        kinds = [it.kind for it in store.thread_read("t").items]
        assert kinds == ["message", "result", "result", "cleared", "result", "result", "result", "cleared", "result"]
        assert store.thread_append("t", agent="ann", results=[result("a")]).already == 1
        assert store.verify()
        assert store.rebuild().changed == 0
    assert "state replaced the results" in run("thread", "read", "t", "--db", place).out


def test_results_that_one_batch_clears_are_new_to_its_next_command():
    name = "thread:t abc"
    state = State({"thread:t": Record("thread:t"), name: Record(name)})
    fold(state, ResultAppended("thread:t", "ann", "{}", "abc"), 1)
    assert state.records[name].exists
    assert fold(state, ResultsCleared("thread:t", "ann"), 2) == 2
    assert not state.records[name].exists
    assert ResultsCleared in TYPES.values()


def test_results_are_by_their_agents_and_changes_by_the_state(db):
    with holdlog.create_state({"n": 1}, thread_id="t", store=db) as state:
        state.append_result(result("a", agent="coder"))
        state.agent = "network"
        state.append_result(result("b", agent="coder"))
        state.kv.set("n", 2)
    with holdlog.StateStore(db) as store:
        assert [(it.kind, it.by) for it in store.events().events] == [
            ("ValueWritten", "state"),
            ("ResultAppended", "coder"),
            ("ResultAppended", "network"),
            ("ValueWritten", "network"),
        ]


@both_stores
def test_thread_starts_whole_or_not_at_all(open_store, place, kind):
    with pytest.raises(holdlog.InvalidError):
        holdlog.create_state({"n": 1}, thread_id="t", store=place, messages=[text("m", "user"), {"type": "text"}])
    store = open_store()
    assert store.thread_read("t").status == "not_found"
    assert store.list("threads/t").records == []
    holdlog.create_state({"n": 1}, thread_id="t", store=store, results=[result("r")])
    assert len({it.at for it in store.events().events}) == 1


def test_long_history_is_read_whole(state):
    for first in range(0, 2500, 500):
        state._write(messages=[text(str(number), "user") for number in range(first, first + 500)])
    assert [it.content for it in state.messages] == [str(number) for number in range(2500)]
