"""Shell commands of an agent that was started in a folder without holdlog, over a repository that uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.hooks import test_git_guard
from tests.surfaces.hooks.test_git_guard import Terminals
from tests.unit.operating_system.test_workspaces import repository

sides = test_git_guard.sides
LOADED = """
import io, json, sys
from holdlog.adapters.hooks.running import run
sys.stdin = io.TextIOWrapper(io.BytesIO(sys.argv[1].encode()))
run([])
print(sorted(it for it in sys.modules if it.startswith(("tree_sitter", "holdlog.adapters.hooks.shell"))))
"""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    return folder


REACHING = [
    *("cd ../repo && git stash", "rm ../repo/src/a.py", "git -C ../repo reset --hard", "echo x > ../repo/src/a.py"),
    *(
        "rm -rf ../repo/src",
        "cd .. && rm -rf repo",
        "bash -c 'cd ../repo && git checkout -- .'",
        "ls; mv x ../repo/src/a.py",
    ),
    "cd ../repo && git restore src/a.py",
]


@pytest.mark.parametrize("command", REACHING)
@pytest.mark.parametrize("is_repository", [False, True])
def test_command_over_work_in_another_repository_is_denied(
    sides: Terminals, plain: Path, command: str, is_repository: bool
) -> None:
    folder = repository(plain) if is_repository else plain
    sides.edit("s-1", "src/a.py", "x = 2\n")
    reason = sides.denied("s-2", command, folder=folder)
    assert "src" in reason
    assert "claude-" in reason
    sides.hook("s-1", "SessionEnd", reason="other")
    assert sides.denied("s-2", command, folder=folder) == ""


def test_file_that_a_command_elsewhere_changes_is_claimed_and_recorded(sides: Terminals, plain: Path) -> None:
    sides.run("s-2", "echo x > ../repo/src/a.py", folder=plain)
    assert "src/a.py is held by claude-" in sides.denied("s-1", "rm src/a.py")
    assert "src/a.py" in sides.denied("s-1", "git stash")


@pytest.mark.parametrize(
    "command", ["make", "git status", "git stash", "rm x", "foo ((", "cd repo; git stash", "a|" * 9]
)
def test_other_commands_elsewhere_are_silent(sides: Terminals, plain: Path, command: str) -> None:
    sides.edit("s-1", "src/a.py", "x = 2\n")
    assert sides.bash("s-2", command, folder=plain) == {}
    assert sides.bash("s-2", command, "PostToolUse", folder=plain) == {}


@pytest.mark.parametrize("command", ["ls", "cd src && ls -la | head -3", "cat ../repo/src/a.py; pwd"])
def test_command_elsewhere_that_only_reads_loads_no_reader_of_shells(plain: Path, command: str) -> None:
    given = {"session_id": "s", "hook_event_name": "PreToolUse", "cwd": str(plain), "tool_name": "Bash"}
    text = str({**given, "tool_input": {"command": command}}).replace("'", '"')
    done = subprocess.run([sys.executable, "-c", LOADED, text], cwd=plain, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
