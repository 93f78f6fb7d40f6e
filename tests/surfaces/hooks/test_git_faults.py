"""Git commands over the work of others when git fails, hangs or is asked much: in this process, with real git."""

import subprocess
import time
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks import dirty
from tests.support.command_line import run_command
from tests.surfaces.hooks import test_git_guard
from tests.surfaces.hooks.test_git_guard import Terminals

sides = test_git_guard.sides


def warned(sides: Terminals, command: str) -> str:
    """What an agent reads about a command that is allowed."""
    output = sides.bash("s-2", command)
    assert output.get("permissionDecision") is None
    return str(output.get("additionalContext", ""))


def program(folder: Path, text: str) -> Path:
    """A folder with a program `git`."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "git").chmod(0o755)
    return folder


def test_agent_is_warned_when_git_is_not_found(
    sides: Terminals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "this git command is not guarded" in warned(sides, "git stash")
    assert "src/a.py is held by" in sides.denied("s-2", "git stash; echo > src/a.py")


def test_agent_is_warned_when_git_fails(
    sides: Terminals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    monkeypatch.setenv("PATH", f"{program(tmp_path / 'bin', 'exit 3')}:/usr/bin:/bin")
    assert "failed (exit code 3); this git command is not guarded" in warned(sides, "git stash")


def test_git_that_hangs_is_asked_once_and_the_rest_is_guarded(
    sides: Terminals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    started = tmp_path / "started"
    hanging = program(tmp_path / "bin", f'case "$*" in *core.fsmonitor*) echo >>{started}; exec sleep 60; esac')
    monkeypatch.setenv("PATH", f"{hanging}:/usr/bin:/bin")
    monkeypatch.setattr(dirty, "GIT_SECONDS", 0.2)
    assert "this git command is not guarded" in warned(sides, "git reset --hard")
    assert started.read_text() == "\n"
    assert "src/a.py is held by" in sides.denied("s-2", "git reset --hard; echo > src/a.py")


@pytest.mark.parametrize("second", ["git -C other stash", "git -C other checkout topic", "git -C other restore a.py"])
def test_denial_of_one_command_remains_if_git_fails_for_the_next(
    sides: Terminals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    (sides.root / "other").mkdir()
    failing = program(tmp_path / "bin", 'case "$PWD" in */other) exit 3; esac; exec /usr/bin/git "$@"')
    monkeypatch.setenv("PATH", f"{failing}:/usr/bin:/bin")
    for command in (f"git stash && {second}", f"{second}; git stash"):
        assert "git stash would take away work of another session: src/a.py" in sides.denied("s-2", command)
    assert "src/a.py (claude-" in sides.denied("s-2", f"git restore src/a.py; {second}")
    assert "this git command is not guarded" in warned(sides, f"git stash list; {second}")


@pytest.mark.parametrize(
    "command",
    [
        "git -C .git worktree remove --force {linked}",
        "cd .git && git branch -D side",
        "git --git-dir={bare} worktree remove --force {other}",
    ],
)
def test_repository_without_a_worktree_around_the_command_is_guarded(
    sides: Terminals,
    tmp_path: Path,
    command: str,
) -> None:
    linked, bare, other = tmp_path / "linked", tmp_path / "bare.git", tmp_path / "other"
    sides.git("worktree", "add", "-q", "-b", "side", str(linked))
    sides.git("clone", "-q", "--bare", str(sides.root), str(bare))
    sides.git("worktree", "add", "-q", "-b", "third", str(other), folder=bare)
    sides.hook("s-1", "SessionStart", folder=linked)
    (bare / "holdlog").mkdir()
    open_holdlog(bare / "holdlog" / "state.db").close()
    sides.hook("s-3", "SessionStart", folder=other)
    assert "work of another session" in sides.denied("s-2", command.format(linked=linked, bare=bare, other=other))


def test_entry_of_the_stash_is_guarded_from_the_folder_of_git(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.run("s-1", "git stash")
    assert "stash@{0}" in sides.denied("s-2", "git -C .git update-ref -d refs/stash")


def test_change_after_what_was_staged_is_still_work(
    sides: Terminals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.git("add", "src/a.py")
    sides.edit("s-1", "src/a.py", "x = 3\n")
    wait_for_the_next_second()
    sides.git("commit", "-qm", "what was staged")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    assert run_command(capsys, "release", "src/a.py")[0] == 0
    assert "src/a.py" in sides.denied("s-2", "git stash")
    sides.git("commit", "-qam", "the rest")
    (sides.root / "src/a.py").chmod(0o755)
    assert sides.bash("s-2", "git stash") == {}
    sides.write("src/a.py", "x = 4\n")
    assert sides.bash("s-2", "git stash") == {}


def wait_for_the_next_second() -> None:
    """Git counts seconds."""
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.01)


def test_many_files_of_nobody_do_not_hide_one_of_a_session(sides: Terminals) -> None:
    for number in range(600):
        sides.write(f"junk/{number % 3}/{number}.txt", "")
    sides.edit("s-1", "junk/1/deep/%x y.py", "x = 2\n")
    assert "junk/1/deep" in sides.denied("s-2", "git add junk")
    assert sides.bash("s-2", "git add junk/0 junk/2") == {}
    sides.git("add", ".")
    assert "junk/1/deep" in sides.denied("s-2", "git commit -m x")


def test_repository_is_asked_once_for_its_folders_in_a_call(
    sides: Terminals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()
    run = subprocess.run

    def counted(command: list[str], **given: object) -> "subprocess.CompletedProcess[bytes]":
        asked.append(" ".join(command))
        return run(command, **given)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(dirty.subprocess, "run", counted)
    assert sides.bash("s-2", "git add own.py\n" * 20) == {}
    assert len([it for it in asked if "rev-parse" in it]) == 1


def test_call_that_ends_after_its_session_does_not_revive_it(sides: Terminals) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.hook("s-1", "SessionEnd", reason="clear")
    assert sides.denied("s-2", "git stash") == ""
    late = {"tool_name": "Edit", "tool_input": {"file_path": str(sides.root / "src/b.py")}}
    sides.hook("s-1", "PostToolUse", **late)
    assert sides.denied("s-2", "git stash") == ""
    sides.hook("s-1", "SessionStart", source="resume")
    assert "src/a.py" in sides.denied("s-2", "git stash")
