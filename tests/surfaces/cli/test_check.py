"""`holdlog check` in real git repositories: what blocks a commit, what only warns, and which names git may have."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.support.command_line import run_command
from tests.unit.operating_system.test_workspaces import git, repository, worktree

ANN = {"agent": "ann"}
TIME = r"\d\d:\d\d:\d\d\.\d{3} UTC"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files `a.py` and `src/b.py`, in which the commands run."""
    for name in ("HOLDLOG_DB", "HOLDLOG_AGENT", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in [it for it in os.environ if it.startswith("GIT_")]:
        monkeypatch.delenv(name)
    path = repository(tmp_path / "repo")
    (path / "src").mkdir()
    for name in ("a.py", "src/b.py"):
        (path / name).write_text(f"{name}\n" * 20)
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "files")
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def other(repo: Path) -> Iterator[StateStore]:
    """A live session on the repository's store."""
    (repo / ".git" / "holdlog").mkdir(0o700)
    with StateStore(repo / ".git" / "holdlog" / "state.db") as store:
        yield store


def staged(repo: Path, *names: str) -> None:
    for name in names:
        (repo / name).write_text("changed\n")
    git(repo, "add", "--all")


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run_command(capsys, "check", *words, "--json")
    return code, json.loads(out)


def paths_held(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, bool]]:
    _, result = checked(capsys, *words)
    return [(it["path"], it["blocks"]) for it in result["files"]]


def test_staged_file_of_another_live_session_blocks_a_known_caller(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim("a.py", **ANN)
    staged(repo, "a.py", "src/b.py")
    code, out, err = run_command(capsys, "check", "--staged", "--agent", "bob")
    line = (
        rf"holdlog: a\.py: held by ann, since {TIME} \(\d+ s\); queue for it: holdlog claim a\.py"
        r" --agent bob --wait 50, or leave it out: git restore --staged a\.py\n"
    )
    assert (code, out) == (1, "")
    assert re.fullmatch(line, err)


def test_environment_names_the_caller_of_a_hook(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other.claim("a.py", **ANN)
    staged(repo, "a.py")
    monkeypatch.setenv("HOLDLOG_AGENT", "bob")
    assert run_command(capsys, "check", "--staged")[0] == 1
    monkeypatch.setenv("HOLDLOG_AGENT", "ann")
    assert run_command(capsys, "check", "--staged") == (0, "", "")


def test_unknown_caller_is_warned_and_blocked_only_if_strict(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim("a.py", **ANN)
    staged(repo, "a.py")
    code, out, err = run_command(capsys, "check", "--staged")
    assert (code, out) == (0, "")
    first, second = err.splitlines()
    assert first.startswith("holdlog: warning: a.py: held by ann, since")
    assert "set HOLDLOG_AGENT" in second
    assert run_command(capsys, "check", "--staged", "--strict")[0] == 1


def test_missing_store_warns_and_is_not_created(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged(repo, "a.py")
    code, out, err = run_command(capsys, "check", "--staged", "--agent", "bob")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert err.startswith("holdlog: warning: nothing was checked: there is no store at ")
    assert run_command(capsys, "check", "--staged", "--strict")[0] == 1
    assert checked(capsys, "--staged")[1]["status"] == "not_checked"
    assert not (repo / ".git" / "holdlog").exists()


def test_store_that_cannot_be_read_warns_in_one_line(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged(repo, "a.py")
    broken = repo / "broken.db"
    broken.write_text("no database" * 100)
    code, out, err = run_command(capsys, "check", "--staged", "--agent", "bob", "--db", str(broken))
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert run_command(capsys, "check", "--staged", "--strict", "--db", str(broken))[0] == 1


def test_claims_of_the_own_name_and_of_its_parent_do_not_block(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim("a.py", agent="claude")
    staged(repo, "a.py")
    for name in ("claude", "claude/tests"):
        assert checked(capsys, "--staged", "--agent", name)[1]["files"] == []
    assert checked(capsys, "--staged", "--agent", "claude-2")[0] == 1


def test_claim_of_a_sub_agent_warns_its_parent(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim("a.py", agent="claude/tests")
    staged(repo, "a.py")
    code, result = checked(capsys, "--staged", "--agent", "claude")
    assert (code, result["files"][0]["why_not"]) == (0, "sub_agent")
    assert checked(capsys, "--staged", "--agent", "claude/docs")[0] == 1


def test_named_session_owns_only_what_it_claimed(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, session in (("a.py", "s1"), ("src/b.py", "s2")):
        run_command(capsys, "claim", name, "--agent", "ann", "--session", session)
    staged(repo, "a.py", "src/b.py")
    assert paths_held(capsys, "--staged", "--session", "s1") == [("src/b.py", True)]
    assert paths_held(capsys, "--staged", "--session", "s2", "--agent", "ann") == [("a.py", True)]
    assert paths_held(capsys, "--staged", "--agent", "ann") == []


def test_session_of_the_host_owns_its_claims_without_a_name(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.compose import open_holdlog

    other.claim("src/b.py", **ANN)
    engine = open_holdlog(repo / ".git" / "holdlog" / "state.db", session=SessionId("process", "conversation-1"))
    engine.claim(engine.requests.claims.claim("a.py", "claude-7f3a"), engine.caller)
    staged(repo, "a.py", "src/b.py")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "conversation-1")
    assert paths_held(capsys, "--staged") == [("src/b.py", False)]
    assert paths_held(capsys, "--staged", "--agent", "bob") == [("src/b.py", True)]
    engine.close()


def test_session_that_has_ended_only_warns_unless_it_chose_its_lease(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(capsys, "claim", "a.py", "--agent", "ann")
    run_command(capsys, "claim", "src/b.py", "--agent", "ann", "--lease", "3600")
    staged(repo, "a.py", "src/b.py")
    assert paths_held(capsys, "--staged", "--agent", "bob") == [("a.py", False), ("src/b.py", True)]
    assert checked(capsys, "--staged", "--agent", "bob")[1]["files"][0]["why_not"] == "session_ended"
    assert paths_held(capsys, "--staged", "--agent", "bob", "--strict") == [("a.py", True), ("src/b.py", True)]


@pytest.mark.parametrize("claimed", ["a.py", "new.py"])
def test_both_names_of_a_rename_are_checked(
    repo: Path, other: StateStore, claimed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim(claimed, **ANN)
    git(repo, "mv", "a.py", "new.py")
    assert checked(capsys, "--staged")[1]["checked"] == 2
    assert paths_held(capsys, "--staged", "--agent", "bob") == [(claimed, True)]


def test_deleted_file_and_file_below_a_claimed_folder_are_checked(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    other.claim("src/", **ANN)
    git(repo, "rm", "--quiet", "src/b.py")
    _, result = checked(capsys, "--staged", "--agent", "bob")
    assert [(it["path"], it["covered_by"]) for it in result["files"]] == [("src/b.py", "src/")]


def test_submodule_is_checked_as_a_folder(
    repo: Path, other: StateStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = repository(tmp_path / "part")
    git(repo, "submodule", "--quiet", "add", str(part), "lib/part")
    git(repo, "commit", "--quiet", "--message", "part")
    git(repo / "lib/part", "commit", "--quiet", "--allow-empty", "--message", "second")
    git(repo, "config", "diff.ignoreSubmodules", "all")
    git(repo, "add", "lib/part")
    other.claim("lib/part/", **ANN)
    assert paths_held(capsys, "--staged", "--agent", "bob") == [("lib/part", True)]


STRANGE = [b"tab\there.py", b"new\nline.py", b"latin-\xe9.py", b" blank ", b'quo"te.py', b"-x.py", b"caf\xc3\xa9.py"]


def test_strange_names_are_checked_by_name_or_by_their_folder(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in STRANGE:
        Path(os.fsdecode(os.fsencode(repo) + b"/src/" + name)).write_text("x")
        Path(os.fsdecode(os.fsencode(repo) + b"/" + name)).write_text("x")
    git(repo, "add", "--all")
    other.claim('src/quo"te.py', **ANN)
    other.claim("src/café.py", **ANN)
    _, result = checked(capsys, "--staged", "--agent", "bob")
    assert (result["checked"], "unchecked" in result) == (2 * len(STRANGE), False)
    assert [it["path"] for it in result["files"]] == ["src/café.py", 'src/quo"te.py']
    other.release(agent="ann")
    other.claim("src/", **ANN)
    shown = {f"src/{name.decode(errors='backslashreplace')}" for name in STRANGE}
    assert {path for path, _ in paths_held(capsys, "--staged", "--agent", "bob")} == shown
    _, _, err = run_command(capsys, "check", "--staged", "--agent", "bob")
    assert err.count("\n") == len(STRANGE)


def test_claim_in_another_worktree_warns_and_one_of_this_worktree_blocks(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = worktree(repo, "../feature")
    other.claim("a.py", **ANN)
    other.claim("file://feature/src/b.py", **ANN)
    staged(there, "a.py", "src/b.py")
    monkeypatch.chdir(there / "src")
    code, result = checked(capsys, "--staged", "--agent", "bob")
    assert code == 1
    assert [(it["path"], it["blocks"], it.get("workspace")) for it in result["files"]] == [
        ("a.py", False, "main"),
        ("src/b.py", True, None),
    ]
    assert "in workspace main; coordinate before you merge" in run_command(capsys, "check", "--staged")[2]
    across = ("--staged", "--agent", "bob", "--claims-across-worktrees")
    assert paths_held(capsys, *across)[0] == ("a.py", True)


def test_first_commit_of_a_repository_is_checked(
    tmp_path: Path, repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "--quiet")
    staged(fresh, "a.py")
    monkeypatch.chdir(fresh)
    (fresh / ".git" / "holdlog").mkdir(0o700)
    with StateStore(fresh / ".git" / "holdlog" / "state.db") as store:
        store.claim("a.py", **ANN)
        assert paths_held(capsys, "--staged", "--agent", "bob") == [("a.py", True)]


def test_named_paths_are_checked_without_git(repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    other.claim("src/b.py", **ANN)
    other.claim("custom://deploy", mode="shared", **ANN)
    assert run_command(capsys, "check", "a.py") == (0, "ok: no other session holds this\n", "")
    assert paths_held(capsys, "src/", "a.py", "--agent", "bob") == [("src/", True)]
    assert paths_held(capsys, "custom://deploy", "--agent", "bob") == [("custom://deploy", True)]
    code, _, err = run_command(capsys, "check", "/elsewhere/x.py", "--agent", "bob")
    assert (code, err) == (0, "holdlog: warning: not checked, because they are in no workspace: /elsewhere/x.py\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "PATH: name files, or use --staged"),
        (("--staged", "a.py"), "PATH: name files, or use --staged"),
        (("--staged", "--agent", "a\nb"), "--agent: must not contain"),
    ],
)
def test_bad_arguments_of_check_are_refused_in_one_line(
    repo: Path, other: StateStore, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command(capsys, "check", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"holdlog: {told}")


def test_folder_without_a_git_repository_is_refused(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run_command(capsys, "check", "--staged")
    assert (code, err.count("\n")) == (2, 1)
    assert "not a git repository" in err
    assert err.endswith("; run this in a git repository, or name the files: holdlog check PATH\n")


def test_check_writes_nothing(repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    other.claim("a.py", **ANN)
    staged(repo, "a.py")
    before = [event.position for event in other.events().events]
    index = (repo / ".git" / "index").read_bytes()
    run_command(capsys, "check", "--staged", "--agent", "bob")
    assert [event.position for event in other.events().events] == before
    assert (repo / ".git" / "index").read_bytes() == index


def commit(repo: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    settings = ("-c", "user.name=bob", "-c", "user.email=bob@example.org")
    return subprocess.run(
        ["git", *settings, "commit", *words], cwd=repo, env=os.environ | environ, capture_output=True, text=True
    )


def hook(repo: Path, name: str, line: str) -> None:
    folder = repo / "hooks"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)
    git(repo, "config", "core.hooksPath", str(folder))


def test_hook_stops_a_commit_in_each_worktree_and_adds_a_trailer_for_own_claims(
    repo: Path, other: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = worktree(repo, "../feature")
    mine: Any = other.claim("file://feature/a.py", agent="bob")
    other.claim("file://feature/src/b.py", **ANN)
    hook(repo, "pre-commit", "exec holdlog check --staged")
    hook(repo, "prepare-commit-msg", 'exec holdlog check --staged --trailer "$1"')
    staged(there, "a.py", "src/b.py")
    refused = commit(there, "--message", "both", HOLDLOG_AGENT="bob")
    assert (refused.returncode, refused.stderr.count("held by ann")) == (1, 1)
    done = commit(there, "--message", "one", "a.py", HOLDLOG_AGENT="bob")
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(["git", "log", "-1", "--format=%B"], cwd=there, capture_output=True, text=True).stdout
    assert shown.strip() == f"one\n\nHoldlog-Claim: {mine.position}"
