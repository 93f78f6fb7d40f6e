"""Folders that an agent moves or copies as a whole: what is below their new names is the agent's work."""

import pytest

from tests.surfaces.hooks import test_git_guard
from tests.surfaces.hooks.test_git_guard import Terminals

sides = test_git_guard.sides


MOVED = {
    "mv src lib2": "lib2",
    "cp -r src lib2": "lib2",
    "cp -a src/ lib2/": "lib2",
    "mkdir -p x && mv src x/": "x/src",
    "mkdir -p x && cp -r src other x": "x/src",
    "mv src lib1 && mv lib1 lib2": "lib2",
    "git mv src lib2": "lib2",
    "install -d x && mv -t x src": "x/src",
}


@pytest.mark.parametrize("command", MOVED)
def test_folder_that_a_session_moved_or_copied_is_its_work(sides: Terminals, command: str) -> None:
    sides.write("other/c.py", "x = 1\n")
    sides.git("add", ".")
    sides.git("commit", "-qm", "other")
    sides.run("s-1", command)
    target = MOVED[command]
    tool = {"tool_name": "Edit", "tool_input": {"file_path": str(sides.root / target / "a.py")}}
    assert sides.hook("s-2", "PreToolUse", **tool).get("permissionDecision") == "deny"
    for taking in ("git stash -u", f"rm -r {target}", f"rm {target}/b.py", f"echo > {target}/new.py"):
        assert f"{target}/" in sides.denied("s-2", taking), taking
    assert sides.bash("s-1", f"rm {target}/b.py") == {}


def test_denial_does_not_recommend_a_folder_that_another_session_copied(sides: Terminals) -> None:
    sides.run("s-1", "cp -r src lib2 && mkdir x && cp -r src x/")
    sides.write("x/own.py", "x = 3\n")
    for taking in ("git add -A", "git clean -fd"):
        before, _, command = sides.denied("s-2", taking).partition(" Run ")
        assert "lib2/" in before
        assert "x/src/" in before
        assert "x/own.py" in command
        assert "lib2/a.py" not in command
        assert "src/a.py" not in command


def test_moved_folder_is_free_once_it_is_committed(sides: Terminals) -> None:
    sides.run("s-1", "mv src lib2")
    sides.hook("s-1", "Stop")
    assert sides.denied("s-2", "rm lib2/a.py") != ""
    sides.run("s-1", "git add -A && git commit -qm moved")
    sides.hook("s-1", "Stop")
    assert sides.denied("s-2", "rm lib2/a.py") == ""


def test_copied_file_is_claimed_as_a_file(sides: Terminals) -> None:
    sides.run("s-1", "cp own.py copy.py && mkdir x && mv own.py x/")
    assert "copy.py is held by" in sides.denied("s-2", "rm copy.py")
    assert "x/own.py is held by" in sides.denied("s-2", "rm x/own.py")


def test_folder_that_a_tool_moves_is_claimed_as_a_folder(sides: Terminals) -> None:
    given = {"source": str(sides.root / "src"), "destination": str(sides.root / "lib2")}
    tool = {"tool_name": "mcp__filesystem__move_file", "tool_input": given}
    assert sides.hook("s-1", "PreToolUse", **tool) == {}
    (sides.root / "src").rename(sides.root / "lib2")
    sides.hook("s-1", "PostToolUse", **tool)
    assert "lib2/" in sides.denied("s-2", "rm lib2/a.py")
