"""`holdlog commit` and `holdlog claims --dirty` in real git repositories, with files that hooks have recorded."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from tests.support.command_line import run_command
from tests.surfaces.hooks.test_formats import edit, hook
from tests.unit.operating_system.test_workspaces import worktree

WHO = {"NAME": "ann", "EMAIL": "ann@example.org"}


class Project:
    """A repository with the files a.py to d.py and src/e.py, in which sessions of Claude Code edit files."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.git("init", "-q", "-b", "main")
        for name in ("a.py", "b.py", "c.py", "d.py", "src/e.py"):
            self.write(name, f"first {name}\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        open_holdlog(root / ".git" / "holdlog" / "state.db").close()

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=self.root, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ).stdout

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def edit(self, session: str, name: str, text: str | None, **given: str) -> None:
        """An agent edits a file, or removes it."""
        tool = "Write"
        assert hook(self._monkeypatch, self._capsys, {**edit("PreToolUse", name, session, tool), **given}) is None
        if text is None:
            (self.root / name).unlink()
        else:
            self.write(name, text)
        hook(self._monkeypatch, self._capsys, {**edit("PostToolUse", name, session, tool), **given})

    def end(self, session: str, event: str = "SessionEnd", **given: str) -> None:
        hook(self._monkeypatch, self._capsys, {**edit(event, "", session), **given})

    def run(self, *words: str, session: str = "s-1") -> tuple[int, str, str]:
        """A command in the shell of an agent."""
        self._monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session)
        return run_command(self._capsys, *words)

    def commit(self, *words: str, session: str = "s-1") -> tuple[int, str, str]:
        return self.run("commit", "-m", "message", *words, session=session)

    def committed(self) -> list[str]:
        return self.git("show", "--format=", "--name-only", "--no-renames", "HEAD").split()

    def staged(self) -> str:
        """The entries of the index that differ from HEAD, with their contents' hashes."""
        return self.git("diff", "--cached", "--raw", "--no-abbrev")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    for name in [it for it in os.environ if it.startswith(("HOLDLOG_", "CLAUDE_", "CODEX_", "GIT_"))]:
        monkeypatch.delenv(name)
    for role in ("AUTHOR", "COMMITTER"):
        for fact, value in WHO.items():
            monkeypatch.setenv(f"GIT_{role}_{fact}", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return Project(tmp_path / "project", monkeypatch, capsys)


def test_commit_contains_what_the_session_changed_and_nothing_else(project: Project) -> None:
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-1", "new.py", "by one\n")
    project.edit("s-1", "c.py", None)
    project.edit("s-1", "src/e.py", "by the sub-agent of one\n", agent_id="sub-1")
    project.end("s-1", "SubagentStop", agent_id="sub-1")
    project.edit("s-2", "b.py", "by two\n")
    project.edit("s-2", "new2.py", "by two\n")
    project.write("d.py", "by a person\n")
    project.write("junk", "by a program\n")
    project.git("add", "b.py", "new2.py", "d.py")
    staged = project.staged()
    code, out, err = project.commit()
    assert (code, err) == (0, "")
    assert out.startswith(f"committed {project.git('rev-parse', 'HEAD')[:10]} on main: ")
    assert project.committed() == ["a.py", "c.py", "new.py", "src/e.py"]
    assert project.staged() == staged
    assert "left out: b.py (held by claude-" in out
    assert "junk (not of this session)" in out
    assert project.commit(session="s-2")[0] == 0
    assert project.committed() == ["b.py", "new2.py"]


def test_commit_takes_files_that_others_have_staged_in_part_and_renames(project: Project) -> None:
    project.edit("s-1", "a.py", "half\n")
    project.git("add", "a.py")
    project.edit("s-1", "a.py", "whole\n")
    project.edit("s-1", "b.py", "moved\n")
    project.edit("s-1", "b2.py", "moved\n")
    project.edit("s-1", "b.py", None)
    project.git("add", "b.py", "b2.py")
    project.edit("s-1", "c.py", None)
    project.git("rm", "--cached", "-q", "c.py")
    for name in ("[cd].py", "*.py"):  # names that are patterns
        project.edit("s-1", name, "x = 1\n")
    project.write("d.py", "by a person\n")
    assert project.commit()[0] == 0
    assert project.committed() == ["*.py", "[cd].py", "a.py", "b.py", "b2.py", "c.py"]
    assert project.git("show", "HEAD:a.py") == "whole\n"
    assert project.git("status", "--porcelain") == " M d.py\n"


def test_paths_narrow_the_commit_and_are_relative_to_the_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "src/e.py", "src/new.py"):
        project.edit("s-1", name, "by one\n")
    monkeypatch.chdir(project.root / "src")
    _, out, _ = project.run("commit", "--dry-run", "--json", ".")
    body = json.loads(out)
    assert (body["status"], body["files"]) == ("dry_run", ["e.py", "new.py"])
    assert body["left_out"] == [{"path": "../a.py", "why": "not_named"}]
    assert project.git("log", "--oneline").count("\n") == 1
    assert project.commit("e.py")[0] == 0
    assert project.committed() == ["src/e.py"]
    assert project.commit("../")[0] == 0
    assert project.committed() == ["a.py", "src/new.py"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["b.py"], "b.py: held by claude-"),
        (["a.py", "b.py"], "b.py: held by claude-"),
        (["e.py"], "e.py: changed 0 s ago by claude-"),
        (["d.py"], "to commit it, too: git commit --only -- d.py"),
        (["nothing.py"], "nothing.py: this session has changed nothing there"),
        (["c.py"], "c.py: this session has changed nothing there"),
    ],
)
def test_path_that_is_not_of_the_session_is_refused(words: list[str], problem: str, project: Project) -> None:
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-2", "b.py", "by two\n")
    project.edit("s-2", "e.py", "by two\n")
    release(project, "e.py")
    project.write("d.py", "by a person\n")
    code, out, err = project.commit(*words)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("holdlog: nothing was committed: ")
    assert problem in err
    body = json.loads(project.commit("--json", *words)[1])
    assert (body["status"], problem in body["message"]) == ("refused", True)
    assert project.git("log", "--oneline").count("\n") == 1


def release(project: Project, name: str) -> None:
    """A person takes a claim away."""
    engine = open_holdlog(project.root / ".git" / "holdlog" / "state.db")
    engine.write(engine.requests.claims.release(name, "ann", forced=True, note="it is mine"), engine.caller)
    engine.close()


def test_file_that_an_ended_session_changed_is_committed_by_its_next_holder(project: Project) -> None:
    project.edit("s-2", "a.py", "by two\n")
    project.edit("s-2", "b.py", "by two\n")
    project.end("s-2")
    project.edit("s-1", "a.py", "by two\n")  # with the same content: the change stays that of the other session
    code, out, _ = project.commit()
    assert (code, project.committed()) == (0, ["a.py"])
    assert "with changes by claude-" in out
    assert ", whose session has ended: a.py\n" in out


def test_change_by_a_program_after_the_own_commit_is_not_of_the_session(project: Project) -> None:
    project.edit("s-1", "a.py", "by one\n")
    assert project.commit()[0] == 0
    release(project, "a.py")
    project.write("a.py", "by a program\n")
    code, _, err = project.commit()
    assert (code, "has changed nothing that is not committed; 1 changed file is not of this session" in err) == (
        1,
        True,
    )


def refuse_commits(project: Project) -> None:
    path = project.root / ".git" / "hooks" / "pre-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\necho 'line 3 is too long'\ngit diff --cached --name-only -- '*.py' >seen\nexit 1\n")
    path.chmod(0o755)


def lock_index(project: Project) -> None:
    (project.root / ".git" / "index.lock").write_text("")


def break_identity(project: Project) -> None:
    project.git("config", "user.useConfigOnly", "true")
    for name in [it for it in os.environ if it.startswith("GIT_")]:
        os.environ.pop(name)


def begin_merge(project: Project) -> None:
    (project.root / ".git" / "MERGE_HEAD").write_text(project.git("rev-parse", "HEAD"))


@pytest.mark.parametrize(
    ("obstacle", "problem"),
    [
        (refuse_commits, "a hook may have refused it"),
        (lock_index, "another git process uses the index; if none runs, remove "),
        (break_identity, ""),
        (begin_merge, "a merge is in progress, in which git cannot commit single files; first finish it (git merge"),
    ],
)
def test_failed_commit_leaves_the_index_as_it_was(
    obstacle: Callable[[Project], None], problem: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.cli.partial_commit.LOCK_SECONDS", 0.05)
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-1", "new.py", "by one\n")
    project.edit("s-2", "b.py", "half\n")
    project.edit("s-2", "new2.py", "by two\n")
    project.git("add", "b.py", "new2.py")
    project.edit("s-2", "b.py", "by two\n")
    staged, entries = project.staged(), project.git("ls-files", "--stage")
    obstacle(project)
    code, out, err = project.commit()
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("holdlog: nothing was committed: ")
    assert problem in err
    assert (project.staged(), project.git("ls-files", "--stage")) == (staged, entries)
    if obstacle is refuse_commits:
        assert err.startswith("line 3 is too long\n")
        assert (project.root / "seen").read_text().split() == ["a.py", "new.py"]


@pytest.mark.parametrize("state", ["rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD"])
def test_operation_of_git_in_progress_is_named(state: str, project: Project) -> None:
    project.edit("s-1", "a.py", "by one\n")
    (project.root / ".git" / state).mkdir()
    code, _, err = project.commit("--dry-run")
    assert (code, err.count("\n"), "is in progress, in which git cannot" in err) == (1, 1, True)


def test_commit_in_a_repository_without_commits(tmp_path: Path, project: Project) -> None:
    project.git("update-ref", "-d", "HEAD")
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-1", "new.py", "by one\n")
    assert project.commit()[0] == 0
    assert project.committed() == ["a.py", "new.py"]


def test_commit_in_another_worktree_takes_the_files_there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.edit("s-1", "a.py", "by one\n")
    there = worktree(project.root, "there")
    monkeypatch.chdir(there)
    inside = Project.__new__(Project)
    inside.__dict__ |= {**project.__dict__, "root": there}
    inside.edit("s-1", "b.py", "by one\n")
    assert inside.commit()[0] == 0
    assert inside.committed() == ["b.py"]


def test_person_commits_the_files_of_an_agent_by_its_name(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-2", "b.py", "by two\n")
    code, _, err = project.run("commit", "-m", "message", session="")
    assert (code, "it is not known which session runs this; pass --agent NAME" in err) == (2, True)
    code, _, err = project.run("commit", "-m", "message", "--agent", "nobody", session="")
    assert (code, "hooks know no agent 'nobody'" in err) == (2, True)
    name = json.loads(project.run("claims", "--json", session="")[1])["claims"][1]["held_by"]
    assert project.run("commit", "-m", "message", "--agent", name, session="")[0] == 0
    assert project.committed() == ["b.py"]


def test_conversation_of_a_host_with_one_server_commits_only_its_files(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for conversation, name in (("c-1", "a.py"), ("c-2", "b.py")):
        facts = {"conversation_id": conversation, "workspace_roots": [str(project.root)], "cursor_version": "2.4"}
        tool = {"tool_name": "Write", "tool_input": {"file_path": str(project.root / name)}}
        hook(monkeypatch, capsys, {**facts, **tool, "hook_event_name": "preToolUse"})
        project.write(name, "changed\n")
        hook(monkeypatch, capsys, {**facts, "hook_event_name": "afterFileEdit", "file_path": str(project.root / name)})
    agent = json.loads(project.run("claims", "--json", session="")[1])["claims"][0]["held_by"]
    assert project.run("commit", "-m", "message", "--agent", agent, session="")[0] == 0
    assert project.committed() == ["a.py"]


def test_session_of_commands_commits_what_it_holds(project: Project) -> None:
    project.run("claim", "a.py", "--agent", "bob", "--session", "build", session="")
    project.write("a.py", "by bob\n")
    project.write("b.py", "by a person\n")
    assert project.run("commit", "-m", "message", "--session", "build", "--agent", "bob", session="")[0] == 0
    assert project.committed() == ["a.py"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["commit"], "-m: is missing"),
        (["commit", "-m", "x", "--db", "postgresql://h/d"], "store in a file"),
    ],
)
def test_bad_arguments_of_commit_are_reported_in_one_line(words: list[str], problem: str, project: Project) -> None:
    code, _, err = project.run(*words)
    assert (code, problem in err, err.count("\n")) == (2, True, 1)


def test_commit_outside_of_a_repository_is_refused(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("outside"))
    assert project.commit()[0] == 2


def test_dirty_files_are_listed_with_whose_they_are(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.edit("s-1", "a.py", "by one\n")
    project.edit("s-2", "b.py", "by two\n")
    project.edit("s-3", "src/new.py", "by three\n")
    project.edit("s-3", "src/e.py", None)
    project.end("s-3")
    project.write("d.py", "by a person\n")
    monkeypatch.chdir(project.root / "src")
    files = {it.pop("path"): it for it in json.loads(project.run("claims", "--dirty", "--json")[1])["files"]}
    owners = {name: (it["git_status"], it.get("held"), it.get("live")) for name, it in files.items()}
    assert owners == {
        "../a.py": (" M", True, True),
        "../b.py": (" M", True, True),
        "../d.py": (" M", None, None),
        "e.py": (" D", False, False),
        "new.py": ("??", False, False),
    }
    assert files["../a.py"]["agent"] != files["../b.py"]["agent"]
    code, out, _ = project.run("claims", "--dirty")
    assert code == 0
    assert re.search(r"^\.\./a\.py +M +claude-\w{6} +held for \d+ s +live$", out, re.M)
    assert re.search(r"^e\.py +D +claude-\w{6} +changed \d+ s ago +ended$", out, re.M)
    assert re.search(r"^\.\./d\.py +M +no hook recorded who changed it$", out, re.M)
    project.git("stash", "-uq")
    assert project.run("claims", "--dirty")[1] == "no file of this worktree has uncommitted changes\n"


@pytest.mark.parametrize("option", ["--agent", "--after"])
def test_options_that_do_not_apply_to_dirty_files_are_refused(option: str, project: Project) -> None:
    code, _, err = project.run("claims", "--dirty", option, "x")
    assert (code, err) == (2, f"holdlog: --dirty: cannot be combined with {option}\n")
