"""Whether git has committed the files that an agent changed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.hooks.files import uncommitted
from tests.unit.operating_system.test_workspaces import repository

COMMITTED = ("clean.py", "removed.py", "removed/x.py", "\xe4 b\n.py")
CHANGED = ("changed.py", "new.py", "ignored.py", "gone.py", "gone/x.py", "[a].py")


def test_one_call_of_git_finds_what_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=repo, check=True, capture_output=True)

    for name in {*COMMITTED, *CHANGED, "a.py"} - {"new.py", "ignored.py"}:
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("x = 1\n")
    (repo / ".gitignore").write_text("ignored.py\n")
    git("add", ".")
    git("commit", "-qm", "first")
    git("rm", "-rq", "removed.py", "removed")
    git("commit", "-qm", "second")
    shutil.rmtree(repo / "gone")
    (repo / "gone.py").unlink()
    for name in ("changed.py", "new.py", "ignored.py", "[a].py"):
        (repo / name).write_text("x = 2\n")
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho >> {calls}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent) + os.pathsep + os.environ["PATH"])
    paths = [str(repo / name) for name in (*COMMITTED, *CHANGED, "gone", "removed")]
    outside = str(tmp_path / "outside.py")
    assert uncommitted([*paths, outside]) == {str(repo / name) for name in (*CHANGED, "gone")} | {outside}
    assert calls.read_text().count("\n") == 1
