"""What a State refuses is told by its place and by the names that it has there."""

from typing import Any

import pytest

from holdlog import InvalidError, State, create_state


@pytest.fixture
def state() -> Any:
    with create_state({"n": 1}) as state:
        yield state


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"output": []}, "result.agent_name: is required"),
        (
            {"agent_name": "a", "output": [{"role": "assistant", "content": "x"}]},
            "result.output[0].type: must be text, ",
        ),
        ({"agent_name": "a", "output": "x"}, "result.output: must be a list"),
    ],
)
def test_invalid_result_of_a_state_is_refused_by_its_index(state: State[Any], result: Any, told: str) -> None:
    with pytest.raises(InvalidError) as refusal:
        state.append_result(result)
    assert str(refusal.value).startswith(told)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "user", "content": "x"}, "message.type: must be text, tool_call or tool_result"),
        ({"type": "text", "role": "bot", "content": "x"}, "message.role: must be 'system', 'user' or 'assistant'"),
        ("hello", "message: must be an object"),
    ],
)
def test_invalid_message_of_a_state_is_refused_by_its_index(state: State[Any], message: Any, told: str) -> None:
    with pytest.raises(InvalidError) as refusal:
        state.append_message(message)
    assert str(refusal.value) == told


def test_fork_of_a_future_version_is_refused_by_the_argument_of_the_method(state: State[Any]) -> None:
    with pytest.raises(InvalidError) as refusal:
        state.fork(version=9)
    assert str(refusal.value) == "version: the parent ends at version 2; pass that or less"


def test_past_state_names_its_version(state: State[Any]) -> None:
    assert repr(state.at(version=1)) == f"<StateAt {state.thread_id} version=1>"
