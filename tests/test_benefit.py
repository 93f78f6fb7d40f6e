"""The facts that `make benefit` reads from a repository, and a small run of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.benefit import ROOT, Size, make_repository, read_facts
from tests.support.hosts import git
from tests.support.programs import environment

ANN, BOB = "task 0 part 1 of 2 by ann", "task 1 part 1 of 2 by bob"
STASHED, GONE = "task 2 part 1 of 2 by ann", "task 3 part 1 of 2 by bob"


def test_lost_changes_and_commits_with_others_changes_are_read_from_the_repository(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", Size(seed=1, agents=2, tasks=4, files=2))
    module, other = main / "src/module_0.py", main / "src/module_1.py"

    def commit_as(name: str) -> None:
        git(main, "commit", "-qam", "work", "--author", f"{name} <{name}@example.org>")

    other.write_text(f'"{STASHED}"\n')
    git(main, "stash")
    module.write_text(f'"{ANN}"\n"{GONE}"\n')
    commit_as("bob")
    module.write_text(f'"{ANN}"\n')
    commit_as("bob")
    other.write_text(f'"{BOB}"\n')
    commit_as("bob")
    assert read_facts(main, [ANN, BOB, STASHED, GONE]) == {
        "changes": 4,
        "changes missing from HEAD": 2,
        "of these, uncommitted or stashed": 1,
        "commits": 3,
        "commits with others' changes": 1,
    }


@pytest.mark.rest
def test_agents_with_holdlog_and_agents_in_worktrees_of_a_small_run_lose_no_change() -> None:
    words = "--careful --json --agents 2 --tasks 4 --files 3 --pace 0.2"
    command = [sys.executable, "-m", "bench.benefit", *words.split()]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    results = {result["set-up"]: result for result in map(json.loads, done.stdout.splitlines())}
    assert list(results) == ["one folder", "holdlog", "worktrees"]
    assert {result["changes"] for result in results.values()} == {8}
    assert [results[it]["changes missing from HEAD"] for it in ("holdlog", "worktrees")] == [0, 0]
    assert [name for name, result in results.items() if result["hooks per agent"]] == ["holdlog"]
    assert all(result["steps given up"] == 0 < result["commits"] for result in results.values())
