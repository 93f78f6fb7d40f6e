"""AgentKit's State: its key-value store, its data and the history of its conversation, kept in a store."""

import json
from pathlib import Path

import pydantic
import pytest

import holdlog
from tests.doors.conftest import both_stores


@pytest.fixture
def state(db):
    with holdlog.create_state({"plan": "search"}, thread_id="run-7", store=str(db)) as state:
        yield state


def text(content, role="assistant"):
    return {"type": "text", "role": role, "content": content}


def result(content, agent="writer", **more):
    return {"agentName": agent, "output": [text(content)], "createdAt": "2026-01-01T00:00:00+00:00", **more}


def contents(results):
    return [(it.agent_name, it.output[0].content) for it in results]


def test_kv_sets_gets_deletes_and_has_keys(state):
    state.kv.set("user-name", "Alice")
    assert (state.kv.get("user-name"), state.kv.has("user-name")) == ("Alice", True)
    assert state.kv.delete("user-name") is True
    assert state.kv.delete("user-name") is False
    assert (state.kv.get("user-name"), state.kv.has("user-name")) == (None, False)
    assert state.kv.all() == {"plan": "search"}


def test_tool_of_the_page_collects_its_files(state):
    for name in ("a.py", "b.py"):
        files = state.kv.get("files") or {}
        files = {**files, name: f"# {name}"}
        state.kv.set("files", files)
    assert state.kv.get("files") == {"a.py": "# a.py", "b.py": "# b.py"}


def test_kv_and_data_are_the_same_keys(state):
    state.kv.set("n", 1)
    assert state.data["n"] == 1
    with state.edit() as data:
        data["m"] = [1, {"x": None}]
    assert state.kv.get("m") == [1, {"x": None}]
    assert dict(state.data) == state.kv.all() == {"plan": "search", "n": 1, "m": [1, {"x": None}]}


class Plan(pydantic.BaseModel):
    goal: str = ""
    files: dict[str, str] = {}


def test_data_may_have_the_type_of_a_model(db):
    with holdlog.create_state(Plan(goal="a page"), thread_id="t", store=str(db)) as state:
        with state.edit() as data:
            data.files["a.py"] = "1"
        assert (state.data, state.kv.get("goal")) == (Plan(goal="a page", files={"a.py": "1"}), "a page")
        with pytest.raises((holdlog.InvalidError, pydantic.ValidationError)), state.edit() as data:
            data.files = 7
    with holdlog.create_state(Plan, thread_id="t", store=str(db)) as again:
        assert again.data == Plan(goal="a page", files={"a.py": "1"})


def test_failed_edit_changes_nothing(state):
    with pytest.raises(ZeroDivisionError), state.edit() as data:
        data["plan"] = "lost"
        raise ZeroDivisionError
    assert dict(state.data) == {"plan": "search"}


def test_two_networks_conflict_instead_of_overwriting(state, db):
    with holdlog.create_state(thread_id="run-7", store=str(db)) as other:
        other.kv.set("n", "theirs")
        with pytest.raises(holdlog.HoldlogError) as conflict, state.edit() as data:
            data["n"] = "mine"
        assert type(conflict.value).__name__.endswith("ConflictError")
        state.refresh()
        assert state.kv.get("n") == "theirs"
        assert state.update(lambda data: data.update(n="both")) is None
        other.refresh()
        assert other.kv.get("n") == "both"


def test_thread_is_resumed_by_another_run_with_data_and_history(db):
    with holdlog.create_state({"n": 1}, thread_id="t", store=str(db), messages=[text("hello", "user")]) as state:
        state.append_result(result("hi"))
        state.kv.set("n", 2)
    with holdlog.create_state({"n": 9}, thread_id="t", store=str(db)) as again:
        assert (again.thread_id, again.kv.get("n")) == ("t", 2)
        assert [it.content for it in again.messages] == ["hello"]
        assert contents(again.results) == [("writer", "hi")]


def test_state_without_a_store_lasts_for_one_run(work, monkeypatch):
    monkeypatch.chdir(work)
    with holdlog.create_state({"n": 1}) as one, holdlog.create_state({"n": 2}) as two:
        assert (one.kv.get("n"), two.kv.get("n")) == (1, 2)
        assert one.thread_id != two.thread_id
    assert list(Path(work).iterdir()) == []


def test_results_are_appended_once_and_read_from_an_index(state):
    assert [state.append_result(result(it)) for it in ("one", "two", "one")] == [True, True, False]
    assert contents(state.results) == [("writer", "one"), ("writer", "two")]
    assert contents(state.get_results_from(1)) == [("writer", "two")]


def test_set_results_replaces_them(state):
    state.append_result(result("one"))
    state.set_results([result("three"), result("four", "reviewer")])
    assert contents(state.results) == [("writer", "three"), ("reviewer", "four")]


def test_format_history_lists_messages_and_results_for_a_model(state):
    call = {
        "type": "tool_call",
        "role": "assistant",
        "tools": [{"type": "tool", "id": "1", "name": "f", "input": {"a": 1}}],
    }
    answer = {"type": "tool_result", "role": "tool_result", "tool": call["tools"][0], "content": {"ok": True}}
    state.append_message(text("do it", "user"))
    state.append_result(result("calling", toolCalls=[answer], output=[text("calling"), call]))
    history = state.format_history()
    assert [it.type for it in history] == ["text", "text", "tool_call", "tool_result"]
    assert [it.role for it in history] == ["user", "assistant", "assistant", "tool_result"]
    assert history[2].tools[0].input == {"a": 1}
    assert [it.content for it in state.format_history(lambda it: it.output[:1])] == ["do it", "calling"]


def test_result_has_the_checksum_and_export_of_agentkit(state):
    state.append_result(result("hi"))
    (stored,) = state.results
    exported = stored.export()
    assert set(exported) == {"agent_name", "output", "tool_calls", "created_at", "checksum"}
    assert (exported["agent_name"], exported["output"][0]["content"]) == ("writer", "hi")
    assert exported["checksum"] == stored.checksum
    assert json.dumps(exported)
    assert holdlog.InferenceResult is holdlog.AgentResult


def test_appended_messages_of_many_callers_never_conflict(db):
    states = [holdlog.create_state(thread_id="t", store=str(db)) for _ in range(3)]
    for number, state in enumerate(states):
        state.append_message(text(str(number), "user"))
    assert [it.content for it in states[0].messages] == ["0", "1", "2"]
    for state in states:
        state.close()


@pytest.mark.parametrize(
    "bad", [{"type": "text", "role": "nobody", "content": "x"}, {"type": "video"}, {"role": "user"}, 7, {}]
)
def test_message_of_an_unknown_kind_is_refused(state, bad):
    with pytest.raises(holdlog.InvalidError):
        state.append_message(bad)
    assert state.messages == []


@both_stores
def test_open_store_of_either_kind_is_used_and_stays_open(open_store, kind, request):
    store = open_store()
    place = request.getfixturevalue("postgres") if kind == "postgres" else str(request.getfixturevalue("db"))
    with holdlog.StateStore(place) as opened:
        with holdlog.create_state({"n": 1}, thread_id="t", store=opened) as state:
            state.kv.set("n", 2)
        opened.set("n", "k", 1, updated_by="ann")
    with holdlog.create_state(thread_id="t", store=place) as again:
        assert again.kv.get("n") == 2
    assert store.get("n", "k").value == 1
