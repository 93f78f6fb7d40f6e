"""What hosts pass to hooks, as one kind of call."""

import pytest

from holdlog.adapters.hooks.calls import BadInputError, HookCall, parse

EDIT = {"session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Edit"}


def parsed(**given: object) -> HookCall:
    call = parse({**EDIT, **given}, None)
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("tool", "name"),
    [("claim", "ann"), ("release", "ann"), ("register", "ann"), ("status", None), ("activity", None)],
)
def test_name_of_an_agent_comes_from_calls_in_which_it_names_itself(tool: str, name: str | None) -> None:
    assert parsed(tool_name=f"mcp__holdlog__holdlog_{tool}", tool_input={"agent": "ann"}).called_name == name
    assert parsed(tool_name=f"mcp__other__{tool}", tool_input={"agent": "ann"}).called_name is None


def test_paths_are_absolute_and_those_with_a_null_character_are_left_out() -> None:
    assert parsed(tool_input={"file_path": "a/../b.py"}).paths == ("/p/b.py",)
    assert parsed(tool_input={"file_path": "a\0.py"}).paths == ()


@pytest.mark.parametrize("given", [None, [], "x", {}, {"hook_event_name": "Stop"}, {"session_id": "s"}])
def test_input_that_cannot_be_read_is_refused_in_one_line(given: object) -> None:
    with pytest.raises(BadInputError) as refused:
        parse(given, None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["Notification", "PreCompact", "afterAgentThought"])
def test_event_that_needs_nothing_is_no_call(name: str) -> None:
    assert parse({"session_id": "s", "hook_event_name": name}, None) is None


def test_event_of_the_command_line_comes_before_that_of_the_input() -> None:
    call = parse({**EDIT, "paths": ["a"]}, "turn-end")
    assert call is not None
    assert call.event == "turn-end"
