"""Hooks over real git repositories: submodules, worktrees, and files whose names cannot be claimed."""

import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.repositories import UsedRepository, split
from holdlog.adapters.hooks.running import run
from tests.support.command_line import run_command
from tests.support.slow import check
from tests.unit.operating_system.test_workspaces import git, repository, worktree

LONG = "/".join(["p" * 100] * 5) + "/" + "f" * 60 + ".py"
ODD = ["docs/\u26a0\ufe0f notes.md", os.fsdecode(b"caf\xe9.py"), LONG]
ODD += check("Screenshot 9.41\u202fAM.png", "a\nb.py", " blank ", "back\\slash?.py")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a store and `src/a.py`."""
    for name in [it for it in os.environ if it.startswith(("HOLDLOG_", "CLAUDE_", "CODEX_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = with_file(repository(tmp_path / "repo"))
    monkeypatch.chdir(path)  # hooks change it
    return with_store(path)


def with_file(root: Path) -> Path:
    (root / "src").mkdir()
    (root / "src/a.py").write_text("x = 1\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "file")
    return root


def with_store(root: Path) -> Path:
    folder = root / ".git/holdlog"
    folder.mkdir(parents=True)
    open_holdlog(folder / "state.db").close()
    return root


def submodule(repo: Path) -> Path:
    """A submodule `lib` without a store."""
    origin = with_file(repository(repo.parent / "origin"))
    git(repo, "submodule", "--quiet", "add", str(origin), "lib")
    git(repo, "commit", "--quiet", "--message", "submodule")
    return repo / "lib"


def store_of(lib: Path) -> Path:
    return lib.parent / ".git/modules" / lib.name / "holdlog/state.db"


def own_store(lib: Path) -> Path:
    store_of(lib).parent.mkdir()
    open_holdlog(store_of(lib)).close()
    return lib


def call(session: str, folder: Path, event: str, *paths: object, **more: object) -> tuple[dict[str, Any], str]:
    """The output of a hook in this process, and what it reports."""
    given = {"session_id": session, "cwd": str(folder), "paths": list(map(str, paths)), **more}
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(given).encode()))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            assert run([event]) == 0
    finally:
        sys.stdin = before
    return json.loads(out.getvalue() or "{}"), err.getvalue()


def edit(session: str, folder: Path, *paths: object) -> str | None:
    """Why an edit is denied; None if it is allowed."""
    output, report = call(session, folder, "pre-edit", *paths)
    assert report == ""
    return output.get("reason")


def held(store: Path) -> list[str]:
    engine = open_holdlog(store)
    try:
        return [it.resource for it in engine.read(engine.requests.claims.board()).claims]
    finally:
        engine.close()


def main_store(repo: Path) -> Path:
    return repo / ".git/holdlog/state.db"


# --- file names


@pytest.mark.parametrize("name", ODD, ids=lambda it: ascii(it)[:24])
def test_second_session_is_denied_a_file_whatever_its_name(repo: Path, name: str) -> None:
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert edit("one", repo, path) is None
    reason = edit("two", repo, path)
    assert reason is not None
    assert reason.isprintable()
    assert edit("one", repo, path) is None
    assert edit("two", repo, repo / "docs" / "other.md") is None
    assert edit("two", repo, path.parent) is not None or path.parent == repo


@pytest.mark.parametrize("name", ODD, ids=lambda it: ascii(it)[:24])
def test_every_command_accepts_the_name_that_claims_prints(
    repo: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert edit("one", repo, path) is None
    path.write_text("y")
    call("one", repo, "post-edit", path)
    git(repo, "add", "--all")
    os.chdir(repo)
    code, out, _ = run_command(capsys, "claims", "--json")
    (claim,) = json.loads(out)["claims"]
    resource = claim["resource"]
    for words in (("status", resource), ("blame", resource), ("history", resource), ("log", "--resource", resource)):
        code, out, err = run_command(capsys, *words)
        assert (code, claim["held_by"] in out) == (0, True), (words, err)
    named = [] if "\\" in name else [("check", f"./{name}")]  # agents write folders with it
    for words in (("check", resource), ("check", str(path)), *named, ("check", "--staged")):
        code, _, err = run_command(capsys, *words, "--agent", "bob")
        assert (code, f"held by {claim['held_by']}" in err) == (1, True), words
    assert run_command(capsys, "wait", resource, "--timeout", "0")[0] == 1
    code, out, _ = run_command(capsys, "blame", str(path))
    assert claim["held_by"] in out
    assert run_command(capsys, "release", resource, "--force", "--reason", "test")[0] == 0
    assert run_command(capsys, "claim", resource, "--agent", "bob")[0] == 0
    assert edit("one", repo, path) is not None
    if name != LONG and "\\" not in name:
        code, _, err = run_command(capsys, "claim", f"./{name}", "--agent", "bob")
        assert (code, "must" in err) == (2, True)


def test_file_that_cannot_be_claimed_leaves_no_other_file_unguarded(repo: Path) -> None:
    tree = worktree(repo, f"../{'木' * 60}")  # its name alone has more characters than that of a resource
    assert edit("one", repo, repo / "src/a.py") is None
    output, report = call("two", repo, "pre-edit", tree / "src/a.py", repo / "src/a.py")
    assert output["decision"] == "deny"
    output, report = call("two", repo, "pre-edit", tree / "src/a.py", repo / "b.py")
    assert (output, report) == (
        {},
        "holdlog hook: resource: must have at most 512 characters; the edit is not guarded\n",
    )
    assert held(main_store(repo)) == ["b.py", "src/a.py"]
    output, _ = call("three", repo, "start")
    assert "1 hook call failed" in output["context"]


# --- repositories inside others


def test_agents_inside_and_outside_of_a_submodule_exclude_each_other(repo: Path) -> None:
    lib = own_store(submodule(repo))
    assert edit("outer", repo, lib / "src/a.py") is None
    assert (held(main_store(repo)), held(store_of(lib))) == ([], ["src/a.py"])
    assert edit("inner", lib, lib / "src/a.py") is not None
    assert edit("inner", lib, lib / "b.py") is None
    reason = edit("outer", repo, "lib/b.py")
    assert reason is not None
    assert reason.endswith("The repository in lib has its own store: run holdlog there.")


def test_agent_in_a_submodule_is_denied_files_of_the_repository_around_it(repo: Path) -> None:
    lib = own_store(submodule(repo))
    assert edit("outer", repo, "src/a.py") is None
    reason = edit("inner", lib, repo / "src/a.py")
    assert reason is not None
    assert reason.endswith("The repository in .. has its own store: run holdlog there.")
    assert edit("inner", lib, "src/a.py") is None


def test_submodule_without_a_store_belongs_to_the_repository_around_it(repo: Path) -> None:
    lib = submodule(repo)
    assert edit("inner", lib, "src/a.py") is None
    assert held(main_store(repo)) == ["lib/src/a.py"]
    assert edit("outer", repo, "lib/src/a.py") is not None
    call("inner", lib, "session-end")
    assert edit("outer", repo, "lib/src/a.py") is None
    assert edit("inner", lib, "src/a.py") is not None


def test_agent_outside_of_every_repository_is_denied_a_held_file(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert edit("one", repo, "src/a.py") is None
    assert edit("two", tmp_path / "plain", repo / "src/a.py") is not None
    given = {"tool_name": "Edit", "tool_input": {"file_path": str(repo / "src/a.py")}, "hook_event_name": "PreToolUse"}
    output, _ = call("two", tmp_path / "plain", "pre-edit", **given)
    assert output["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_denied_call_releases_what_it_claimed_in_other_stores(repo: Path) -> None:
    lib = own_store(submodule(repo))
    assert edit("inner", lib, "b.py") is None
    assert edit("outer", repo, "src/a.py", "lib/src/a.py", "lib/b.py") is not None
    assert (held(main_store(repo)), held(store_of(lib))) == ([], ["b.py"])
    assert edit("outer", repo, "lib/src/a.py", "src/a.py") is None
    assert (held(main_store(repo)), held(store_of(lib))) == (["src/a.py"], ["b.py", "src/a.py"])


@pytest.mark.parametrize("event", ["turn-end", "session-end"])
def test_end_releases_claims_in_every_store(repo: Path, event: str) -> None:
    lib = own_store(submodule(repo))
    assert edit("outer", repo, "src/a.py", "lib/src/a.py") is None
    call("outer", repo, event)
    assert (held(main_store(repo)), held(store_of(lib))) == ([], [])


def test_change_of_a_file_of_a_submodule_is_recorded_in_its_store(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lib = own_store(submodule(repo))
    assert edit("outer", repo, "lib/src/a.py") is None
    (lib / "src/a.py").write_text("x = 2\n")
    call("outer", repo, "post-edit", lib / "src/a.py")
    os.chdir(lib)
    assert "agent-" in run_command(capsys, "blame", "src/a.py")[1]


def break_pointer(lib: Path) -> None:
    (lib / ".git").write_text("gitdir: ../gone\n")


def empty_folder(lib: Path) -> None:
    (lib / ".git").unlink()
    (lib / ".git").mkdir()


def link_to_rubbish(lib: Path) -> None:
    (lib / ".git").unlink()
    (lib / ".git").symlink_to("loop")
    (lib / "loop").symlink_to(".git")


@pytest.mark.parametrize("damage", [break_pointer, empty_folder, link_to_rubbish])
def test_broken_repository_is_guarded_by_the_one_around_it(repo: Path, damage: Callable[[Path], None]) -> None:
    lib = own_store(submodule(repo))
    damage(lib)
    assert edit("one", repo, "lib/src/a.py") is None
    assert held(main_store(repo)) == ["lib/src/a.py"]
    assert edit("two", repo, "lib/src/a.py") is not None


def test_link_into_a_submodule_is_its_file(repo: Path) -> None:
    lib = own_store(submodule(repo))
    (repo / "link.py").symlink_to("lib/src/a.py")
    assert edit("outer", repo, "link.py") is None
    assert edit("inner", lib, "src/a.py") is not None


def test_removal_of_a_repository_is_denied_over_each_file_that_others_hold(repo: Path) -> None:
    lib = own_store(submodule(repo))
    tree = worktree(repo, "../tree")
    assert edit("inner", lib, "src/a.py") is None
    assert edit("outer", repo, lib) is not None
    assert edit("other", tree, "src/a.py") is None
    assert edit("outer", repo, tree) is not None
    assert edit("outer", tree, repo) is not None
    call("inner", lib, "session-end")
    assert edit("outer", tree, repo) is None
    assert edit("inner", lib, "src/a.py") is not None
    assert edit("other", repo, "src/a.py") is not None


def test_removal_of_a_folder_is_denied_over_files_of_repositories_inside(repo: Path) -> None:
    lib = own_store(submodule(repo))
    (repo / "vendor").mkdir()
    git(repo, "mv", "lib", "vendor/lib")
    tree = worktree(repo, ".claude/worktrees/x")
    assert edit("inner", repo / "vendor/lib", "src/a.py") is None
    assert edit("other", tree, "b.py", "src/a.py") is None
    assert edit("outer", repo, "vendor") is not None
    assert edit("outer", repo, ".claude") is not None
    assert edit("outer", repo, "src") is None
    assert held(store_of(lib)) == ["src/a.py"]


def test_git_command_belongs_to_the_repository_in_which_it_works(repo: Path) -> None:
    lib = own_store(submodule(repo))
    given = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": str(repo)}
    options = [("-c", "a=b", "-C", "lib"), ("--no-pager", "-C", "lib"), ("-C", "lib", "-C", "src")]
    commands = [GitCommand((*it, "stash"), str(repo)) for it in [(), *options]]
    commands.append(GitCommand(("-C",), str(repo)))
    call = parse({**given, "tool_input": {"command": "true"}}, None)
    assert call is not None
    own = UsedRepository(main_store(repo))
    parts = split(call._replace(git=tuple(commands)), own, os.environ)
    assert [(it.root, [commands.index(command) for command in part.git]) for it, part in parts] == [
        ("", [0, 4]),
        (str(lib), [1, 2, 3]),
    ]


def test_named_store_is_used_for_every_repository(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_store(submodule(repo))
    monkeypatch.setenv("HOLDLOG_DB", str(main_store(repo)))
    assert edit("outer", repo, "lib/src/a.py") is None
    assert held(main_store(repo)) == ["lib/src/a.py"]


def test_worktree_inside_the_main_one_shares_its_store(repo: Path) -> None:
    tree = worktree(repo, ".claude/worktrees/x")
    assert edit("outer", repo, tree / "src/a.py") is None
    assert held(main_store(repo)) == ["file://x/src/a.py"]
    assert edit("inner", tree, "src/a.py") is not None


def test_claim_of_a_file_of_a_submodule_hints_at_its_store(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_store(submodule(repo))
    code, out, _ = run_command(capsys, "claim", "lib/src/a.py", "--agent", "ann", "--json")
    assert (code, "This file belongs to a repository inside this one" in json.loads(out)["hint"]) == (0, True)
    assert "hint" not in json.loads(run_command(capsys, "claim", "src/a.py", "--agent", "ann", "--json")[1])


# --- worktrees


def test_edit_names_once_who_edits_the_file_in_another_worktree(repo: Path) -> None:
    tree = worktree(repo, "../tree")
    assert edit("one", tree, "src/a.py") is None
    output, _ = call("two", repo, "pre-edit", "src/a.py")
    assert output["warning"].startswith("holdlog: src/a.py is also claimed by agent-")
    assert " in tree: another copy of the file." in output["warning"]
    call("two", repo, "turn-end")
    assert call("two", repo, "pre-edit", "src/a.py") == ({}, "")
    assert call("two", repo, "pre-edit", "b.py") == ({}, "")
    call("two", repo, "session-end")
    assert "also claimed by agent-" in call("three", repo, "pre-edit", "src/a.py")[0]["warning"]


def test_agent_in_two_worktrees_is_not_warned_about_itself(repo: Path) -> None:
    tree = worktree(repo, "../tree")
    assert call("one", tree, "pre-edit", "src/a.py") == ({}, "")
    assert call("one", repo, "pre-edit", "src/a.py") == ({}, "")


def test_claim_in_a_removed_worktree_is_shown_as_gone_and_can_be_taken(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = worktree(repo, "../tree")
    assert edit("one", tree, "src/a.py") is None
    os.chdir(repo)
    assert "gone" not in run_command(capsys, "claims")[1]
    git(repo, "worktree", "remove", "--force", str(tree))
    name = "file://tree/src/a.py"
    assert ", gone" in run_command(capsys, "claims")[1]
    assert f"the folder of 1 claim is gone, the first: {name}" in run_command(capsys, "doctor")[1]
    for words in (("status", name), ("history", name), ("log", "--resource", name), ("check", name)):
        code, out, err = run_command(capsys, *words)
        assert (code, "agent-" in out + err) == (0, True), words
    assert run_command(capsys, "release", name, "--force", "--reason", "removed")[0] == 0
    assert held(main_store(repo)) == []
