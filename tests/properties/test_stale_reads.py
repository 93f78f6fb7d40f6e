"""Two sessions with sub-agents, programs and git change a few files at random, under `stale-reads = "deny"`: an edit is
denied exactly when another session's recorded change would be overwritten unread, and once for each content."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.running import run

PATHS: Final = ("a.py",)
CONTENTS: Final = tuple("x" * length for length in range(1, 4))
"""Each of another size: the clock of a file system may be too coarse to tell two writes apart."""
COMMITTED: Final = "committed"
NEWS: Final = "a command of another session changed a.py"

agents = st.sampled_from([("s-1", ""), ("s-1", "sub"), ("s-2", ""), ("s-2", "sub")])
sessions = st.sampled_from(["s-1", "s-2"])
paths = st.sampled_from(PATHS)
contents = st.sampled_from(CONTENTS)
Agent = tuple[str, str]


@dataclass
class Known:
    """What an agent knows of a file. `is_stale`: another session changed it since, as recorded. `answered`: contents
    about which the agent was warned, or for which it was denied."""

    content: str | None
    is_stale: bool = False
    answered: set[str | None] = field(default_factory=set)


class StaleReads(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.before = os.getcwd()
        self.files: dict[str, str | None] = dict.fromkeys(PATHS, COMMITTED)
        self.known: dict[tuple[Agent, str], Known] = {}
        self.has_reported = False
        """Whether a command has changed a file that another agent holds, which that agent learns at its next call."""

    @initialize()
    def make_repository(self) -> None:
        for path in PATHS:
            self.write(path, COMMITTED)
        (self.folder / "holdlog.toml").write_text('stale-reads = "deny"\n')
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first")
        open_holdlog(self.folder / ".git" / "holdlog" / "state.db").close()
        os.chdir(self.folder)

    def teardown(self) -> None:
        os.chdir(self.before)
        shutil.rmtree(self.folder)

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.folder, check=True)

    def write(self, path: str, content: str | None) -> None:
        if content is None:
            (self.folder / path).unlink(missing_ok=True)
        else:
            (self.folder / path).write_text(content)
        self.files[path] = content

    def hook(self, event: str, agent: Agent, **given: Any) -> dict[str, Any]:
        """The output of a hook for Claude Code."""
        facts = {"session_id": agent[0], "cwd": str(self.folder), "hook_event_name": event, **given}
        text = json.dumps(facts | ({"agent_id": agent[1]} if agent[1] else {}))
        out, err = io.StringIO(), io.StringIO()
        stdin = mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with stdin, redirect_stdout(out), redirect_stderr(err):
            assert run([]) == 0
        assert err.getvalue() == ""
        found: dict[str, Any] = json.loads(out.getvalue() or "{}")
        return found.get("hookSpecificOutput", {})

    def tool(self, event: str, agent: Agent, path: str, tool: str = "Write") -> dict[str, Any]:
        given = {"command": f"rm {path}"} if tool == "Bash" else {"file_path": str(self.folder / path)}
        return self.hook(event, agent, tool_name=tool, tool_input=given)

    @rule(agent=agents, path=paths)
    def read(self, agent: Agent, path: str) -> None:
        if self.files[path] is not None:
            self.tool("PostToolUse", agent, path, "Read")
            self.known[agent, path] = Known(self.files[path])

    @rule(agent=agents, path=paths, content=contents | st.none(), is_last=st.sampled_from([True, True, True, False]))
    def edit(self, agent: Agent, path: str, content: str | None, is_last: bool) -> None:
        before, known = self.files[path], self.known.get((agent, path))
        tool = "Bash" if content is None else "Write"
        output = self.tool("PreToolUse", agent, path, tool)
        reason = output.get("permissionDecisionReason", "")
        if "is held by" in reason:
            return  # the claim of another agent, which comes first
        is_new = known is not None and before != known.content and before not in known.answered
        is_denied = known is not None and known.is_stale and is_new
        assert ("after you read it" in reason) == is_denied, output
        assert ("by a program or a person" in output.get("additionalContext", "")) == (is_new and not is_denied), output
        if known is not None:
            known.answered.add(before)
        if is_denied:
            return
        self.write(path, content)
        self.tool("PostToolUse", agent, path, tool)
        if content != before:
            for (other, where), theirs in self.known.items():
                theirs.is_stale |= where == path and other[0] != agent[0]
        self.known[agent, path] = Known(content)
        if is_last:
            self.end_session(agent[0])  # releases the file for others

    @rule(agent=agents)
    def end_turn(self, agent: Agent) -> None:
        self.hook("SubagentStop" if agent[1] else "Stop", agent)

    @rule(session=sessions)
    def end_session(self, session: str) -> None:
        self.hook("SessionEnd", (session, ""), reason="other")

    @rule(session=sessions)
    def prompt(self, session: str) -> None:
        self.hook("UserPromptSubmit", (session, ""), prompt="go on")

    @rule(path=paths, content=contents)
    def program_writes(self, path: str, content: str) -> None:
        self.write(path, content)

    @rule()
    def checkout(self) -> None:
        self.git("checkout", "-q", "--", ".")
        self.files |= dict.fromkeys(PATHS, COMMITTED)

    @rule(agent=agents)
    def format_all(self, agent: Agent) -> None:
        """A command whose effect cannot be read off it. What it changes of a file that another agent holds is compared
        and recorded, and the agent learns that."""
        given = {"tool_name": "Bash", "tool_input": {"command": "ruff format $(git ls-files)"}}
        news = {"hookEventName": "PreToolUse", "additionalContext": mock.ANY} if self.has_reported else {}
        output = self.hook("PreToolUse", agent, **given)
        assert output in ({}, news), output
        assert NEWS in output.get("additionalContext", NEWS)
        for path, content in self.files.items():
            if content is not None:
                self.write(path, "formatted\n")
        report = self.hook("PostToolUse", agent, **given).get("additionalContext", "")
        if "changed while your command ran" in report:
            self.has_reported = True
            for (other, _), theirs in self.known.items():
                theirs.is_stale |= other[0] != agent[0]


def run_machine(monkeypatch: pytest.MonkeyPatch, examples: int, steps: int, new: bool = False) -> None:
    """`new`: other examples in each run, which may find what the others do not."""
    for name in [it for it in os.environ if it.startswith("HOLDLOG_")] + ["CLAUDE_PROJECT_DIR"]:
        monkeypatch.delenv(name, raising=False)
    checks = [HealthCheck.too_slow]
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not new,
        suppress_health_check=checks,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(StaleReads, settings=limits)


def test_edit_over_an_unread_change_is_denied_once_in_short_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    run_machine(monkeypatch, examples=6, steps=25)


@pytest.mark.check
def test_edit_over_an_unread_change_is_denied_once_in_long_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    run_machine(monkeypatch, examples=150, steps=50)


@pytest.mark.slow
def test_edit_over_an_unread_change_is_denied_once_in_a_thousand_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    run_machine(monkeypatch, examples=1_000, steps=60, new=True)
