"""`holdlog blame FILE` and `holdlog log --resource FILE`: who changed a file, as hooks recorded it."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.commands import RecordFileChange

FIRST, SECOND = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a linked worktree: ann changed src/a.py, bob his copy, then eva removed ann's."""
    for name in list(os.environ):
        if name.startswith("HOLDLOG_") or name == "CLAUDE_PROJECT_DIR":
            monkeypatch.delenv(name)
    root = tmp_path / "main"
    root.mkdir()
    commit = ["-c", "user.email=a@example.org", "-c", "user.name=a", "commit", "-q", "--allow-empty", "-m", "first"]
    for words in (["init", "-q"], commit, ["worktree", "add", "-q", "../other"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    changes: Sequence[tuple[str, str, str | None]] = (
        ("src/a.py", "ann", FIRST),
        ("file://other/src/a.py", "bob", SECOND),
        ("src/a.py", "ev\u0430", None),
    )
    with closing(open_holdlog(root / ".git" / "holdlog" / "state.db")) as engine:
        for resource, agent, sha256 in changes:
            command = RecordFileChange(resource=resource, agent=agent, sha256=sha256)
            engine.writer.run(command, engine.caller)
    monkeypatch.chdir(root)
    return root


def lines(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    assert main(list(words)) == code
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "TIME", it) for it in capsys.readouterr().out.splitlines()]


def blamed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["blame", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_blame_of_a_file_has_a_line_for_each_change(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    expected = [
        "TIME UTC  ev\u0430 (mixed scripts)  position 3  removed",
        "TIME UTC  ann                  position 1  abababababab",
    ]
    assert lines(capsys, "blame", "src/a.py") == expected
    assert lines(capsys, "blame", str(repository / "src" / "a.py")) == expected
    assert lines(capsys, "blame", "src/a.py", "--limit", "1") == [expected[0], "there are older changes: add --limit"]


def test_each_worktree_has_its_own_changes(
    capsys: pytest.CaptureFixture[str], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.parent / "other")
    assert lines(capsys, "blame", "src/a.py") == ["TIME UTC  bob  position 2  cdcdcdcdcdcd"]
    found = blamed(capsys, str(repository / "src" / "a.py"))
    assert [it["agent"] for it in found["changes"]] == ["ev\u0430", "ann"]


def test_json_has_whole_digests_and_no_digest_for_a_removal(capsys: pytest.CaptureFixture[str]) -> None:
    found = blamed(capsys, "src/a.py")
    assert (found["status"], found["resource"], "more" in found) == ("ok", "src/a.py", False)
    assert [(it["position"], it.get("sha256")) for it in found["changes"]] == [(3, None), (1, FIRST)]
    assert blamed(capsys, "src/a.py", "--limit", "1")["more"] is True


@pytest.mark.parametrize("path", ["src/b.py", "none.py", "src/"])
def test_file_that_no_agent_changed_is_reported_with_exit_code_1(
    path: str, capsys: pytest.CaptureFixture[str], repository: Path
) -> None:
    (repository / "src").mkdir()
    (repository / "src" / "b.py").write_text("x = 1\n")
    assert lines(capsys, "blame", path, code=1) == [f"hooks recorded no change of {path}"]
    assert json.loads(lines(capsys, "blame", path, "--json", code=1)[0])["status"] == "not_found"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["../x"], "FILE: "),
        (["a.py", "--at", "v1"], "--at: only works with NAMESPACE and KEY"),
        (["a.py", "--fields"], "--fields: only works with NAMESPACE and KEY"),
        (["a.py", "--after", "x"], "--after: only works with NAMESPACE and KEY"),
        (["campaign", "plan", "--limit", "2"], "--limit: only works with a FILE"),
        (["a.py", "--limit", "9999"], "--limit: must be a whole number from 1 to 1000"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["blame", *words]) == 2
    assert message in capsys.readouterr().err


def test_log_of_a_file_shows_who_changed_and_who_removed_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "log", "--resource", "src/a.py") == [
        "1  TIME UTC  ann changed src/a.py to abababababab",
        "3  TIME UTC  ev\u0430 (mixed scripts) removed src/a.py",
    ]
