"""`holdlog diff`, `blame` and `revert`, as a person and as a script read them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from holdlog.adapters.cli.undo_texts import store_option


@pytest.fixture
def db(tmp_path: Path) -> Path:
    place = tmp_path / "state.db"
    with StateStore(place, session="ann's") as store:
        store.set("campaign", "budget", {"eur": 1000, "ads": ["\x1b[31m\u202e"]}, updated_by="ann")
    with StateStore(place, session="build-7") as store:
        store.set("campaign", "budget", {"eur": 9000}, updated_by="bad", expected_version=1, reason="more ads")
        store.set("campaign", "new", 1, updated_by="bad")
    return place


def run(capsys: pytest.CaptureFixture[str], db: Path, *words: str, code: int = 0) -> list[str]:
    assert main([words[0], "--db", str(db), *words[1:]]) == code
    return capsys.readouterr().out.splitlines()


def asked(capsys: pytest.CaptureFixture[str], db: Path, *words: str, code: int = 0) -> Any:
    (line,) = run(capsys, db, *words, "--json", code=code)
    return json.loads(line)


def error(capsys: pytest.CaptureFixture[str], db: Path, *words: str, code: int = 2) -> str:
    assert main([words[0], "--db", str(db), *words[1:]]) == code
    return capsys.readouterr().err.strip()


def test_diff_lists_the_changed_paths(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heading, *steps = run(capsys, db, "diff", "campaign", "budget", "v1", "v2")
    assert heading.startswith("campaign/budget changed v1 -> v2 by bad, ")
    assert heading.endswith("(reason: more ads)")
    assert run(capsys, db, "diff", "campaign", "budget", "v1") == [heading, *steps]
    assert steps == ['  - /ads: ["\\u001b[31m\\u202e"]', "  ~ /eur: 1000 -> 9000"]


def test_diff_of_a_namespace_takes_positions_and_times(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, db, "diff", "campaign", "1", "now")
    assert [line.partition(" by ")[0] for line in lines if not line.startswith(" ")] == [
        "campaign/budget changed v1 -> v2",
        "campaign/new added v1",
    ]
    assert run(capsys, db, "diff", "campaign", "1") == lines
    assert run(capsys, db, "diff", "campaign", "3", "now") == ["no difference in campaign"]
    assert run(capsys, db, "diff", "campaign", "budget", "v2", "v2") == ["no difference in campaign/budget"]
    time = asked(capsys, db, "blame", "campaign", "budget")["author"]["updated_at"]
    assert [it["key"] for it in asked(capsys, db, "diff", "campaign", time, "now")["changes"]] == ["new"]
    page = run(capsys, db, "diff", "campaign", "0", "now", "--limit", "1")
    assert page[-1] == 'there is more: add --after "budget"'
    assert asked(capsys, db, "diff", "campaign", "0", "now", "--after", "budget")["changes"][0]["key"] == "new"


def test_blame_shows_the_author_the_basis_and_how_to_undo_it(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *facts = run(capsys, db, "blame", "campaign", "budget")
    assert first == 'campaign/budget version 2: {"eur": 9000}'
    assert second.startswith("  written by bad, ")
    session = asked(capsys, db, "blame", "campaign", "budget")["author"]["session"]
    assert facts == [
        "  based on version 1",
        "  reason: more ads",
        f"  session: {session} (to undo it: holdlog revert --session {session} --dry-run --db {db})",
    ]
    assert asked(capsys, db, "blame", "campaign", "budget", "--at", "v1")["author"]["updated_by"] == "ann"
    assert asked(capsys, db, "blame", "campaign", "budget", "--at", "1")["author"]["updated_by"] == "ann"


def test_blame_of_fields_is_a_table(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *_, heads, row = run(capsys, db, "blame", "campaign", "budget", "--fields")
    assert heads.split() == ["field", "version", "by", "at"]
    assert row.startswith("eur    v2       bad  ")


def test_revert_shows_what_it_would_do_then_does_it_and_is_undone(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = run(capsys, db, "revert", "--session", "build-7", "--dry-run")
    assert dry == [
        "would restore campaign/budget to version 1; undoes version 2",
        "would delete campaign/new; undoes version 1",
        "nothing was changed; to do it, leave out --dry-run",
    ]
    *done, files, undo = run(capsys, db, "revert", "--session", "build-7", "--reason", "too much", "--by", "boss")
    assert done == [
        "restored campaign/budget to version 1; undoes version 2",
        "deleted campaign/new; undoes version 1",
    ]
    assert files == "files, threads and claims are as they were"
    assert json.loads("\n".join(run(capsys, db, "get", "campaign", "budget")))["eur"] == 1000
    last = run(capsys, db, "log", "--last", "2")
    assert "boss wrote campaign/budget" in last[0]
    assert last[0].endswith(", undoing position 2 (reason: too much)")
    assert last[1].endswith("boss deleted campaign/new, undoing position 3 (reason: too much)")
    words = undo.removeprefix("to undo this: holdlog ").split()
    assert words[-2:] == ["--db", str(db)]
    assert [it["change"] for it in asked(capsys, db, *words)["reverted"]] == ["restored", "restored"]
    assert json.loads("\n".join(run(capsys, db, "get", "campaign", "budget")))["eur"] == 9000


def test_revert_lists_what_it_keeps_and_why(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(db) as store:
        store.set("campaign", "budget", 1, updated_by="bob")
        assert store.claim("custom://campaign/new", agent="eva").status == "claimed"
        lines = run(capsys, db, "revert", "--session", "build-7", code=1)
        dry = run(capsys, db, "revert", "--session", "build-7", "--dry-run", code=1)
    assert lines == [
        "kept campaign/budget: bob changed it since (version 3)",
        "kept campaign/new: eva holds custom://campaign/new",
        "nothing was reverted",
    ]
    assert dry[-1] == "nothing would be reverted"


def test_hint_to_undo_quotes_the_store_and_hides_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "my state.db"
    with StateStore(place, session="build-7") as store:
        store.set("campaign", "new", 1, updated_by="bad")
    assert run(capsys, place, "blame", "campaign", "new")[-1].endswith(f" --dry-run --db '{place}')")
    monkeypatch.setenv("HOLDLOG_DB", str(place))
    assert main(["blame", "campaign", "new"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" --dry-run)")
    assert store_option("postgresql://ann:secret@host/db") == " --db postgresql://ann@host/db"


def test_revert_of_an_unknown_run_reports_that_it_wrote_nothing(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = run(capsys, db, "revert", "--correlation", "none", code=1)
    assert line.startswith("this run wrote no value")


def test_since_includes_the_event_that_was_printed_with_this_time(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = run(capsys, db, "log", "--last", "1")[0]
    time = line.split("  ")[1].replace(" UTC", "Z")
    found = asked(capsys, db, "revert", "--session", "build-7", "--since", time, "--dry-run")
    assert "new" in [it["key"] for it in found["reverted"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "campaign", "budget", "x"], "FROM: must be v3 (a version), 14:03"),
        (["diff", "campaign", "14:0x", "x", "y"], "FROM: must be v3 (a version), 14:03"),
        (["diff", "campaign", "budget"], "FROM: must be v3 (a version), 14:03"),
        (["diff", "campaign", "v1", "v2"], "FROM: needs key"),
        (["diff", "campaign", "99"], "FROM: is 99, but the log ends at position 3"),
        (["diff", "campaign", "budget", "v1", "v9"], "TO: is 9, but the key has version 2"),
        (["diff", "campaign", "budget", "x", "v1", "v2"], "too many arguments: give NAMESPACE"),
        (["blame", "campaign", "budget", "--at", "v9"], "--at: is 9, but the key has version 2"),
        (["diff", "campaign", "budget", "x", "v1"], 'FROM: must be v3 (a version), 14:03, "yesterday'),
        (["revert", "--session", "s", "--since", "3"], "--since: must be a time"),
        (["revert", "--session", "s", "--since", "x"], '--since: must be a time, such as 14:03, "yesterday'),
        (["revert", "--correlation", "c", "--agent", "ann"], "--agent: needs session"),
        (["revert", "--session", "s", "--by", "a/"], "--by: must have a name on both sides"),
    ],
)
def test_bad_arguments_are_named_as_on_the_command_line(
    db: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert error(capsys, db, *words).startswith(f"holdlog: {said}")


def test_missing_key_and_missing_store_are_reported(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hint = f"; to see which keys have a value: holdlog list campaign --db {db}"
    assert error(capsys, db, "blame", "campaign", "none", code=1) == f"holdlog: campaign/none does not exist{hint}"
    assert (
        error(capsys, db, "diff", "campaign", "yesteday", "v1", code=1)
        == f"holdlog: campaign/yesteday does not exist{hint}"
    )
    for words in (["diff", "n", "0"], ["blame", "n", "k"], ["revert", "--session", "s"]):
        assert "there is no store at" in error(capsys, tmp_path / "none.db", *words, code=1)
    assert not (tmp_path / "none.db").exists()


def test_missing_key_is_json_with_json(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = asked(capsys, db, "blame", "campaign", "none", code=1)
    assert (body["status"], body["key"]) == ("not_found", "none")


def test_colours_appear_on_terminals_only_and_texts_of_agents_stay_escaped(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = run(capsys, db, "diff", "campaign", "budget", "v1", "v2")
    assert "\x1b[33mchanged\x1b[0m" in lines[0]
    assert lines[1] == '  \x1b[31m- /ads\x1b[0m: ["\\u001b[31m\\u202e"]'
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "".join(run(capsys, db, "diff", "campaign", "budget", "v1", "v2"))
