"""The files that run the hooks, and git's own data: commands of agents do not remove them silently."""

import subprocess
from pathlib import Path

import pytest

from tests.surfaces.hooks.test_git_guard import Terminals, open_terminals

HOOKS = ".claude/settings.local.json"
SERVER = ".mcp.json"
TEXT = '{"command": "holdlog hook"}\n'


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminals:
    return open_terminals(tmp_path / "repo", monkeypatch, capsys, Terminals)


def guarded(sides: Terminals, ignored: str = "") -> Terminals:
    """With files of holdlog that git does not track, and something to clean."""
    sides.write(HOOKS, TEXT)
    sides.write(SERVER, TEXT)
    sides.write(".gitignore", f"*.log\n{ignored}")
    sides.git("add", ".gitignore")
    sides.git("commit", "-qm", "ignore")
    sides.write("build/a.log", "x\n")
    sides.write("own.py", "x = 3\n")
    return sides


REMOVING = [
    *("git clean -fdx", "git clean -ffdx", "git clean -fdX", "git -C src clean -fdx ..", "git stash -a"),
    "git stash push --all -m x",
]


@pytest.mark.parametrize("command", REMOVING)
@pytest.mark.parametrize("ignored", [".claude/\n.mcp.json\n", ".claude/settings.local.json\n.mcp.json\n"])
def test_command_that_removes_the_hooks_files_is_denied(sides: Terminals, command: str, ignored: str) -> None:
    reason = guarded(sides, ignored).denied("s-1", command)
    assert "would take away files that guard the agents: " in reason
    assert HOOKS in reason
    assert SERVER in reason
    narrower = reason.partition("`")[2].partition("`")[0]
    assert sides.denied("s-1", narrower) == ""
    subprocess.run(narrower, shell=True, cwd=sides.root, check=True, capture_output=True)
    assert [(sides.root / it).read_text() for it in (HOOKS, SERVER)] == [TEXT, TEXT]
    assert (sides.root / "build/a.log").exists() is False


@pytest.mark.parametrize("command", ["git clean -fd", "git stash -u", "git stash -a"])
def test_hooks_files_that_git_does_not_ignore_are_guarded_too(sides: Terminals, command: str) -> None:
    assert HOOKS in guarded(sides).denied("s-1", command)


def test_hooks_that_are_not_yet_committed_survive_a_reset(sides: Terminals) -> None:
    sides.write(".claude/settings.json", "{}\n")
    sides.git("add", ".")
    sides.git("commit", "-qm", "settings")
    sides.write(".claude/settings.json", TEXT)
    for command in ("git reset --hard", "git stash", "git checkout -f", "git checkout ."):
        assert ".claude/settings.json" in sides.denied("s-1", command)
    sides.git("commit", "-qam", "hooks")
    sides.write(".claude/settings.json", f"{TEXT} ")
    assert sides.bash("s-1", "git reset --hard") == {}


def test_commands_that_leave_the_hooks_files_run_silently(sides: Terminals) -> None:
    guarded(sides, ".claude/\n.mcp.json\n")
    for command in (
        "git stash",
        "git stash -u",
        "git clean -fd",
        "git clean -fdX build",
        "git clean -fdx -e .claude -e .mcp.json",
    ):
        assert sides.bash("s-1", command) == {}
    (sides.root / SERVER).write_text("{}")
    (sides.root / HOOKS).write_text("{}")
    assert sides.bash("s-1", "git clean -fdx") == {}


def test_exclusions_of_clean_count_as_in_git(sides: Terminals) -> None:
    guarded(sides, ".claude/\n.mcp.json\n")
    assert sides.denied("s-1", "git clean -fdX -e .claude -e .mcp.json") != ""  # it removes these, too
    sides.edit("s-1", "fresh.py", "x = 2\n")
    assert "fresh.py" in sides.denied("s-2", "git clean -fX -e fresh.py build fresh.py")


def test_denial_over_work_of_others_does_not_recommend_the_hooks_files(sides: Terminals) -> None:
    guarded(sides, ".claude/\n.mcp.json\n")
    sides.edit("s-1", "fresh.py", "x = 2\n")
    reason = sides.denied("s-2", "git clean -fdx")
    assert "work of another session: fresh.py (claude-" in reason
    assert "settings.local.json" not in reason.partition("Run ")[2]
    assert ".mcp.json" not in reason.partition("Run ")[2]
