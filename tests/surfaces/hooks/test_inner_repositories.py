"""Commands from the repository around a submodule or a nested clone, which has its own store."""

from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_holdlog
from tests.surfaces.hooks.test_git_guard import Terminals, open_terminals
from tests.unit.operating_system.test_workspaces import git, repository


class Nested(Terminals):
    """Sessions in a repository with a submodule `lib` and a clone `vendor/clone`, and in both."""

    def add_inner(self, has_store: bool = True) -> None:
        origin = repository(self.root.parent / "origin")
        (origin / "a.py").write_text("x = 1\n")
        git(origin, "add", ".")
        git(origin, "commit", "--quiet", "--message", "file")
        git(self.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "lib")
        git(self.root, "commit", "--quiet", "--message", "submodule")
        git(self.root, "clone", "--quiet", str(origin), "vendor/clone")
        for folder in (".git/modules/lib", "vendor/clone/.git") if has_store else ():
            (self.root / folder / "holdlog").mkdir()
            open_holdlog(self.root / folder / "holdlog" / "state.db").close()

    def edit_inside(self, session: str, folder: str, text: str = "x = 2\n") -> None:
        """An edit of `a.py` by an agent that works in an inner repository."""
        self.hook(session, "PreToolUse", self.root / folder, **self._tool(folder))
        (self.root / folder / "a.py").write_text(text)
        self.hook(session, "PostToolUse", self.root / folder, **self._tool(folder))

    def _tool(self, folder: str) -> dict[str, Any]:
        return {"tool_name": "Edit", "tool_input": {"file_path": str(self.root / folder / "a.py")}}


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Nested:
    sides = open_terminals(tmp_path / "repo", monkeypatch, capsys, Nested)
    sides.add_inner()
    return sides


INTO_SUBMODULES = [
    "git restore --recurse-submodules .",
    "git checkout --recurse-submodules -- .",
    "git reset --hard --recurse-submodules",
    "git -c submodule.recurse=true reset --hard",
    "git checkout -f --recurse-submodules",
    "git switch --discard-changes --recurse-submodules main",
    "git submodule foreach git reset --hard",
    "git submodule foreach --recursive 'git checkout -- .'",
    "git submodule --quiet foreach 'git stash -u || :'",
    "git submodule foreach rm a.py",
    "git submodule update --force",
    "git submodule update --init --recursive -f lib",
    "git submodule deinit -f lib",
    "git submodule deinit --force --all",
    "cd src && git restore --recurse-submodules ..",
    "rm -rf lib",
    "find lib -delete",
    "find lib -type f -delete",
    "git rm -rf lib",
]


@pytest.mark.parametrize("command", INTO_SUBMODULES)
def test_command_that_reaches_into_a_submodule_is_denied_over_its_live_work(nested: Nested, command: str) -> None:
    assert nested.denied("s-2", command) == ""
    nested.hook("s-2", "Stop")
    nested.edit_inside("s-1", "lib")
    reason = nested.denied("s-2", command)
    assert "a.py" in reason or "lib" in reason
    assert "claude-" in reason
    nested.hook("s-1", "SessionEnd", nested.root / "lib", reason="other")
    assert nested.denied("s-2", command) == ""


def test_submodule_without_its_own_store_is_guarded_by_the_one_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = open_terminals(tmp_path / "repo", monkeypatch, capsys, Nested)
    sides.add_inner(has_store=False)
    sides.edit_inside("s-1", "lib")
    for command in INTO_SUBMODULES:
        assert "claude-" in sides.denied("s-2", command), command


@pytest.mark.parametrize(
    "command", ["git restore .", "git reset --hard", "git restore --recurse-submodules src", "git submodule update"]
)
def test_command_that_leaves_submodules_alone_is_not_denied(nested: Nested, command: str) -> None:
    nested.edit_inside("s-1", "lib")
    assert nested.denied("s-2", command) == ""


@pytest.mark.parametrize(
    "command", ["git clean -ffd", "git clean -ffdx vendor", "rm -rf vendor", "find vendor -delete"]
)
def test_removal_of_a_nested_clone_is_denied_over_its_live_work(nested: Nested, command: str) -> None:
    assert nested.denied("s-2", command) == ""
    nested.hook("s-2", "Stop")
    nested.edit_inside("s-1", "vendor/clone", "x = 1\n")  # held, and as committed
    reason = nested.denied("s-2", command)
    assert "vendor/clone" in reason
    assert "claude-" in reason
    assert nested.denied("s-2", "git clean -fd") == ""  # git leaves it alone
    nested.hook("s-1", "SessionEnd", nested.root / "vendor/clone", reason="other")
    assert nested.denied("s-2", command) == ""


def test_uncertain_command_that_changes_a_file_of_a_submodule_is_reported(nested: Nested) -> None:
    nested.write("Makefile", "all:\n\techo y > lib/a.py\n")
    nested.edit_inside("s-1", "lib")
    output = nested.run("s-2", "make")
    assert "a.py (held by claude-" in output["additionalContext"]
    news = nested.bash("s-1", "ls", folder=nested.root / "lib")
    assert "a command of another session changed a.py" in news["additionalContext"]
    assert nested.run("s-2", "make") == {}
