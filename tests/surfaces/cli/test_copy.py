"""`holdlog copy`: what it prints, and what it refuses, in one line."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from tests.support.older import SCHEMA_1, lay

UNREACHABLE = "127.0.0.1"
"""No database listens on port 1 there."""
SECRET = "hunter2"


def holdlog(*arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environ = {name: it for name, it in os.environ.items() if not name.startswith("HOLDLOG")}
    command = [sys.executable, "-m", "holdlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environ, timeout=60)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    with StateStore(path) as store:
        for number in range(3):
            store.set("n", f"k{number}", number, updated_by="ann")
    return path


def test_copy_command_prints_what_was_copied(source: Path, tmp_path: Path) -> None:
    done = holdlog("copy", source, tmp_path / "copy.db")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "3 events copied in" in line
    assert "last position 4, verified; new store id" in line


@pytest.mark.check
def test_copy_command_prints_where_to_continue_after_a_move(source: Path, postgres: str) -> None:
    done = holdlog("copy", "--seal", source, postgres)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"holdlog: {source} is now sealed; if the copy fails, run the command again\n"
    first, second = done.stdout.splitlines()
    assert "same store id" in first
    assert f"{source} is sealed; use postgresql://" in second
    again = holdlog("copy", "--seal", source, postgres)
    assert (again.returncode, again.stderr) == (0, "")
    assert "were copied before" in again.stdout
    refused = holdlog("--db", source, "set", "n", "k", "1", "--force")
    assert refused.returncode != 0
    assert "sealed on" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert holdlog("--db", source, "get", "n", "k0").stdout.strip() == "0"
    assert holdlog("--db", source, "rebuild").returncode == 0
    assert holdlog("--db", source, "doctor").returncode == 0


@pytest.mark.check
def test_a_sealed_schema_can_be_rebuilt_and_examined(source: Path, postgres: str, tmp_path: Path) -> None:
    assert holdlog("copy", "--seal", source, postgres).returncode == 0
    assert holdlog("copy", "--seal", postgres, tmp_path / "back.db").returncode == 0
    for command in ("rebuild", "doctor", "claims"):
        done = holdlog("--db", postgres, command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_copy_command_migrates_a_source_of_an_older_schema_first(tmp_path: Path) -> None:
    source = lay(tmp_path / "old.db", SCHEMA_1)
    done = holdlog("copy", source, tmp_path / "copy.db")
    assert done.returncode == 0, done.stderr
    assert "migrated the store" in done.stderr
    assert (tmp_path / "old.db.backup-1").exists()
    assert holdlog("--db", tmp_path / "copy.db", "doctor").returncode == 0


def test_copy_command_prints_json_for_scripts(source: Path, tmp_path: Path) -> None:
    done = holdlog("copy", "--json", "--seal", source, tmp_path / "copy.db")
    told = json.loads(done.stdout)
    assert told["seconds"] >= 0
    with StateStore(tmp_path / "copy.db") as store:
        assert store.get("n", "k2").value == 2
    assert {
        name: told[name] for name in ("source", "target", "events", "position", "kept_id", "sealed", "verified")
    } == {
        "source": str(source),
        "target": str(tmp_path / "copy.db"),
        "events": 3,
        "position": 3,
        "kept_id": True,
        "sealed": True,
        "verified": True,
    }


def test_copy_command_resolves_names_from_the_working_folder(source: Path) -> None:
    assert holdlog("copy", "state.db", "copy.db", cwd=source.parent).returncode == 0
    assert (source.parent / "copy.db").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.db", "copy.db"], "there is no store at"),
        (["state.db", "state.db"], "same store"),
        (["state.db", "taken"], "already"),
        (["state.db", "no/such/folder.db"], "does not exist"),
        (["state.db", f"postgresql://ann:{SECRET}@{UNREACHABLE}:1/d"], UNREACHABLE),
        (["state.db", f"mysql://ann:{SECRET}@h/d"], "is not a store"),
        (["state.db", f"postgresql:/ann:{SECRET}@h/d"], "cannot be parsed"),
        ([f"postgresql:/ann:{SECRET}@h/d", "copy.db"], "cannot be parsed"),
        (["state.db", ":memory:"], "memory"),
        (["--db", "state.db", "state.db", "copy.db"], "copy"),
    ],
)
def test_copy_command_reports_each_failure_in_one_line(
    source: Path,
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (source.parent / "taken").write_text("mine")
    monkeypatch.chdir(source.parent)
    try:
        code = main(["copy", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, error = capsys.readouterr()
    assert code == (1 if told == UNREACHABLE else 2)
    assert told in error
    assert len(error.splitlines()) == 1
    assert SECRET not in out + error
    assert (source.parent / "taken").read_text() == "mine"
    assert not (source.parent / "copy.db").exists()


def test_copy_command_shows_progress_on_a_terminal_and_not_in_a_pipe(source: Path, tmp_path: Path) -> None:
    with StateStore(source) as store:
        for number in range(40):
            store.set("many", f"k{number}", list(range(100)), updated_by="ann")
    ours, theirs = pty.openpty()
    script = "from holdlog.adapters.cli import store, main; store.BAR_EVERY = 0; import sys; sys.exit(main.main())"
    pages = "from holdlog.adapters.stores.copying import writing; writing.REPORT_EVERY = 1; "
    command = [sys.executable, "-c", pages + script, "copy", str(source), str(tmp_path / "copy.db")]
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, timeout=60)
    os.close(theirs)
    seen = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "copy [" in seen
    assert "of 43 events" in seen


def test_help_of_copy_has_an_example() -> None:
    told = holdlog("copy", "--help").stdout
    assert "holdlog copy --seal .git/holdlog/state.db 'postgresql://" in told
