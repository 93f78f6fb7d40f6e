"""The four hooks of a network's history, as AgentKit's tests tell them: begin, load, save, together, errors, edges.

`Network` runs agents as AgentKit's does, with no model behind them.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdlog import (
    AgentResult,
    AsyncStateStore,
    AsyncThreadHistory,
    InvalidError,
    State,
    StateStore,
    StoreError,
    TextMessage,
    ThreadHistory,
    UserMessage,
    create_state,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
Agent = Callable[[State[Any]], AgentResult]


def result(text: str, agent: str = "writer") -> AgentResult:
    return AgentResult(agent_name=agent, output=[TextMessage(role="assistant", content=text)], created_at=AT)


def told(results: list[AgentResult]) -> list[str]:
    return [f"{it.agent_name}: {it.output[0].content}" for it in results]  # type: ignore[union-attr]


@pytest.fixture
def store() -> Iterator[StateStore]:
    with StateStore(":memory:") as engine:
        yield engine


@pytest.fixture
def history(store: StateStore) -> ThreadHistory:
    return ThreadHistory(store)


class Network:
    """Runs its agents one after another, each on what those before it said."""

    def __init__(self, agents: list[Agent], history: ThreadHistory | None = None) -> None:
        self.agents = agents
        self.history = history

    def run(self, message: UserMessage, thread_id: str | None = None, state: State[Any] | None = None) -> State[Any]:
        state = state or create_state(thread_id=thread_id)
        if self.history is not None:
            thread_id = self.history.create_thread(thread_id)
            if not state.results:
                state.set_results(self.history.get(thread_id))
            self.history.append_user_message(thread_id, message)
        for agent in self.agents:
            made = agent(state)
            state.append_result(made)
            if self.history is not None and thread_id is not None:
                self.history.append_results(thread_id, [made])
        return state


def echo(name: str) -> Agent:
    return lambda state: AgentResult(
        agent_name=name, output=[TextMessage(role="assistant", content=f"after {len(state.results)}")]
    )


# --- begin


def test_history_creates_a_thread_id_when_given_none(history: ThreadHistory, store: StateStore) -> None:
    one, two = history.create_thread(), history.create_thread()
    assert one != two
    assert create_state(dict, thread_id=one, store=store).version == 1


def test_history_keeps_a_given_thread_id(history: ThreadHistory) -> None:
    assert history.create_thread("chat-1") == "chat-1"


def test_history_finds_an_existing_thread(history: ThreadHistory, store: StateStore) -> None:
    history.create_thread("t", data={"user": "ann"})
    history.append_results("t", [result("a")])
    assert history.create_thread("t", data={"user": "bob"}) == "t"
    assert told(history.get("t")) == ["writer: a"]
    assert create_state(dict, thread_id="t", store=store).data == {"user": "ann"}


def test_network_without_a_history_still_runs() -> None:
    state = Network([echo("a")]).run(UserMessage(id="1", content="hi"))
    assert told(state.results) == ["a: after 0"]


def test_run_without_a_thread_starts_one(history: ThreadHistory, store: StateStore) -> None:
    Network([echo("a")], history).run(UserMessage(id="1", content="hi"))
    threads = {it.stream for it in store.events().events}  # type: ignore[attr-defined]
    assert len(threads) == 1


# --- load


def test_history_loads_results_in_their_order(history: ThreadHistory) -> None:
    history.create_thread("t")
    history.append_results("t", [result("a"), result("b")])
    history.append_results("t", [result("c")])
    assert told(history.get("t")) == ["writer: a", "writer: b", "writer: c"]


def test_thread_that_was_never_started_has_no_results(history: ThreadHistory, store: StateStore) -> None:
    assert history.get("none") == []
    assert store.events().events == []


def test_run_loads_the_results_of_earlier_runs(history: ThreadHistory) -> None:
    network = Network([echo("a")], history)
    network.run(UserMessage(id="1", content="hi"), "t")
    state = network.run(UserMessage(id="2", content="again"), "t")
    assert told(state.results) == ["user: hi", "a: after 0", "a: after 2"]


def test_history_trusts_results_sent_by_the_client(history: ThreadHistory) -> None:
    network = Network([echo("a")], history)
    network.run(UserMessage(id="1", content="hi"), "t")
    state = network.run(UserMessage(id="2", content="x"), "t", create_state(thread_id="t", results=[result("mine")]))
    assert told(state.results) == ["writer: mine", "a: after 1"]


def test_history_loads_results_with_their_checksums(history: ThreadHistory) -> None:
    given = [result("a"), result("b")]
    history.append_results("t", given)
    assert [it.checksum for it in history.get("t")] == [it.checksum for it in given]
    state = create_state(results=history.get("t"))
    state.set_results(history.get("t"))
    assert state.version == 3


# --- save


def test_user_message_is_stored_as_a_result_of_the_user(history: ThreadHistory) -> None:
    assert history.append_user_message("t", UserMessage(id="1", content="hi", client_timestamp=AT))
    (found,) = history.get("t")
    assert found.agent_name == "user"
    assert found.output == [TextMessage(role="user", content="hi")]
    assert found.created_at == AT
    assert found.id == "1"


def test_user_message_is_stored_once(history: ThreadHistory) -> None:
    assert history.append_user_message("t", {"id": "1", "content": "hi"}) is True
    assert history.append_user_message("t", {"id": "1", "content": "hi"}) is False
    assert history.append_user_message("t", {"id": "2", "content": "hi"}) is True
    assert told(history.get("t")) == ["user: hi", "user: hi"]


def test_results_are_stored_once(history: ThreadHistory) -> None:
    assert history.append_results("t", [result("a"), result("a")]) == 1
    assert history.append_results("t", [result("a"), result("b").export()]) == 1
    assert history.append_results("t", []) == 0
    assert told(history.get("t")) == ["writer: a", "writer: b"]


def test_agent_message_is_not_stored_as_a_user_message(history: ThreadHistory) -> None:
    history.append_user_message("t", {"id": "1", "content": "hi"})
    assert history.append_results("t", [AgentResult(agent_name="writer", id="1"), result("hi")]) == 2


def test_results_may_be_saved_one_by_one_or_at_the_end(history: ThreadHistory) -> None:
    """AgentKit saves at the end of a run; who does both, keeps each once."""
    state = Network([echo("a"), echo("b")], history).run(UserMessage(id="1", content="hi"), "t")
    assert history.append_results("t", state.get_results_from(0)) == 0
    assert told(history.get("t")) == ["user: hi", "a: after 0", "b: after 1"]


def test_history_larger_than_one_transaction_is_saved(history: ThreadHistory) -> None:
    assert history.append_results("t", [result(f"{number}") for number in range(1_001)]) == 1_001
    assert len(history.get("t")) == 1_001


# --- together


def test_state_and_history_see_the_same_thread(history: ThreadHistory, store: StateStore) -> None:
    history.append_user_message("t", {"id": "1", "content": "hi"})
    state = create_state(dict, thread_id="t", store=store)
    state.append_result(result("of the state"))
    history.append_results("t", [result("of the history")])
    assert state.results == history.get("t")
    assert told(state.results) == ["user: hi", "writer: of the state", "writer: of the history"]
    state.set_results(state.results[:1])
    assert told(history.get("t")) == ["user: hi"]


def test_history_outlives_its_process(tmp_path: Path) -> None:
    with ThreadHistory(tmp_path / "state.db") as first:
        Network([echo("a")], first).run(UserMessage(id="1", content="hi"), "t")
    with ThreadHistory(tmp_path / "state.db") as second:
        assert told(second.get("t")) == ["user: hi", "a: after 0"]
    with pytest.raises(StoreError):
        second.get("t")


def test_history_is_recorded_in_the_log_with_its_author(store: StateStore) -> None:
    ThreadHistory(store, agent="network").append_results("t", [result("a")])
    ThreadHistory(store).append_results("t", [result("b"), result("c", "other")])
    ThreadHistory(store).append_results("t", [result("d", "other")])
    ThreadHistory(store).append_user_message("t", {"id": "1", "content": "hi"})
    with store._engine.store.reader() as reader:
        events = [it.event for it in reversed(reader.history("thread:t", None, 10))]
    assert [it.by for it in events] == ["network", "network", "state", "state", "other", "user"]  # type: ignore[attr-defined]


# --- errors


def test_failed_run_keeps_its_earlier_messages(history: ThreadHistory) -> None:
    def fail(state: State[Any]) -> AgentResult:
        raise RuntimeError("the model is gone")

    with pytest.raises(RuntimeError):
        Network([echo("a"), fail, echo("b")], history).run(UserMessage(id="1", content="hi"), "t")
    assert told(history.get("t")) == ["user: hi", "a: after 0"]


def test_history_that_cannot_write_raises(history: ThreadHistory, store: StateStore) -> None:
    store.close()
    for call in (
        lambda: history.create_thread("t"),
        lambda: history.get("t"),
        lambda: history.append_results("t", [result("a")]),
        lambda: history.append_user_message("t", {"id": "1", "content": "hi"}),
    ):
        with pytest.raises(StoreError):
            call()


@pytest.mark.parametrize(
    "bad",
    [
        {"content": "no id"},
        {"id": "1"},
        {"id": "1", "content": "x", "role": "assistant"},
        {"id": "1", "content": "x", "more": 1},
        {"id": 1, "content": "x"},
        {"id": "1", "content": "\ud800"},
        "hi",
    ],
)
def test_invalid_user_message_is_refused(history: ThreadHistory, store: StateStore, bad: Any) -> None:
    with pytest.raises(InvalidError) as refused:
        history.append_user_message("t", bad)
    assert "\n" not in str(refused.value)
    assert store.events().events == []


def test_invalid_results_are_refused_all_together(history: ThreadHistory, store: StateStore) -> None:
    with pytest.raises(InvalidError) as refused:
        history.append_results("t", [result("a"), {"agent_name": "b", "output": [{"type": "image"}]}])
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidError, match="thread_id"):
        history.append_results(" ", [result("a")])
    with pytest.raises(InvalidError, match="thread_id"):
        history.get("")
    with pytest.raises(InvalidError, match="thread_id"):
        history.create_thread("a\nb")
    with pytest.raises(InvalidError):
        history.create_thread("t", data={"x": object()})
    assert store.events().events == []


# --- edges


def test_empty_results_are_stored(history: ThreadHistory) -> None:
    assert history.append_results("t", [AgentResult(agent_name="a", created_at=AT)]) == 1
    assert history.get("t") == [AgentResult(agent_name="a", created_at=AT)]


def test_threads_of_a_history_are_independent(history: ThreadHistory) -> None:
    history.append_results("t", [result("a")])
    history.append_results("t/2", [result("a")])
    assert told(history.get("t")) == told(history.get("t/2")) == ["writer: a"]


def test_thread_may_begin_with_its_first_result(history: ThreadHistory, store: StateStore) -> None:
    history.append_results("t", [result("a")])
    assert create_state(dict, thread_id="t", store=store).version == 2


# --- for coroutines


def test_async_history_hooks_behave_like_the_sync_ones(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncStateStore(tmp_path / "state.db") as store:
            history = AsyncThreadHistory(store, agent="network")
            made = await history.create_thread(data={"user": "ann"})
            assert await history.create_thread(made) == made
            assert await history.append_user_message(made, {"id": "1", "content": "hi"}) is True
            assert await history.append_user_message(made, UserMessage(id="1", content="hi")) is False
            assert await history.append_results(made, [result("a"), result("a"), result("b")]) == 2
            assert await history.append_results("new", [result("a")]) == 1
            assert told(await history.get(made)) == ["user: hi", "writer: a", "writer: b"]
            assert await history.get("none") == []
            with pytest.raises(InvalidError):
                await history.append_results("t", [{"agent_name": ""}])
            state = create_state(dict, thread_id=made, store=store)
            assert state.data == {"user": "ann"}
            assert told(state.results) == told(await history.get(made))
            many = [history.append_results("t", [result(f"{number}")]) for number in range(50)]
            assert await asyncio.gather(*many) == [1] * 50
            assert len(await history.get("t")) == 50
        async with AsyncThreadHistory(tmp_path / "state.db") as again:
            assert len(await again.get("t")) == 50

    asyncio.run(run())
