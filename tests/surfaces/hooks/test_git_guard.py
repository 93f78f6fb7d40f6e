"""Git commands over the uncommitted work of other sessions, and uncertain commands, as hooks see them: in this process,
with real git."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import MAX_PATHS, HookCall
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.guarding import with_named
from holdlog.adapters.hooks.notes import HookFiles, News
from holdlog.adapters.hooks.running import run
from tests.unit.operating_system.test_workspaces import repository, worktree


class Terminals:
    """Sessions of Claude Code in one repository, by their names."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for name in ("src/a.py", "src/b.py", "own.py"):
            self.write(name, "x = 1\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        open_holdlog(self.store).close()

    @property
    def store(self) -> Path:
        return self.root / ".git" / "holdlog" / "state.db"

    def git(self, *words: str, folder: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=folder or self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def hook(self, session: str, event: str, folder: Path | None = None, **given: Any) -> dict[str, Any]:
        """The output of a hook."""
        cwd = str(folder or self.root)
        output = self.raw({"session_id": session, "hook_event_name": event, "cwd": cwd, **given})
        found: dict[str, Any] = output["hookSpecificOutput"] if output else {}
        return found

    def raw(self, given: dict[str, Any], *words: str) -> dict[str, Any]:
        """All that a hook prints."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(given).encode())))
        assert run(words) == 0
        out, err = self._capsys.readouterr()
        assert err == ""
        found: dict[str, Any] = json.loads(out) if out else {}
        return found

    def edit(self, session: str, name: str, text: str, **given: Any) -> None:
        """An edit with both of its hooks."""
        tool = {"tool_name": "Edit", "tool_input": {"file_path": str(self.root / name)}, **given}
        assert self.hook(session, "PreToolUse", **tool).get("permissionDecision") is None
        self.write(name, text)
        self.hook(session, "PostToolUse", **tool)

    def bash(self, session: str, command: str, event: str = "PreToolUse", **given: Any) -> dict[str, Any]:
        return self.hook(session, event, tool_name="Bash", tool_input={"command": command}, **given)

    def denied(self, session: str, command: str, **given: Any) -> str:
        """Why a command is denied; empty if it is allowed."""
        output = self.bash(session, command, **given)
        return str(output["permissionDecisionReason"]) if output.get("permissionDecision") == "deny" else ""

    def run(self, session: str, command: str, **given: Any) -> dict[str, Any]:
        """Run a command with both of its hooks, and return the output of the second one."""
        assert self.denied(session, command, **given) == ""
        folder = given.get("folder") or self.root
        subprocess.run(["sh", "-c", command], cwd=folder, check=True, capture_output=True)
        return self.bash(session, command, "PostToolUse", **given)


AnyTerminals = TypeVar("AnyTerminals", bound=Terminals)


def open_terminals(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[AnyTerminals]
) -> AnyTerminals:
    """Sessions in a new repository with a store."""
    for name in list(os.environ):
        if name.startswith("HOLDLOG_") or name == "CLAUDE_PROJECT_DIR":
            monkeypatch.delenv(name)
    root = repository(folder)
    monkeypatch.chdir(root)
    return kind(root, monkeypatch, capsys)


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminals:
    return open_terminals(tmp_path / "repo", monkeypatch, capsys, Terminals)


TAKING = [
    "git stash",
    "git reset --hard",
    "git checkout -- .",
    "git checkout -f",
    "git add -A && git commit -m x",
    "git commit -am x",
    "git add src",
    "git clean -fd",
    "git -C src stash",
    "cd src && git reset --hard",
]


@pytest.mark.parametrize("command", TAKING)
def test_command_over_the_dirty_file_of_a_live_session_is_denied(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.edit("s-1", "src/new.py", "x = 2\n")
    sides.write("own.py", "x = 3\n")
    reason = sides.denied("s-2", command)
    assert ("a.py" in reason) or ("new.py" in reason)
    assert "claude-" in reason
    assert reason.endswith("A person can run this in a terminal.")
    assert sides.bash("s-1", command) == {}


def test_denial_names_the_command_that_takes_the_rest(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.write("own.py", "x = 3\n")
    assert "git stash push -- own.py" in sides.denied("s-2", "git stash")
    assert sides.bash("s-2", "git stash push -- own.py") == {}
    assert "git add -- own.py" in sides.denied("s-2", "git add -A")
    assert sides.bash("s-2", "git add own.py && git commit --only -m x -- own.py") == {}


@pytest.mark.parametrize("command", ["cd src && git add -A", "git -C src add -A", "cd src; cd ..; git -C src add -A"])
def test_denial_names_paths_and_commands_as_in_the_folder_of_the_agent(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.write("src/own.py", "x = 3\n")
    reason = sides.denied("s-2", command)
    assert "work of another session: src/a.py (claude-" in reason
    assert "Run `git -C src add" in reason
    narrower = reason.partition("`")[2].partition("`")[0]
    assert sides.denied("s-2", narrower) == ""
    subprocess.run(narrower, shell=True, cwd=sides.root, check=True)
    assert sides.git("diff", "--cached", "--name-only") == "src/own.py\n"


@pytest.mark.parametrize(
    "command", ["git checkout -b new", "git switch -c new", "git checkout -B new HEAD", "git switch --detach"]
)
def test_new_branch_at_head_moves_no_file_and_is_silent(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", command) == {}
    assert "src/a.py" in sides.bash("s-2", "git switch -c new main~0")["additionalContext"]


@pytest.mark.parametrize("name", ["fresh/deep/x.py", "fresh/caf\xe9 \u26a0\ufe0f.md", "fresh/a%b [c].py"])
def test_untracked_file_of_another_session_is_guarded_in_its_folder(sides: Terminals, name: str) -> None:
    sides.edit("s-1", name, "x = 2\n")
    sides.write("fresh/own.py", "x = 3\n")
    for command in ("git clean -fd", "git stash -u", "git add -A", "git add fresh", f"git add '{name}'"):
        assert "work of another session: fresh/" in sides.denied("s-2", command)
    assert sides.bash("s-2", "git stash") == {}
    assert sides.bash("s-2", "git add fresh/own.py") == {}
    assert "fresh/own.py" in sides.denied("s-2", "git add fresh")


@pytest.mark.parametrize(
    "command", ["git status", "git diff", "git log", "git stash list", "git commit -m x", "git push"]
)
def test_command_that_concerns_nothing_of_others_runs_silently(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", command) == {}
    assert sides.bash("s-2", command, "PostToolUse") == {}


def test_dirty_files_of_a_person_and_clean_held_files_deny_nothing(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 1\n")  # held, and as committed
    sides.write("own.py", "x = 3\n")
    assert [sides.bash("s-2", command) for command in TAKING if command != "git add src"] == [{}] * (len(TAKING) - 1)


def test_file_that_a_command_names_is_denied_like_an_edit_while_it_is_held(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 1\n")
    for command in ("git restore src/a.py", "git checkout -- src/a.py", "git rm src/a.py", "git mv src/a.py b.py"):
        assert "src/a.py is held by claude-" in sides.denied("s-2", command)
    assert sides.bash("s-2", "git restore src/b.py") == {}


def test_command_that_names_too_many_files_is_reported_as_unguarded(sides: Terminals) -> None:
    command = GitCommand(("rm", *(f"{number}.py" for number in range(MAX_PATHS + 1))), str(sides.root))
    call = HookCall("pre-edit", "PreToolUse", "claude", "s-1", "", str(sides.root), git=(command,))
    assert with_named(call).problem == "a git command names more than 1,000 files"
    assert len(with_named(call._replace(git=(command._replace(words=command.words[:-1]),))).paths) == MAX_PATHS


def test_moving_head_below_work_of_others_is_a_warning(sides: Terminals) -> None:
    sides.git("branch", "side")
    assert sides.bash("s-2", "git switch side") == {}
    sides.edit("s-1", "src/a.py", "x = 2\n")
    output = sides.bash("s-2", "git switch side")
    assert "permissionDecision" not in output
    assert "src/a.py (claude-" in output["additionalContext"]


def test_files_of_an_ended_session_deny_nothing_and_a_commit_names_them(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.hook("s-1", "SessionEnd", reason="other")
    assert sides.bash("s-2", "git stash") == {}
    output = sides.bash("s-2", "git commit -am x")
    assert "permissionDecision" not in output
    assert "takes in changes of an ended session: src/a.py (claude-" in output["additionalContext"]
    sides.hook("s-1", "SessionStart", source="resume")
    assert sides.denied("s-2", "git stash") != ""


def test_main_agent_and_its_sub_agents_are_one_party(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-1", "git stash", agent_id="sub-1") == {}
    sides.edit("s-1", "src/b.py", "x = 2\n", agent_id="sub-1")
    assert "src/b.py" in sides.denied("s-1", "git stash")  # it holds the file
    sides.hook("s-1", "SubagentStop", agent_id="sub-1")
    assert sides.bash("s-1", "git stash") == {}
    assert "src/b.py" in sides.denied("s-2", "git stash")


def test_worktrees_are_guarded_each_by_itself(sides: Terminals) -> None:
    linked = worktree(sides.root, "../linked")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    tool = {"tool_name": "Edit", "tool_input": {"file_path": str(linked / "src/b.py")}}
    sides.hook("s-3", "PreToolUse", folder=linked, **tool)
    (linked / "src/b.py").write_text("x = 3\n")
    sides.hook("s-3", "PostToolUse", folder=linked, **tool)
    (linked / "src/a.py").write_text("x = 3\n")
    assert sides.denied("s-2", "git -C ../linked checkout -- src/a.py") == ""
    assert "src/b.py" in sides.denied("s-2", "git stash", folder=linked)
    assert "src/b.py" in sides.denied("s-2", "git -C ../linked stash")
    assert "src/a.py" in sides.denied("s-2", "git stash")
    assert "src/b.py" not in sides.denied("s-2", "git stash")
    assert sides.bash("s-1", "git stash") == {}


def test_worktree_and_branch_of_a_live_session_are_not_removed(sides: Terminals) -> None:
    linked = worktree(sides.root, "../linked")
    sides.git("switch", "-qc", "topic", folder=linked)
    assert sides.bash("s-2", "git worktree remove ../linked") == {}
    tool = {"tool_name": "Edit", "tool_input": {"file_path": str(linked / "src/b.py")}}
    sides.hook("s-3", "PreToolUse", folder=linked, **tool)
    for command in ("git worktree remove --force ../linked", "git worktree remove linked", "git branch -D topic"):
        assert "claude-" in sides.denied("s-2", command)
    assert sides.bash("s-3", "git worktree remove --force ../linked") == {}
    sides.hook("s-3", "SessionEnd", folder=linked, reason="other")
    assert sides.bash("s-2", "git worktree remove --force ../linked") == {}


def test_stash_entry_belongs_to_the_session_that_made_it(sides: Terminals) -> None:
    sides.write("own.py", "x = 3\n")
    sides.git("stash")  # a person
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.run("s-1", "git stash")
    for command in ("git stash pop", "git stash drop stash@{0}", "git stash clear"):
        assert "stash@{0} (claude-" in sides.denied("s-2", command)
    assert sides.denied("s-2", "git stash drop stash@{1}") == ""
    assert sides.bash("s-1", "git stash pop") == {}
    linked = worktree(sides.root, "../linked")
    assert "stash@{0}" in sides.denied("s-2", "git stash pop", folder=linked)  # all worktrees share the stash
    (linked / "own.py").write_text("x = 4\n")
    assert sides.denied("s-2", "git stash && git stash pop", folder=linked) == ""
    sides.hook("s-1", "SessionEnd", reason="other")
    assert sides.denied("s-2", "git stash pop") == ""


CLIENTS = {
    "claude": {"session_id": "X", "hook_event_name": "PreToolUse"},
    "codex": {"session_id": "X", "hook_event_name": "PreToolUse", "turn_id": "t"},
    "cursor": {"conversation_id": "X", "hook_event_name": "preToolUse", "cursor_version": "2.4"},
    "opencode": {"session_id": "X", "agent_id": "X", "client": "opencode"},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_gets_the_denial_and_the_question_in_its_form(sides: Terminals, client: str) -> None:
    def call(session: str, tool: str, is_after: bool = False, **given: Any) -> dict[str, Any]:
        fields = json.loads(json.dumps(CLIENTS[client]).replace("X", session))
        is_named = "hook_event_name" in fields
        if is_named and is_after:
            fields["hook_event_name"] = {"P": "PostToolUse", "p": "postToolUse"}[fields["hook_event_name"][0]]
        words = () if is_named else ("post-edit" if is_after else "pre-edit",)
        return sides.raw({**fields, "cwd": str(sides.root), "tool_name": tool, "tool_input": given}, *words)

    path = str(sides.root / "src/a.py")
    assert call("s-1", "Edit", file_path=path) == {}
    sides.write("src/a.py", "x = 2\n")
    call("s-1", "Edit", is_after=True, file_path=path)
    text = json.dumps(call("s-2", "Bash", command="git stash"))
    assert '"deny"' in text
    assert "src/a.py (" in text
    assert call("s-1", "Bash", command="git stash") in ({}, {"after": True})
    text = json.dumps(call("s-2", "Write", file_path=str(sides.root / ".claude" / "settings.json")))
    assert {"claude": '"ask"', "codex": '"systemMessage"', "cursor": '"ask"', "opencode": '"deny"'}[client] in text
    assert ".claude/settings.json runs the hooks" in text


@pytest.mark.parametrize(("mode", "is_warned"), [("warn", True), ("off", False)])
def test_policy_relaxes_the_guard_of_git(sides: Terminals, mode: str, is_warned: bool) -> None:
    sides.write("holdlog.toml", f'git = "{mode}"\n')
    sides.git("add", "holdlog.toml")
    sides.git("commit", "-qm", "policy")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    output = sides.bash("s-2", "git stash")
    assert "permissionDecision" not in output
    assert ("src/a.py" in output.get("additionalContext", "")) is is_warned


def test_agent_that_edits_the_hooks_files_asks_a_person(sides: Terminals) -> None:
    for name in (".claude/settings.json", ".claude/settings.local.json", ".cursor/hooks.json", ".codex/config.toml"):
        tool = {"tool_name": "Write", "tool_input": {"file_path": str(sides.root / name)}}
        output = sides.hook("s-1", "PreToolUse", **tool)
        assert output["permissionDecision"] == "ask"
        assert name in output["permissionDecisionReason"]
    assert sides.bash("s-1", "rm -rf .claude")["permissionDecision"] == "ask"
    assert sides.bash("s-1", "echo exit 0 > .git/hooks/pre-commit")["permissionDecision"] == "ask"
    assert sides.denied("s-1", "echo > holdlog.toml") != ""
    assert "permissionDecision" not in sides.bash("s-1", "echo > docs/.claude.json")


def test_uncertain_command_that_changes_a_held_file_is_reported_to_both(sides: Terminals) -> None:
    sides.write("Makefile", "all:\n\techo y > src/a.py\n")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.edit("s-1", "src/b.py", "x = 2\n")
    output = sides.run("s-2", "make")
    assert "src/a.py (held by claude-" in output["additionalContext"]
    assert "src/b.py" not in output["additionalContext"]
    news = sides.bash("s-1", "ls")
    assert "a command of another session changed src/a.py (by claude-" in news["additionalContext"]
    assert sides.bash("s-1", "ls") == {}
    assert sides.run("s-2", "make") == {}  # nothing differs
    engine = open_holdlog(sides.store)
    changes = engine.read(engine.requests.questions.file_changes("src/a.py")).changes
    engine.close()
    assert [it.by_command for it in changes] == [True, None]
    assert changes[0].agent != changes[1].agent


def test_uncertain_command_notes_nothing_if_no_other_session_holds_anything(sides: Terminals) -> None:
    sides.write("Makefile", "all:\n\techo y > src/a.py\n")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.run("s-1", "make") == {}
    sides.hook("s-1", "SessionEnd", reason="other")
    assert sides.bash("s-2", "make") == {}
    assert not any(HookFiles(sides.store).read(it).before for it in HookFiles(sides.store).all_sessions())


def test_change_that_the_holders_hook_recorded_is_not_that_of_a_command(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", "make") == {}
    sides.edit("s-1", "src/a.py", "x = 3\n")
    assert sides.bash("s-2", "make", "PostToolUse") == {}


def test_news_that_arrive_while_others_are_read_are_not_lost(tmp_path: Path) -> None:
    files = HookFiles(tmp_path / "state.db")
    files.note_news("s-1", "ann", News("a.py", "bob"))
    other = threading.Thread(target=files.note_news, args=("s-1", "ann", News("b.py", "bob", "staged")))

    def is_read(agent: str) -> bool:
        other.start()
        other.join(0.2)  # it waits for the lock
        return True

    assert files.take_news("s-1", is_read) == [News("a.py", "bob")]
    other.join()
    assert files.take_news("s-1", lambda agent: True) == [News("b.py", "bob", "staged")]
