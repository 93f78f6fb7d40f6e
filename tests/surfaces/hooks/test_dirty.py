"""Whether git has committed the files that an agent changed."""

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdlog.adapters.hooks.dirty import uncommitted
from holdlog.adapters.hooks.notes import KEPT_SECONDS, HookFiles
from holdlog.adapters.hooks.observed import note_observation, observations
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


def test_observations_outlast_old_notes_and_are_replaced_by_many_threads_at_once(tmp_path: Path) -> None:
    files = HookFiles(tmp_path / "state.db")
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(note_observation, files, "claude 1", obeyed=True) for _ in range(400)]:
            done.result()
    long_ago = time.time() - KEPT_SECONDS - 10
    os.utime(files.folder / "clients.json", (long_ago, long_ago))
    files.remove_old()
    assert [path.name for path in files.folder.iterdir()] == ["clients.json"]
    assert observations(files)["claude 1"].state == "guarded"
