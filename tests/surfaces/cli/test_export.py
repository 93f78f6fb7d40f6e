"""`holdlog export`: every value with its history as a line of JSON, of one position, without holding them in memory."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main


@pytest.fixture
def db(tmp_path: Path) -> str:
    with StateStore(tmp_path / "state.db") as store:
        for number in range(3):
            store.set("campaign", "budget", {"left": number}, updated_by="ann", reason="May")
        store.set("campaign", "old", "x\n\u2028", updated_by="bob")
        store.delete("campaign", "old", deleted_by="ann")
        store.set("gone", "k", 1, updated_by="ann")
        store.clear_namespace("gone", deleted_by="ann")
        store.set("orders", "größe/1", None, updated_by="ann")
    return str(tmp_path / "state.db")


def exported(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["export", *words]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\n")
    return [json.loads(line) for line in out.removesuffix("\n").split("\n")]


@pytest.mark.parametrize("deleted", [False, True])
def test_export_has_the_records_of_the_library(db: str, deleted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = exported(capsys, "--db", db, *(["--include-deleted"] if deleted else []))
    with StateStore(db) as store:
        expected = [
            {"namespace": namespace, **record}
            for namespace in ("campaign", "gone", "orders")
            for record in store.export_namespace(namespace, include_deleted=deleted).body()["records"]
        ]
    assert found == expected
    assert len(found) == (4 if deleted else 2)


def test_export_of_one_namespace_leaves_out_the_others(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    (budget,) = exported(capsys, "campaign", "--db", db)
    assert [budget["namespace"], budget["key"], budget["version"]] == ["campaign", "budget", 3]
    assert [past["value"] for past in budget["history"]] == [{"left": 2}, {"left": 1}, {"left": 0}]


def test_export_of_a_misspelled_namespace_is_reported(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "campain", "--db", db]) == 0
    assert capsys.readouterr() == (
        "",
        "holdlog: there are no values in this namespace; to list namespaces: holdlog list\n",
    )


def test_export_without_a_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--db", str(tmp_path / "none.db")]) == 1
    assert capsys.readouterr().out == ""


def test_export_with_a_bad_name_is_refused_by_name(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", " x", "--db", db]) == 2
    assert "NAMESPACE: must not start or end with a blank" in capsys.readouterr().err


def test_export_reads_a_long_history_a_few_events_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for number in range(200):
            store.set("n", "k", number, updated_by="ann")
        parts = store._requests.values.exported_text()
        with store._engine.store.snapshot() as reader:
            read: list[int] = []
            history = reader.history

            def counted(*arguments: Any) -> Any:
                found = history(*arguments)
                read.append(len(found))
                return found

            monkeypatch.setattr(reader, "history", counted)
            coming = parts(reader)
            assert len(list(islice(coming, 40))) == 40
            assert sum(read) < 60
            line = json.loads("".join(parts(reader)))
        assert max(read) == 16
        assert [past["version"] for past in line["history"]] == list(range(200, 0, -1))


def test_export_is_of_one_position_while_others_write(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for number in range(300):
            store.set("n", f"k{number:03}", 0, updated_by="ann")
        parts = store._requests.values.exported_text()
        with store._engine.store.snapshot() as reader:
            coming = parts(reader)
            text = next(coming)
            store.set("n", "k299", 1, updated_by="bob")
            store.set("n", "k300", 1, updated_by="bob")
            text += "".join(coming)
        lines = [json.loads(line) for line in text.splitlines()]
        assert len(lines) == 300
        assert lines[-1]["value"] == 0
