"""State over every store: AgentKit's, but kept, versioned and shared; and its four defects are mended."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdlog import (
    AgentResult,
    AsyncStateStore,
    DataConflictError,
    InvalidError,
    NotFoundError,
    State,
    StateStore,
    StoreError,
    TextMessage,
    ToolCall,
    ToolResultMessage,
    create_state,
)
from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.compose import MEMORY
from holdlog.domain.names import thread_stream
from holdlog.domain.threads.commands import Append, NewMessage
from holdlog.domain.value import Json
from tests.support.kinds import InDatabase, InFile


class Plan(BaseModel):
    goal: str = ""
    files: dict[str, str] = {}
    done: int = 0


@pytest.fixture
def shared(place: str) -> Iterator[StateStore]:
    with StateStore(place) as store:
        yield store


def said(text: str, role: Any = "assistant") -> TextMessage:
    return TextMessage(role=role, content=text)


def result(text: str, agent: str = "coder") -> AgentResult:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return AgentResult(agent_name=agent, output=[said(text)], created_at=at)


def texts(messages: list[Any]) -> list[str]:
    return [message.content for message in messages]


def answered(text: str) -> ToolResultMessage:
    return ToolResultMessage(tool=ToolCall(id="1", name="look"), content={"found": text})


# --- AgentKit's State


def test_state_data_and_thread_keys_always_agree(shared: StateStore) -> None:
    """AgentKit fills two stores from one object, and neither sees what the other is told."""
    for state in (create_state({"goal": "g"}, store=shared), create_state(Plan(goal="g"), store=shared)):
        data: Any = state.data
        state.kv.set("files", {"a": "1"})
        assert (data["files"] if isinstance(data, dict) else data.files) == {"a": "1"}
        with state.edit() as draft:
            files = draft["files"] if isinstance(draft, dict) else draft.files
            files["b"] = "2"
        assert state.kv.get("files") == {"a": "1", "b": "2"}
        assert state.kv.has("files")
        assert state.kv.delete("goal") is True
        assert state.kv.delete("goal") is False
        assert not state.kv.has("goal")
        assert state.kv.get("goal") is None
        assert state.kv.get("goal", "none") == "none"
        assert state.kv.all() == state.raw


def test_tool_of_the_seed_writes_its_files_with_one_event(shared: StateStore) -> None:
    state = create_state(store=shared)
    for output in ([("a.py", "1"), ("b.py", "2")], [("a.py", "3")]):
        files = state.kv.get("files") or {}
        for filename, content in output:
            files[filename] = content
        state.kv.set("files", files)
    assert state.data == {"files": {"a.py": "3", "b.py": "2"}}
    assert state.version == 3


def test_clone_of_a_state_is_deep_and_complete(shared: StateStore) -> None:
    """AgentKit's shares what is nested, and loses what was set by key."""
    state = create_state({"files": {"a": {"b": [1]}}}, thread_id="t", store=shared, results=[result("r")])
    state.kv.set("user", "Alice")
    state.append_message(said("m", "user"))
    clone = state.clone()
    assert clone.thread_id == "t"
    assert clone.data == state.data
    assert clone.kv.get("user") == "Alice"
    assert clone.results == state.results
    assert clone.messages == state.messages
    assert texts(clone.format_history()) == texts(state.format_history()) == ["r", "m"]
    with clone.edit() as data:
        data["files"]["a"]["b"].append(2)
    clone.kv.set("user", "Bob")
    clone.append_result(result("clone"))
    clone.set_results([])
    assert state.data == {"files": {"a": {"b": [1]}}, "user": "Alice"} == state.raw
    assert texts(state.results[0].output) == ["r"]
    with state.edit() as data:
        data["files"]["a"]["b"].append(3)
    assert clone.data["files"]["a"]["b"] == [1, 2]
    assert shared.events(kinds=["ThreadStarted"]).events[0].stream == thread_stream("t")  # type: ignore[attr-defined]
    assert len(shared.events(kinds=["ThreadStarted"]).events) == 1


def test_failed_run_keeps_its_state(shared: StateStore) -> None:
    """AgentKit keeps results at the end of a run that succeeded."""

    def run() -> None:
        state = create_state(Plan, thread_id="t", store=shared)
        state.append_result(result("first"))
        state.data.files = {"a": "1"}
        raise RuntimeError("the model is gone")

    with pytest.raises(RuntimeError):
        run()
    again = create_state(Plan, thread_id="t", store=shared)
    assert texts(again.results[0].output) == ["first"]
    assert again.data == Plan(files={"a": "1"})


def test_two_networks_conflict_instead_of_overwriting_state(shared: StateStore) -> None:
    """AgentKit has no version, no author and no history."""
    one = create_state(Plan, thread_id="t", store=shared, agent="one")
    two = create_state(Plan, thread_id="t", store=shared, agent="two")
    one.data.goal = "of one"
    with pytest.raises(DataConflictError) as refused:
        two.data.goal = "of two"
    assert refused.value.detail.model_dump() == {
        "thread_id": "t",
        "expected_data_version": 2,
        "actual_data_version": 3,
        "changed_keys": ("goal",),
    }
    assert "of one" not in str(refused.value)
    assert two.data.goal == ""
    assert two.refresh()
    two.data.goal += ", and of two"
    assert create_state(Plan, thread_id="t", store=shared).data.goal == "of one, and of two"
    assert [(it.by, it.value) for it in one.history("goal")] == [
        ("two", "of one, and of two"),
        ("one", "of one"),
        ("one", ""),
    ]


def test_appends_to_a_state_never_conflict(shared: StateStore) -> None:
    one = create_state({"n": 0}, thread_id="t", store=shared)
    two = create_state(dict, thread_id="t", store=shared)
    one.data["n"] = 1
    assert two.append_result(result("r"))
    two.append_message(said("m"))
    one.data["n"] = 2
    assert texts(one.messages) == ["m"]
    assert one.results == [result("r")]
    assert two.data["n"] == 0


def test_result_is_stored_once(shared: StateStore) -> None:
    state = create_state(store=shared)
    assert state.append_result(result("a")) is True
    assert state.append_result(result("a")) is False
    assert state.append_result(result("a").export()) is False
    assert state.append_result({"agentName": "coder", "output": [said("b").exported()]}) is True
    assert len(state.results) == 2


def test_results_are_set_and_returned_from_an_index_on(shared: StateStore) -> None:
    state = create_state(store=shared, results=[result("a"), result("b")])
    state.set_results([result("a"), result("b"), result("c")])
    assert state.version == 4
    assert state.get_results_from(1) == [result("b"), result("c")]
    assert state.get_results_from(-1) == [result("c")]
    assert state.get_results_from(9) == []
    state.set_results([result("c").export(), result("a")])
    assert state.results == [result("c"), result("a")]
    assert state.last_results(1) == [result("a")]
    assert state.append_result(result("b")) is True
    assert state.last_results(5) == state.results == [result("c"), result("a"), result("b")]
    state.set_results([])
    assert state.results == state.last_results(3) == state.format_history() == []


def test_returned_results_are_copies(shared: StateStore) -> None:
    state = create_state(store=shared, results=[result("a")], messages=[said("m")])
    state.results.clear()
    state.results[0].output.clear()
    state.messages.clear()
    assert texts(state.results[0].output) == ["a"]
    assert texts(state.messages) == ["m"]


def test_formatted_history_keeps_the_order_of_arrival(shared: StateStore) -> None:
    state = create_state(store=shared, messages=[said("system", "system")], results=[result("first")])
    state.append_message(said("user", "user"))
    state.append_result(AgentResult(agent_name="c", output=[said("out")], tool_calls=[answered("tool")]))
    history = state.format_history()
    assert [it.content for it in history] == ["system", "first", "user", "out", {"found": "tool"}]
    assert texts(state.format_history(lambda it: [said(it.agent_name)])) == ["system", "coder", "user", "c"]
    assert state.format_history(lambda it: []) == state.messages


def test_state_accepts_plain_objects_at_start(shared: StateStore) -> None:
    """AgentKit's network takes what came over the wire, and makes a State of it."""
    messages = [{"type": "text", "role": "user", "content": "hi"}]
    results = [{"agentName": "a", "output": [{"type": "text", "role": "assistant", "content": "ho"}], "toolCalls": []}]
    state = create_state({"username": "bob"}, store=shared, messages=messages, results=results)
    assert state.data == {"username": "bob"}
    assert state.messages == [said("hi", "user")]
    assert texts(state.results[0].output) == ["ho"]


# --- kept


def test_thread_of_a_state_is_resumed_as_stored(shared: StateStore) -> None:
    first = create_state({"n": 1}, store=shared, results=[result("a")], messages=[said("m")])
    first.data["n"] = 2
    again = create_state(
        {"n": 9, "other": 1},
        thread_id=first.thread_id,
        store=shared,
        results=[result("never")],
        messages=[said("never")],
    )
    assert again.data == {"n": 2}
    assert texts(again.messages) == ["m"]
    assert again.results == [result("a")]
    assert again.version == first.version == 5
    assert again.data_version == first.data_version == 5


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_thread_outlives_the_state_that_started_it(place: str) -> None:
    with create_state(Plan(goal="g"), thread_id="build 1/é", store=place) as state:
        state.data.files = {"a": "1"}
        state.append_result(result("r"))
    with pytest.raises(StoreError):
        state.data.goal = "h"
    with create_state(Plan, thread_id="build 1/é", store=Path(place) if "://" not in place else place) as again:
        assert again.data == Plan(goal="g", files={"a": "1"})
        assert again.results == [result("r")]
        again.data.done = 1
    assert again.data.done == 1


def test_state_starts_a_new_thread_in_one_transaction(shared: StateStore) -> None:
    state = create_state({"a": 1}, store=shared, messages=[said("m")], results=[result("r"), result("r")])
    told = shared.events().events
    assert [it.kind for it in told] == ["ThreadStarted", "ThreadDataChanged", "MessageAppended", "ResultAppended"]  # type: ignore[union-attr]
    assert state.version == 4
    empty = create_state(store=shared)
    assert empty.data == {}
    assert (empty.version, empty.data_version) == (1, 0)
    empty.data["x"] = 1
    assert empty.data_version == 2


@pytest.mark.check
def test_state_larger_than_one_transaction_is_stored(shared: StateStore) -> None:
    many = [result(f"{number}") for number in range(1_500)]
    state = create_state(store=shared, results=many)
    assert len(state.results) == 1_500
    assert state.last_results(2) == many[-2:]
    assert len(state.clone().results) == 1_500


def test_state_accepts_stores_of_either_kind_and_paths(tmp_path: Path) -> None:
    asynchronous = AsyncStateStore(tmp_path / "state.db")
    state = create_state({"n": 1}, thread_id="t", store=asynchronous)
    state.data["n"] = 2
    state.close()
    assert create_state(dict, thread_id="t", store=asynchronous).data == {"n": 2}
    with create_state(dict, thread_id="t", store=tmp_path / "state.db") as here:
        assert here.data == {"n": 2}
    with StateStore(tmp_path / "state.db") as store:
        assert create_state(dict, thread_id="t", store=store).data == {"n": 2}
    asyncio.run(asynchronous.close())


def test_author_of_a_state_is_recorded_in_the_log(shared: StateStore) -> None:
    state = create_state({"n": 1}, thread_id="t", store=shared)
    assert state.agent == "state"
    state.append_result(result("r", "coder"))
    state.agent = "network"
    state.append_result(result("s", "coder"))
    state.data["n"] = 2
    with shared._engine.store.reader() as reader:
        events = [it.event for it in reader.history(thread_stream("t"), None, 10)]
    assert [event.by for event in reversed(events)] == ["state", "state", "coder", "network", "network"]  # type: ignore[attr-defined]
    for name in ("", "a//b", "x" * 129):
        with pytest.raises(InvalidError, match="agent"):
            state.agent = name
        with pytest.raises(InvalidError, match="agent"):
            create_state(store=shared, agent=name)
        with pytest.raises(InvalidError, match="thread_id"):
            create_state(store=shared, thread_id="" if name == "" else "x" * 513)


# --- the past


def test_state_can_be_read_as_of_an_earlier_version(shared: StateStore) -> None:
    state = create_state(Plan(goal="g"), thread_id="t", store=shared, messages=[said("m")])
    state.append_result(result("a"))
    state.data.files = {"a": "1"}
    position = shared.events().next_position
    moment = datetime.now(UTC)
    state.set_results([result("b")])
    state.data.goal = "h"
    then = state.at(version=5)
    for found in (then, state.at(5), state.at(position=position), state.at(time=moment), state.at(time=str(moment))):
        assert found.version == 5
        assert found.data == Plan(goal="g", files={"a": "1"})
        assert found.results == [result("a")]
        assert texts(found.messages) == ["m"]
        assert texts(found.format_history()) == ["m", "a"]
        assert found.thread_id == "t"
    state.append_message(said("later"))
    then.data.files.clear()  # type: ignore[union-attr]
    assert state.data.files == {"a": "1"}
    assert texts(then.messages) == ["m"]
    assert state.at(version=1).data == Plan()
    assert state.at(version=1).raw == {}
    assert state.at(version=state.version).data == state.data


def test_future_version_of_a_state_cannot_be_read(shared: StateStore) -> None:
    before = datetime.now(UTC) - timedelta(days=1)
    shared.set("n", "k", 1, updated_by="a")
    state = create_state({"n": 1}, thread_id="t", store=shared)
    with pytest.raises(NotFoundError) as refused:
        state.at(position=1)
    assert refused.value.facts == {"thread_id": "t"}
    for bad in ({"time": before}, {"version": 0}):
        with pytest.raises(NotFoundError):
            state.at(**bad)  # type: ignore[arg-type]
    for wrong in ({"version": 3}, {"version": -1}, {"version": True}, {"time": "noon"}, {"position": "1"}, {}):
        with pytest.raises(InvalidError) as invalid:
            state.at(**wrong)  # type: ignore[arg-type]
        assert "\n" not in str(invalid.value)
    with pytest.raises(InvalidError):
        state.at(version=1, position=1)


def test_history_of_a_state_key_is_returned(shared: StateStore) -> None:
    state = create_state({"n": 1, "m": 1}, store=shared, agent="ann")
    state.data["m"] = 2
    state.data["n"] = None
    state.agent = "bob"
    del state.data["n"]
    found = state.history("n")
    assert [(it.version, it.value, it.deleted, it.by) for it in found] == [
        (5, None, True, "bob"),
        (4, None, False, "ann"),
        (2, 1, False, "ann"),
    ]
    assert found[0].position > found[1].position
    assert found[0].at >= found[1].at
    assert state.history("n", limit=1) == found[:1]
    assert state.history("n", 1, before_version=5) == found[1:2]
    assert state.history("none") == []
    for wrong in (0, -1, "x"):
        with pytest.raises(InvalidError):
            state.history("n", limit=wrong)  # type: ignore[arg-type]


def test_fork_of_a_state_changes_independently(shared: StateStore) -> None:
    state = create_state(Plan(goal="g"), thread_id="t", store=shared, results=[result("a")], agent="ann")
    state.data.goal = "h"
    now, then = state.fork("now"), state.fork(version=3)
    assert (now.data.goal, then.data.goal) == ("h", "g")
    assert now.results == then.results == [result("a")]
    assert then.thread_id not in ("t", "now")
    now.data.goal = "of the fork"
    then.append_result(result("b"))
    assert state.data.goal == "h"
    assert state.results == [result("a")]
    assert create_state(Plan, thread_id="now", store=shared).data.goal == "of the fork"
    assert now.agent == "ann"
    for wrong in ({"thread_id": "t"}, {"thread_id": "now"}, {"version": 99}, {"version": 0}, {"thread_id": ""}):
        with pytest.raises(InvalidError) as refused:
            state.fork(**wrong)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)


# --- together


def test_state_updates_retry_and_lose_nothing(shared: StateStore) -> None:
    create_state({"counts": {"a": 0}, "todo": list(range(40))}, thread_id="t", store=shared)
    taken: list[int] = []

    def work() -> None:
        state = create_state(dict, thread_id="t", store=shared)
        for _ in range(10):

            def take(data: dict[str, Any]) -> int:
                data["counts"]["a"] += 1
                return int(data["todo"].pop())

            taken.append(state.update(take))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == list(range(40))
    state = create_state(dict, thread_id="t", store=shared)
    assert state.data == {"counts": {"a": 40}, "todo": []}
    assert state.version == 42


def test_threads_may_update_one_state_concurrently(shared: StateStore) -> None:
    state = create_state({"n": 0}, store=shared)

    def work() -> None:
        for _ in range(10):
            state.update(lambda data: data.update(n=data["n"] + 1))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert state.data == {"n": 40} == state.raw


def test_state_update_is_one_event_or_none(shared: StateStore) -> None:
    state = create_state({"a": 1, "b": {"c": 1}}, store=shared)
    held = state.data

    def change(data: dict[str, Any]) -> str:
        data["b"]["c"] = 2
        del data["a"]
        data["d"] = []
        data["d"].append(1)
        return "done"

    assert state.update(change) == "done"
    assert state.version == 3
    assert state.data == {"b": {"c": 2}, "d": [1]} == state.raw
    assert held == state.data
    assert state.update(lambda data: data["d"]) == [1]
    assert state.version == 3

    def fail(data: dict[str, Any]) -> None:
        data["b"]["c"] = 3
        raise RuntimeError

    with pytest.raises(RuntimeError):
        state.update(fail)
    with pytest.raises(InvalidError):
        state.update(lambda data: data.update(bad=object()))

    async def later(data: dict[str, Any]) -> None:
        data["b"] = 1

    def parts(data: dict[str, Any]) -> Iterator[int]:
        data["b"] = 1
        yield 1

    for never_run in (later, parts):
        with pytest.raises(InvalidError, match="async"):
            state.update(never_run)
    assert state.data == {"b": {"c": 2}, "d": [1]} == state.raw


def test_state_update_that_changes_the_state_itself_is_refused_at_once(shared: StateStore) -> None:
    state = create_state({"n": 0, "m": 0}, store=shared)

    def add(data: dict[str, Any]) -> None:
        data["n"] += 1

    def nested(data: dict[str, Any]) -> None:
        state.update(add)
        data["m"] += 1

    for change in (nested, lambda _: state.kv.set("n", state.data["n"] + 1), lambda _: add(state.data)):
        with pytest.raises(InvalidError, match="not the State"):
            state.update(change)
    assert state.data == {"n": 0, "m": 0} == state.raw
    state.update(add)
    state.data["m"] = 1
    assert state.raw == {"n": 1, "m": 1}


def test_clone_of_a_live_thread_is_of_one_version(shared: StateStore) -> None:
    """Each change has a result before it and the same number in two keys: a clone never has one without the others."""
    state = create_state({"a": 0, "b": 0}, thread_id="t", store=shared)
    over = threading.Event()

    def write() -> None:
        for number in range(1, 501):  # without an end, a slow machine would copy an ever longer thread
            if over.is_set():
                return
            state.append_result(result(f"{number}"))
            state.update(lambda data, number=number: data.update(a=number, b=number))  # type: ignore[misc]

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = create_state(dict, thread_id="t", store=shared)
        for _ in range(20):
            clone = reader.clone()
            assert clone.data["a"] == clone.data["b"]
            assert len(clone.results) - clone.data["a"] in (0, 1)
    finally:
        over.set()
        writer.join()


# --- what became of it


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_redacted_parts_of_a_state_are_omitted_and_the_rest_remains(place: str) -> None:
    with create_state({"a": 1}, thread_id="t", store=place, messages=[said("m"), said("n")]) as state:
        state.append_result(result("r"))
        state.append_result(result("s"))
        state.data["a"] = 2
    kind = InDatabase(place) if "://" in place else InFile(Path(place))
    kind.doctored(
        "UPDATE stored_events SET payload = NULL, salt = NULL, payload_hash = BYTES('x')"
        " WHERE originator_id = 'thread:t' AND originator_version IN (2, 3, 5)"
    )
    with create_state(dict, thread_id="t", store=place) as state:
        assert texts(state.messages) == ["n"]
        gone, left = state.results
        assert (gone.agent_name, gone.output, left) == ("coder", [], result("s"))
        assert texts(state.format_history()) == ["n", "s"]
        assert [(it.value, it.redacted) for it in state.history("a")] == [(2, False), (None, True)]
        assert state.at(version=2).data == {"a": None}
        assert state.clone().results == [result("s")]
        assert state.append_result(result("r")) is False
        assert state.data == {"a": 2}


def test_state_stored_by_a_later_holdlog_raises_an_error_of_one_line(shared: StateStore) -> None:
    state = create_state({"a": 1}, thread_id="t", store=shared)
    later = NewMessage(value=Json.of({"type": "hologram", "content": "secret"}))
    append = Append(thread="t", items=(later,), by="later")
    shared._engine.write(CommandRequest(append, lambda outcome: outcome), shared._engine.caller)
    for read in (lambda: state.messages, state.format_history):
        with pytest.raises(InvalidError, match="a kept message") as refused:
            read()
        assert "\n" not in str(refused.value)
        assert "hologram" not in str(refused.value)
    assert state.results == []
    assert state.clone().data == {"a": 1}


# --- bad input


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "image", "role": "user", "content": "x"},
        {"type": "text", "role": "robot", "content": "x"},
        {"type": "text", "role": "user"},
        {"role": "user", "content": "x"},
        {"type": "tool_result", "tool": {"id": "1", "name": "n"}, "content": object()},
        {"type": "text", "role": "user", "content": "\ud800"},
        "hello",
        None,
        {},
    ],
)
def test_state_refuses_messages_of_unknown_types(shared: StateStore, bad: Any) -> None:
    state = create_state(store=shared)
    for change in (
        lambda: state.append_message(bad),
        lambda: state.append_result({"agent_name": "a", "output": [bad]}),
        lambda: state.set_results([{"agent_name": "a", "tool_calls": [bad]}]),
        lambda: create_state(store=shared, messages=[bad]),
    ):
        with pytest.raises(InvalidError) as refused:
            change()
        assert "\n" not in str(refused.value)
    assert state.version == 1
    assert len(shared.events().events) == 1


CONSTRUCTED: list[Any] = [
    AgentResult.model_construct(agent_name="a", output=[], tool_calls=[answered("x")], created_at="never"),
    AgentResult.model_construct(agent_name="a", output=[TextMessage.model_construct(role="user")], tool_calls=[]),
    AgentResult(agent_name="a", output=[TextMessage.model_construct(role="robot", content="x")]),
    AgentResult(agent_name="a", output=[TextMessage.model_construct(role="user", content=3)]),
    AgentResult(agent_name="a", output=[TextMessage.model_construct(role="user")]),
    AgentResult(agent_name="a", tool_calls=[ToolResultMessage.model_construct(tool=None, content=1)]),
    AgentResult(agent_name="a", tool_calls=[ToolResultMessage.model_construct(tool={"id": "1"}, content=1)]),
    AgentResult(agent_name="a", tool_calls=[answered("x").model_copy(update={"content": float("nan")})]),
    AgentResult(agent_name="a", created_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    AgentResult(agent_name="a").model_copy(update={"agent_name": "a//b"}),
    AgentResult(agent_name="a").model_copy(update={"output": ["hi"]}),
    AgentResult(agent_name="a").model_copy(update={"tool_calls": [said("no answer of a tool")]}),
]
"""Made past their validators."""


def test_invalid_result_is_refused_with_the_reason() -> None:
    state = create_state()
    for bad in (None, "result", said("x")):
        with pytest.raises(InvalidError, match="must be an AgentResult"):
            state.append_result(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"^result\.mood: unknown field$"):
        state.append_result({"agent_name": "a", "mood": "secret"})


def test_state_refuses_results_that_are_not_json(shared: StateStore) -> None:
    state = create_state(store=shared)
    changed = result("x")
    changed.output.append(object())  # type: ignore[arg-type]
    for bad in (*CONSTRUCTED, changed, "result", 3, {"output": []}, {"agent_name": ""}, {"agentName": "a", "x": 1}):
        with pytest.raises(InvalidError) as refused:
            state.append_result(bad)
        assert "\n" not in str(refused.value)
    assert state.results == []
    with pytest.raises(InvalidError, match="must have at most 262144 bytes as JSON"):
        state.append_result(result("x" * 300_000))
    with pytest.raises(InvalidError, match="must have at most 262144 bytes as JSON"):
        state.append_message(said("x" * 300_000))
    with pytest.raises(InvalidError, match="must have at most 262144 bytes as JSON"):
        state.kv.set("x", "x" * 300_000)
    with pytest.raises(InvalidError, match="must have at most 262144 bytes as JSON"):
        create_state({"x": "x" * 300_000}, store=shared)
    with pytest.raises(InvalidError):
        state.set_results([result(f"{number}") for number in range(10_001)])
    for wrong in (3, [1], "text", Plan.model_fields, int):
        with pytest.raises(InvalidError):
            create_state(wrong, store=shared)  # type: ignore[call-overload]
    assert len(shared.events().events) == 1


# --- for one run


@pytest.mark.check
def test_state_without_a_store_lasts_for_one_run() -> None:
    state = create_state({"n": 1})
    state.data["n"] = 2
    data, store = state.data, weakref.ref(state._repository.engine.store)
    one = weakref.ref(state)
    del state
    gc.collect()
    data["n"] = 3
    assert data == {"n": 3}
    del data
    gc.collect()
    assert one() is None
    gc.collect()  # the state closed its store, which may be collected now
    assert store() is None


def test_store_stays_open_while_a_state_uses_it() -> None:
    store = StateStore(MEMORY)
    state = create_state({"n": 1}, store=store)
    fork = state.fork()
    del store, state
    gc.collect()
    fork.data["n"] = 2
    assert fork.raw == {"n": 2}


@pytest.fixture
def nothing_to_sweep() -> Iterator[None]:
    """What other tests left is not swept: that may take a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_to_sweep")
def test_state_dropped_during_a_write_blocks_nobody_and_is_closed_later(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with StateStore(path) as store:
        state = create_state(store=path)
        dropped = weakref.ref(state._repository.engine.store)
        gate = store._engine.store.write_lock  # type: ignore[attr-defined]
        gate.acquire(time.monotonic() + 10)
        began = time.monotonic()
        del state
        gc.collect()
        assert time.monotonic() - began < 0.9
        gate.release()
        create_state(store=path).close()
        gc.collect()
        assert dropped() is None


def test_states_of_one_run_are_independent() -> None:
    one, two = create_state({"n": 1}, thread_id="t"), create_state({"n": 2}, thread_id="t")
    assert (one.data["n"], two.data["n"]) == (1, 2)
    assert one.thread_id == two.thread_id
    assert isinstance(one, State)
    assert repr(one) == "<State t data_version=2>"
