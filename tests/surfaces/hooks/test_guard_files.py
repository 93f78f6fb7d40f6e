"""The files that run the hooks, and git's own data: commands of agents do not remove them silently."""

import subprocess

import pytest

from tests.surfaces.hooks import test_git_guard
from tests.surfaces.hooks.test_git_guard import Terminals

sides = test_git_guard.sides

HOOKS = ".claude/settings.local.json"
SERVER = ".mcp.json"
TEXT = '{"command": "holdlog hook"}\n'


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


GIT_DATA = [
    *(
        "rm .git/refs/stash",
        "rm -f .git/logs/refs/stash",
        "> .git/logs/refs/stash",
        "rm .git/index",
        "rm -rf .git/objects",
    ),
    *(
        "echo x > .git/HEAD",
        "echo x >> .git/config",
        "rm -rf .git/worktrees/x",
        "rm -rf .git/modules/lib",
        "rm -rf .git",
    ),
    *("mv .git/refs .git/old", "rm -r .git/logs", "cp other .git/index", "rm .git/packed-refs", "rm -rf .git/holdlog"),
    *("rm .git/holdlog/state.db", "rm -f .git/holdlog/*", "truncate -s 0 .git/refs/heads/main", "cd .git && rm index"),
    *("find .git/refs -delete", "ln -sf x .git/hooks"),
]
ORDINARY = [
    *("rm -f .git/index.lock", "rm .git/refs/heads/main.lock", "echo x > .git/COMMIT_EDITMSG", "rm .git/MERGE_MSG"),
    *("echo x >> .git/info/exclude", "rm -rf .git/rebase-merge", "rm .git/gc.log", "cat .git/HEAD", "ls .git/objects"),
    *("echo x > docs/HEAD", "rm -rf config", "rm .git/MERGE_HEAD", "echo x > .git/description", "rm x.git/index"),
]


@pytest.mark.parametrize("command", GIT_DATA)
def test_person_is_asked_before_an_agent_changes_the_data_of_git(sides: Terminals, command: str) -> None:
    output = sides.bash("s-1", command)
    assert output["permissionDecision"] == "ask"
    assert ".git" in output["permissionDecisionReason"]
    assert "so a person must agree to this change" in output["permissionDecisionReason"]


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_files_in_the_folder_of_git_are_silent(sides: Terminals, command: str) -> None:
    assert sides.bash("s-1", command) == {}


@pytest.mark.parametrize("name", [".git/refs/stash", ".git/logs/refs/stash", ".git/config", ".git/HEAD", ".git/index"])
def test_person_is_asked_before_an_editing_tool_changes_the_data_of_git(sides: Terminals, name: str) -> None:
    tool = {"tool_name": "Write", "tool_input": {"file_path": str(sides.root / name)}}
    assert sides.hook("s-1", "PreToolUse", **tool)["permissionDecision"] == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git reflog expire --expire=now --all",
            "git reflog expire --expire=all stash",
            "git update-ref -d refs/stash",
        ),
        *("git reflog expire --expire=now --expire-unreachable=now refs/stash", "git reflog delete stash@{0}"),
        *("git reflog delete --rewrite --updateref refs/stash@{0}", "git -c x.y=z update-ref --no-deref -d refs/stash"),
    ],
)
def test_stash_entry_of_another_session_is_not_removed_by_its_log(sides: Terminals, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.run("s-1", "git stash")
    assert "stash@{0} (claude-" in sides.denied("s-2", command)
    assert sides.denied("s-1", command) == ""


def test_own_entry_is_deleted_from_the_log_below_that_of_another_session(sides: Terminals) -> None:
    sides.edit("s-2", "src/b.py", "x = 2\n")
    sides.run("s-2", "git stash")
    sides.edit("s-1", "src/a.py", "x = 2\n")
    sides.run("s-1", "git stash")
    assert sides.denied("s-2", "git reflog delete stash@{1}") == ""
    assert sides.denied("s-2", "git reflog delete stash@{0}") != ""


def test_person_is_asked_each_time(sides: Terminals) -> None:
    for command in ("rm .git/index", "rm .claude/settings.json"):
        assert [sides.bash("s-1", command)["permissionDecision"] for _ in range(3)] == ["ask"] * 3
