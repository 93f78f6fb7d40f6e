"""`holdlog at`: an earlier moment on the command line."""

import json
from pathlib import Path

import pytest

from holdlog import StateStore
from tests.support.command_line import run_command


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "state.db")
    with StateStore(path) as store:
        store.set("campaign", "budget", 1000, updated_by="ann")
        store.claim("custom://deploy", agent="ann")
        store.set("campaign", "budget", 2000, updated_by="ben")
        store.release("custom://deploy", agent="ann", outcome="modified")
        store.register("ann", name="Ann")
    return path


def run(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> tuple[int, str, str]:
    return run_command(capsys, "at", *words, "--db", db)


def test_value_of_an_earlier_position_is_printed_alone_on_standard_output(
    capsys: pytest.CaptureFixture[str], db: str
) -> None:
    code, out, err = run(capsys, db, "1", "get", "campaign", "budget")
    assert (code, out) == (0, "1000\n")
    assert err.startswith("holdlog: after event 1, 2")
    assert run(capsys, db, "now", "get", "campaign", "budget")[1] == "2000\n"


def test_holder_of_an_earlier_moment_is_shown_with_how_the_hold_ended(
    capsys: pytest.CaptureFixture[str], db: str
) -> None:
    _, out, _ = run(capsys, db, "#3", "status", "custom://deploy")
    assert out.startswith("custom://deploy was held by ann since 2")
    assert "; modified 2" in out
    _, board, _ = run(capsys, db, "3")
    assert board.startswith("custom://deploy  ann  for 0 s  modified 2")
    assert run(capsys, db, "1")[1] == "nothing was claimed\n"
    _, free, _ = run(capsys, db, "4", "status", "custom://deploy")
    assert free.startswith("custom://deploy was free (modified by ann at 2")


def test_lists_agents_and_json_are_those_of_the_moment(capsys: pytest.CaptureFixture[str], db: str) -> None:
    assert run(capsys, db, "2", "list")[1] == "campaign  1 value\n"
    assert run(capsys, db, "2", "list", "campaign")[1] == "budget  v1  ann  1000\n"
    assert run(capsys, db, "2", "agents")[1] == "ann  1 claim\n"
    assert run(capsys, db, "5", "agents")[1] == "ann  0 claims  Ann\n"
    assert run(capsys, db, "5", "tokens")[1] == "there were no tokens\n"
    assert run(capsys, db, "5", "thread")[1] == "there were no threads\n"
    body = json.loads(run(capsys, db, "3", "history", "campaign", "budget", "--json")[1])
    assert ([it["version"] for it in body["history"]], body["as_of"]["position"]) == ([2, 1], 3)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("9",), 2, "holdlog: MOMENT: is 9, but the log ends at position 5\n"),
        (("2999-01-01 00:00",), 2, "holdlog: MOMENT: is in the future; the last position is 5\n"),
        (("2001-01-01T00:00:00Z",), 2, "holdlog: MOMENT: is before the first event of the log, which begins at 2"),
        (("soon",), 2, "holdlog: MOMENT: must be 14:03, "),
        (
            ("1", "get", "campaign", "none"),
            1,
            "holdlog: campaign/none does not exist at position 1; to see which keys have a value: holdlog at 1 list",
        ),
        (("1", "thread", "run-7"), 1, "holdlog: thread run-7 does not exist at position 1\n"),
        (("1", "get", "campaign"), 2, "holdlog at MOMENT get: the following arguments are required: KEY"),
        (("1", "fetch"), 2, "holdlog at: argument ACTION: 'fetch' is not one of get, history, list"),
    ],
)
def test_moment_or_name_that_does_not_exist_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], db: str, words: tuple[str, ...], code: int, error: str
) -> None:
    found = run(capsys, db, *words)
    assert (found[0], found[1]) == (code, "")
    assert found[2].startswith(error)
    assert found[2].count("\n") == 1
