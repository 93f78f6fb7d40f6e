"""`holdlog commit` as processes of agents that share one worktree and its index."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.lease import BY_LEASE
from tests.support.processes.hosts import ENVIRONMENT, store_of
from tests.support.processes.workers import until

WHO = {
    f"GIT_{role}_{fact}": value
    for role in ("AUTHOR", "COMMITTER")
    for fact, value in (("NAME", "a"), ("EMAIL", "a@example.org"))
}


def edit(repository: Path, session: str, *names: str) -> None:
    """Claim files in a session, and change them."""
    engine = open_holdlog(store_of(repository), Settings(), SessionId("option", session))
    engine.kept_by = BY_LEASE
    for name in names:
        engine.claim(engine.requests.claims.claim(name, session), engine.caller)
        (repository / name).write_text(f"by {session}\n")
    engine.close()


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout


def commit(repository: Path, session: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "holdlog", "commit", "-m", f"by {session}", "--session", session],
        cwd=repository,
        env=ENVIRONMENT | WHO,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def slow_hook(repository: Path) -> Iterator[Path]:
    """A file that a pre-commit hook creates, after which it runs until the file is removed."""
    running = repository / ".git" / "running"
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n>'{running}'\nwhile test -e '{running}'; do sleep 0.02; done\n")
    hook.chmod(0o755)
    yield running
    running.unlink(missing_ok=True)


@pytest.mark.check
def test_commit_killed_at_any_time_loses_no_entry_of_others(repository: Path, slow_hook: Path) -> None:
    edit(repository, "s-1", "a.py", "new.py")
    edit(repository, "s-2", "b.py", "new2.py")
    git(repository, "add", "b.py", "new2.py")
    entries = git(repository, "ls-files", "--stage").splitlines()
    one = commit(repository, "s-1")
    until(slow_hook.exists)
    one.kill()
    one.communicate()
    killed = git(repository, "ls-files", "--stage").splitlines()
    assert [it for it in killed if "new.py" not in it] == entries
    slow_hook.unlink()  # git itself was not killed, and finishes the commit
    until(lambda: git(repository, "log", "-1", "--format=%s") == "by s-1\n")
    until(lambda: not (repository / ".git" / "index.lock").exists())
    assert git(repository, "diff", "--cached", "--name-only").split() == ["b.py", "new2.py"]
    assert git(repository, "show", "--format=", "--name-only").split() == ["a.py", "new.py"]


@pytest.mark.check
def test_sessions_that_commit_at_the_same_time_all_commit_their_files(repository: Path) -> None:
    sessions = [f"s-{number}" for number in range(3)]
    for session in sessions:
        edit(repository, session, f"{session}.py")
    running = [commit(repository, session) for session in sessions]
    for process in running:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, ""), out
    for session in sessions:
        assert git(repository, "log", "--format=%s", "--", f"{session}.py") == f"by {session}\n"
    assert git(repository, "status", "--porcelain") == ""
