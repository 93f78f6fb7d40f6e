"""`holdlog log`: what happened, as a person and as a script read it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from tests.support.thread_story import KINDS, fork, story


@pytest.fixture
def db(tmp_path: Path) -> Path:
    place = tmp_path / "state.db"
    with StateStore(place) as store:
        store.set("campaign", "budget", {"eur": "\u202e2000"}, updated_by="ann", reason="ads")
        store.claim("custom://deploy", agent="bob", note="ten minutes")
        store.delete("campaign", "budget", deleted_by="ann")
    return place


def run(capsys: pytest.CaptureFixture[str], db: Path, *words: str) -> list[str]:
    assert main(["log", "--db", str(db), *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_log_command_prints_events_in_order(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split("  ") for line in run(capsys, db)]
    assert [(it[0], it[2], it[3], it[4]) for it in lines] == [
        ("1", "ann", "ValueWritten", "campaign/budget"),
        ("2", "bob", "ClaimGranted", "custom://deploy"),
        ("3", "ann", "ValueDeleted", "campaign/budget"),
    ]
    assert lines[0][5] == '{"eur": "\\u202e2000"} reason=ads'
    assert lines[1][5].startswith("mode=exclusive note=ten minutes session=process-")


def test_log_command_prints_each_event_as_json(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = run(capsys, db, "--json", "--after", "1", "--kinds", "record", "--limit", "5")
    assert (json.loads(line)["position"], json.loads(line)["kind"]) == (3, "ValueDeleted")
    assert len(run(capsys, db, "--limit", "2")) == 2
    assert len(run(capsys, db, "--resource", "custom://deploy", "--agent", "bob")) == 1


def test_log_command_prints_a_line_per_thread_event_without_messages(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StateStore(db) as store:
        story(store._engine, "run 7")
        fork(store._engine, "run 8", "run 7", by="bob")
    lines = [line.split("  ") for line in run(capsys, db, "--thread", "run 7")]
    assert [(it[2], it[3], it[4]) for it in lines] == [("ann", kind, "run 7") for kind in KINDS]
    assert [it[5:] for it in lines] == [
        [],
        ["written=plan,files"],
        [],
        ["agent=writer"],
        ["written=plan deleted=files"],
        [],
        ["agent=writer"],
    ]
    (began,) = run(capsys, db, "--thread", "run 8", "--limit", "1")
    assert began.endswith("  bob  ThreadStarted  run 8  parent=run 7 parent_version=7")
    (found,) = run(capsys, db, "--thread", "run 7", "--kinds", "MessageAppended", "--json")
    assert json.loads(found)["value"]["content"] == "which file?"
    assert len(run(capsys, db, "--kinds", "thread", "--agent", "bob")) == 4


def test_log_command_follows_new_events(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "holdlog", "log", "--db", str(db), "--follow", "--after", "2", "--limit", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("3  ")
    with StateStore(db) as store:
        store.set("campaign", "budget", 1, updated_by="ann")
    assert process.stdout.readline().startswith("4  ")
    assert process.wait(30) == 0
    process.stdout.close()


def test_log_command_reports_a_bad_filter_in_one_line_with_exit_code_2(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--kinds", "written"], ["--after", "9"], ["--prefix", "x"], ["--thread", ""]):
        assert main(["log", "--db", str(db), *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_log_command_does_not_create_a_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--db", str(tmp_path / "none.db")]) == 1
    assert list(tmp_path.iterdir()) == []
