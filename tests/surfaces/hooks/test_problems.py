"""Calls that hooks cannot read: each session hears once, and for each reason, that such a call is not guarded. Hooks of
Claude Code that other hosts run."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.problems import add_problem
from holdlog.adapters.hooks.running import run
from tests.surfaces.hooks.test_formats import held

NO_FILE = "Edit names no file in a form that holdlog knows"


class Hooks:
    """Runs hooks in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capsys = capsys

    def run(self, given: dict[str, Any], *words: str) -> tuple[Any, str]:
        """The output of a hook, None if there is none, and what it writes to standard error."""
        text = json.dumps({"cwd": os.getcwd(), **given}).encode()
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert run(words) == 0
        out, err = self._capsys.readouterr()
        return (json.loads(out) if out else None), err


@pytest.fixture
def hooks(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hooks:
    return Hooks(monkeypatch, capsys)


def claude(tool: str, given: object, session: str = "s-1", event: str = "PreToolUse") -> dict[str, Any]:
    return {"session_id": session, "hook_event_name": event, "tool_name": tool, "tool_input": given}


def context_of(output: Any) -> str:
    return str(output["hookSpecificOutput"]["additionalContext"])


def test_call_that_names_too_many_files_is_reported(hooks: Hooks) -> None:
    edits = {"edits": [{"file_path": f"{number}.py"} for number in range(1_001)]}
    output, err = hooks.run(claude("MultiEdit", edits))
    assert context_of(output) == "holdlog: a call names more than 1,000 files, so this call is not guarded."
    assert err == "holdlog hook: a call names more than 1,000 files; the edit is not guarded\n"
    _, err = hooks.run(claude("MultiEdit", {"edits": edits["edits"][1:]}))
    assert "names more than" not in err  # on a busy machine, it may take too long


def test_edit_that_names_no_file_is_reported_once_per_session(hooks: Hooks) -> None:
    output, err = hooks.run(claude("Edit", {"old_string": "1"}))
    assert context_of(output) == f"holdlog: {NO_FILE}, so this call is not guarded."
    assert err == f"holdlog hook: {NO_FILE}; the edit is not guarded\n"
    assert hooks.run(claude("Edit", {"old_string": "2"})) == (None, "")
    assert hooks.run(claude("Edit", {"old_string": "1"}, event="PostToolUse")) == (None, "")
    other, _ = hooks.run(claude("Write", {"content": "x"}))
    assert "Write names no file" in context_of(other)
    again, _ = hooks.run(claude("Edit", {"old_string": "1"}, session="s-2"))
    assert NO_FILE in context_of(again)
    start, _ = hooks.run({"session_id": "s-3", "hook_event_name": "SessionStart"})
    assert "3 hook calls failed, the last: " in context_of(start)
    assert NO_FILE in context_of(start)


def test_unknown_tool_that_seems_to_write_is_reported_and_others_are_not(hooks: Hooks) -> None:
    output, err = hooks.run(claude("mcp__notes__write_page", {"path": "a.py", "content": "x"}))
    assert "mcp__notes__write_page seems to write a file" in context_of(output)
    assert err.endswith("; the edit is not guarded\n")
    for tool, given in [("mcp__web__search", {"query": "a"}), ("TodoWrite", {"todos": []}), ("Glob", {"pattern": "*"})]:
        assert hooks.run(claude(tool, given)) == (None, "")


@pytest.mark.parametrize(
    ("facts", "words", "field"),
    [
        ({"hook_event_name": "PreToolUse", "turn_id": "1"}, (), "systemMessage"),
        ({"hook_event_name": "preToolUse", "cursor_version": "2.4"}, (), "agent_message"),
        ({"client": "opencode"}, ("pre-edit",), "warning"),
    ],
)
def test_each_host_gets_the_report_in_its_own_form(
    facts: dict[str, str], words: tuple[str, ...], field: str, hooks: Hooks
) -> None:
    output, _ = hooks.run({**facts, "session_id": "s-1", "tool_name": "apply_patch", "tool_input": {}}, *words)
    assert "apply_patch names no file" in output[field]


def test_report_comes_after_other_warnings_of_the_same_call(hooks: Hooks, store: Path) -> None:
    """A call that claims a file and has a part that cannot be read: both texts arrive."""
    call = HookCall("pre-edit", "PreToolUse", "claude", "s-1", "", str(store.parents[1]), problem="a part is unknown")
    before = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "one."}}
    output = add_problem(call, before)
    assert context_of(output) == "one. holdlog: a part is unknown, so this call is not guarded."
    assert before["hookSpecificOutput"]["additionalContext"] == "one."


VSCODE = {"timestamp": "2026-11-27T10:30:00Z", "sessionId": "v-1", "hookEventName": "PreToolUse"}


def test_hook_of_claude_code_that_vscode_runs_guards_the_file(hooks: Hooks, store: Path) -> None:
    path = os.path.join(os.getcwd(), "held.py")
    tool = {"tool_name": "replace_string_in_file", "tool_input": {"filePath": path, "oldString": "x"}}
    output, err = hooks.run(VSCODE | tool)
    assert err == ""
    assert output["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert output["permissionDecision"] == "deny"
    assert "held.py is held by ann" in output["hookSpecificOutput"]["permissionDecisionReason"]
    copilot = {**VSCODE, "hookEventName": "preToolUse", "toolName": "edit", "toolArgs": json.dumps({"path": path})}
    assert hooks.run(copilot)[0]["permissionDecision"] == "deny"
    assert hooks.run(VSCODE | {"tool_name": "create_file", "tool_input": {"filePath": "new.py"}}) == (None, "")
    assert held(store) == ["new.py"]


@pytest.mark.parametrize(
    "given",
    [
        {"timestamp": 1, "toolName": "edit", "toolArgs": "{}"},
        {"sessionId": "v-1", "toolName": "edit", "toolArgs": "{"},
        {"sessionId": "v-1", "hookEventName": "preCompact"},
        {"timestamp": 1, "hookEventName": "PreToolUse"},
    ],
)
def test_hook_of_another_host_in_an_unknown_form_is_ignored_quietly(given: dict[str, Any], hooks: Hooks) -> None:
    assert hooks.run(given) == (None, "")
    start, _ = hooks.run({"session_id": "s-3", "hook_event_name": "SessionStart"})
    assert "failed" not in context_of(start)


def test_hook_of_claude_code_that_cursor_runs_is_denied_in_both_forms(hooks: Hooks) -> None:
    tool = {"tool_name": "Write", "tool_input": {"file_path": "held.py", "content": "x"}}
    output, _ = hooks.run({"conversation_id": "c-1", "cursor_version": "2.4", "hook_event_name": "PreToolUse", **tool})
    assert (output["permission"], output["hookSpecificOutput"]["permissionDecision"]) == ("deny", "deny")
