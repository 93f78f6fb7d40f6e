"""`holdlog redact` and `holdlog retention`, as a person and as a script use them."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.api.values.responses import DeleteResult
from holdlog.adapters.cli.response_texts import remark
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from tests.support.clock import Clock
from tests.support.command_line import run_command
from tests.support.commands import change, put

SECRET = "sk-1234567890"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    place = folder / "state.db"
    with StateStore(place) as store:
        store.set("config", "token", SECRET, updated_by="ann")
        store.set("config", "token", "safe", updated_by="ann", expected_version=1)
        store.set("config", "copy", [SECRET], updated_by="bob", reason=f"as {SECRET}")
        store.claim("src/a.py", agent="ann", note=f"rotates {SECRET}")
    return place


def redact(capsys: pytest.CaptureFixture[str], db: Path, *words: str) -> tuple[int, str, str]:
    return run_command(capsys, "redact", "--db", str(db), "--by", "boss", *words)


def test_redact_removes_a_value_and_lists_commands_for_its_copies(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    code, out, err = redact(capsys, db, "config", "token@1", "--reason", "it leaked")
    assert code == 0
    assert out.splitlines() == [
        "config/token version 1, value: redacted",
        "",
        "the same text is also in:",
        "  config/copy version 1, value       position 3",
        "  config/copy version 1, reason      position 3",
        "  resource src/a.py version 1, note  position 4",
        "to redact it there:",
        f"  holdlog redact --position 3 --position 4 --reason TEXT --db {db}",
        f"  holdlog redact --position 3 --field reason --reason TEXT --db {db}",
    ]
    assert "cannot be recalled" in err
    assert SECRET not in out + err
    assert redact(capsys, db, "--position", "3", "--position", "4", "--reason", "it leaked")[0] == 0
    assert redact(capsys, db, "--position", "3", "--field", "reason", "--reason", "it leaked")[0] == 0
    assert not any(SECRET.encode() in it.read_bytes() for it in db.parent.rglob("*") if it.is_file())
    assert run_command(capsys, "doctor", "--db", str(db))[0] == 0


def test_redacted_values_are_shown_as_redacted(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    redact(capsys, db, "config", "token@1", "copy@1", "--reason", "it leaked")
    place = ("--db", str(db))
    assert run_command(capsys, "get", "config", "copy", *place)[1] == "redacted\n"
    assert run_command(capsys, "list", "config", *place)[1].splitlines()[0].split() == ["copy", "v1", "bob", "redacted"]
    assert run_command(capsys, "history", "config", "token", *place)[1].splitlines()[1].endswith("  redacted")
    assert ": redacted" in run_command(capsys, "blame", "config", "copy", *place)[1]
    lines = run_command(capsys, "log", *place)[1].splitlines()
    assert lines[0].endswith("ann wrote config/token (redacted)")
    assert lines[-1].endswith("boss redacted the payload of record:config/copy, version 1 (reason: it leaked)")


def test_redact_as_json_is_the_response(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    code, out, _ = redact(capsys, db, "config", "token@1", "--reason", "it leaked", "--json")
    response = json.loads(out)
    assert code == 0
    assert response["redacted"] == [
        {
            "id": "record:config/token@1",
            "position": 1,
            "namespace": "config",
            "key": "token",
            "version": 1,
            "field": "value",
        }
    ]
    assert [(it["position"], it["field"]) for it in response["also_in"]] == [(3, "value"), (3, "reason"), (4, "note")]
    assert (response["position"], response["unfinished"], response["remaining"]) == (5, [], [])
    assert SECRET not in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "NAMESPACE and KEY@VERSION, or --position, or --finish is required"),
        (("config",), "NAMESPACE and KEY@VERSION, or --position, or --finish is required"),
        (("config", "token@1", "--finish"), "NAMESPACE and KEY@VERSION, or --position, or --finish is required"),
        (("config", "token@1"), "--reason: is required"),
        (("config", "token", "--reason", "r"), "KEY@VERSION: must be KEY@VERSION, for example budget@3"),
        (("config", "token@3", "--reason", "r"), "record:config/token@3: there is no such event"),
        (("config", "token@2", "--field", "note", "--reason", "r"), "--field: the event has no note"),
        (("--position", "99", "--reason", "r"), "--position: is 99, but the log has 1 to 4"),
        (("config", "token@1", "--reason", f"was {SECRET}"), "--reason: contains the text that it is about"),
    ],
)
def test_bad_arguments_of_redact_get_one_line_and_change_nothing(
    capsys: pytest.CaptureFixture[str], db: Path, words: tuple[str, ...], error: str
) -> None:
    code, out, err = redact(capsys, db, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"holdlog: {error}")
    assert len(err.splitlines()) == 1
    assert SECRET not in err
    with StateStore(db) as store:
        assert store.history("config", "token")[-1].value == SECRET


def test_redact_finish_has_nothing_to_do_in_a_finished_store(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    assert redact(capsys, db, "--finish") == (0, "all redactions are finished\n", "")


def test_redact_does_not_create_a_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = redact(capsys, tmp_path / "none.db", "--finish")
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert "none.db" in err


def test_delete_reports_that_the_history_keeps_the_value(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    _, out, _ = run_command(capsys, "delete", "config", "copy", "--db", str(db), "--version", "1", "--json")
    response = json.loads(out)
    assert response["hint"].endswith("ask a person to run holdlog redact.")
    result = DeleteResult.model_validate({"lost": None, **response})
    assert "the history keeps the value of version 1" in remark(result, "delete")


# --- retention


def retention(capsys: pytest.CaptureFixture[str], db: Path, *words: str) -> tuple[int, str, str]:
    return run_command(capsys, "retention", "--db", str(db), *words)


def test_retention_is_set_listed_applied_and_removed(capsys: pytest.CaptureFixture[str], db: Path) -> None:
    assert retention(capsys, db)[1] == "all former values are kept; to limit that: holdlog retention NAMESPACE 30d\n"
    assert retention(capsys, db, "config", "30d")[1] == "former values of config are kept for 30 d 0 h\n"
    assert retention(capsys, db, "config", "30d")[1].endswith(", as before\n")
    assert retention(capsys, db)[1].split() == ["config", "30", "d", "0", "h"]
    assert retention(capsys, db, "--run")[1] == "removed 0 former values\n"
    assert retention(capsys, db, "config", "none")[1] == "former values of config are kept\n"
    assert json.loads(retention(capsys, db, "--json")[1])["retention"] == []


def test_retention_run_removes_what_is_due(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    db, clock = tmp_path / "state.db", Clock()  # long ago
    with closing(open_sqlite(db, clock, clock.steady)) as old:
        change(old, put("token", SECRET, 0, "config"))
        change(old, put("token", "safe", 1, "config"))
    retention(capsys, db, "config", "1d")
    assert retention(capsys, db, "--run")[1] == "removed 1 former value\n"
    assert run_command(capsys, "doctor", "--db", str(db))[0] == 0
    with StateStore(db) as store:
        newest, oldest = store.history("config", "token")
        assert (newest.value, oldest.value, oldest.redacted) == ("safe", None, True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("config",), "TIME: is required, for example 30d, or none to keep former values"),
        (("config", "soon"), "argument TIME: must be a number with s, m, h, d or w"),
        (("config", "1d", "--run"), "--run: applies to all namespaces"),
        (("x" * 600, "1d"), "NAMESPACE: must have at most 512 characters"),
    ],
)
def test_bad_arguments_of_retention_get_one_line(
    capsys: pytest.CaptureFixture[str], db: Path, words: tuple[str, ...], error: str
) -> None:
    code, out, err = retention(capsys, db, *words)
    assert (code, out) == (2, "")
    assert error in err
