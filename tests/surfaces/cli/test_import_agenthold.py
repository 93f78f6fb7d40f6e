"""`holdlog import --agenthold`: what it prints, and what it refuses, in one line."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main

FIXTURE = Path(__file__).parents[2] / "support" / "fixtures" / "agenthold.sql"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "agenthold.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIXTURE.read_text())
    return str(path)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


def test_import_prints_counts_and_what_differs(file: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--agenthold", file, "--db", target]) == 0
    first, *remarks, last = capsys.readouterr().out.splitlines()
    assert first.startswith("✓ 26 changes imported in ")
    assert first.endswith("as 23 events, verified; current values: 5, claims held: 1, agents: 2")
    assert [line.rpartition(": ")[2] for line in remarks[:3]] == ["3", "1", "1"]
    assert [line.partition(": ")[0] for line in remarks[3:]] == ["  name that holdlog does not allow, now"] * 3
    assert last.startswith(f"  the store is {target}, store id ")
    with StateStore(target) as store:
        assert store.get("order", "status").version == 3


def test_import_prints_its_report_as_json(file: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--agenthold", file, "--claim-ttl", "60", "--db", target, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["changes"], report["claims"], report["expired"], report["verified"]) == (26, 0, 1, True)


def test_existing_store_is_not_imported_into(file: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(target) as store:
        store.set("n", "k", 1, updated_by="ann")
    assert main(["import", "--agenthold", file, "--db", target]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is already a store at" in line
    with StateStore(target) as store:
        assert store.events().bookmark == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--agenthold", "none.db"], "there is no file none.db; check the path"),
        (["--agenthold", __file__], "damaged or not a file of agenthold"),
        (["--agenthold", "x", "--claim-ttl", "0"], "--claim-ttl: must be from 1 to 86400 seconds"),
        ([], "name one file"),
    ],
)
def test_bad_arguments_get_one_line(
    target: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["import", "--db", target, *options])
    except SystemExit as end:
        code = end.code
    assert code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) <= 2
    assert not Path(target).exists()
