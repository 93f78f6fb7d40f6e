"""`holdlog history RESOURCE`: who held it, who waited, and how each hold ended, over both kinds of stores."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from tests.support.commands import until


@pytest.fixture(autouse=True)
def outside_of_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "state.db" if request.param == "sqlite" else request.getfixturevalue("postgres"))
    stage(place)
    return place


def stage(place: str) -> None:
    """1: ann claims src/; 2: bob queues for src/a.py; 3, 4: ann releases it, and bob is granted; 5: a person takes it
    from bob; 6: cy claims src/b.py; 7: cy releases it as moved; 8: dan claims lib/."""
    with StateStore(place, session="of ann") as ann, StateStore(place, session="of bob") as bob:
        ann.claim("src/", agent="ann", note="renaming")
        waiting = threading.Thread(target=lambda: bob.claim("src/a.py", agent="bob", wait_seconds=60))
        waiting.start()
        until(lambda: len(ann.board().queues) == 1)
        ann.release("src/", agent="ann", outcome="modified", note="parse() is new")
        waiting.join()
    run("release", place, "src/a.py", "--agent", "boss", "--force", "--reason", "lunch")
    with StateStore(place, session="of cy") as cy:
        cy.claim("src/b.py", agent="cy")
        cy.release("src/b.py", agent="cy", outcome="moved", moved_to="src/c.py")
        cy.claim("lib/", agent="dan", mode="shared")


def run(command: str, place: str, *words: str) -> int:
    try:
        return main([command, "--db", place, *words])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture
def answer(place: str, capsys: pytest.CaptureFixture[str]) -> Any:
    def answered(*words: str) -> Any:
        capsys.readouterr()
        assert run("history", place, "--json", *words) == 0
        return json.loads(capsys.readouterr().out)

    return answered


def test_holds_and_waits_of_whatever_overlaps_are_listed_newest_first(answer: Any) -> None:
    found = answer("src/")
    assert [(it["resource"], it["held_by"], it["outcome"]) for it in found["holds"]] == [
        ("src/b.py", "cy", "moved"),
        ("src/a.py", "bob", "forced"),
        ("src/", "ann", "modified"),
    ]
    moved, taken, first = found["holds"]
    assert (moved["moved_to"], taken["forced_by"], taken["end_note"]) == ("src/c.py", "boss", "lunch")
    assert (first["note"], first["end_note"], first["version"]) == ("renaming", "parse() is new", 1)
    (waited,) = found["waits"]
    assert (waited["resource"], waited["agent"], waited["outcome"]) == ("src/a.py", "bob", "granted")
    assert waited["waited_seconds"] > 0
    assert first["ended_at"] == taken["claimed_at"] == waited["ended_at"]
    assert [it["held_by"] for it in answer("src/a.py")["holds"]] == ["bob", "ann"]
    assert [it["held_by"] for it in answer("src/d.py")["holds"]] == ["ann"]


def test_hold_that_has_not_ended_has_no_end(answer: Any) -> None:
    (hold,) = answer("lib/x")["holds"]
    assert (hold["held_by"], hold["mode"]) == ("dan", "shared")
    assert not {"ended_at", "outcome"} & set(hold)


def test_range_keeps_what_overlaps_it_and_limit_the_newest(answer: Any) -> None:
    assert [it["held_by"] for it in answer("src/", "--since", "6")["holds"]] == ["cy"]
    assert [it["held_by"] for it in answer("src/", "--until", "2")["holds"]] == ["ann"]
    assert [it["held_by"] for it in answer("src/", "--since", "2", "--until", "3")["holds"]] == ["bob", "ann"]
    begun = answer("src/b.py")["holds"][0]["claimed_at"]
    assert [it["held_by"] for it in answer("src/", "--since", begun)["holds"]] == ["cy"]
    newest = answer("src/", "--limit", "1")
    assert ([it["held_by"] for it in newest["holds"]], newest["more"]) == (["cy"], True)
    assert answer("src/", "--since", "now")["holds"] == []


def test_table_shows_one_line_for_each_hold_and_wait(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("history", place, "src/") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["resource", "agent", "kind", "from", "to", "for", "outcome", "note"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["src/b.py", "cy", "held"],
        ["src/a.py", "bob", "held"],
        ["src/a.py", "bob", "waited"],
        ["src/", "ann", "held"],
    ]
    assert "moved to src/c.py" in lines[1]
    assert "taken by boss" in lines[2]
    assert lines[3].rstrip().endswith("granted")
    assert lines[4].endswith('"parse() is new"')
    assert "modified" in lines[4]


def test_versions_of_a_value_are_listed_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.set("n", "k", 1, updated_by="ann")
    assert run("history", str(tmp_path / "state.db"), "n", "k") == 0
    assert capsys.readouterr().out.startswith("v1  write  ann")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("none.py",), 1, "not_found: none.py was never claimed\n"),
        (("lib/", "--since", "99"), 2, "holdlog: --since: is 99, but the log ends at position"),
        (
            ("lib/", "--since", "3", "--until", "1"),
            2,
            "holdlog: --until: is earlier than since; swap the two\n",
        ),
        (("lib/", "--since", "soon"), 2, "holdlog: --since: must be 14:03, "),
        (("lib/", "--limit", "0"), 2, "holdlog: --limit: must be a whole number from 1 to 1000\n"),
        (("n", "k", "--until", "1"), 2, "holdlog: --until: only works with a RESOURCE"),
        (("a\x1b[2Jb",), 2, "holdlog: RESOURCE: must not contain control or bidirectional characters\n"),
        (("../x",), 2, "holdlog: RESOURCE: must"),
        ((), 2, "holdlog history: the following arguments are required: NAMESPACE|RESOURCE"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: tuple[str, ...], code: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.claim("lib/", agent="ann")
        for number in range(3):
            store.set("n", "k", number, updated_by="ann")
    assert run("history", str(tmp_path / "state.db"), *words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(error)
    assert "\x1b" not in err
    assert err.count("\n") == (2 if code == 1 else 1)


def test_name_that_imitates_a_terminal_command_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.claim("src/аnn.py", agent="ann", note="x" * 200)
    assert run("history", str(tmp_path / "state.db"), "src/") == 0
    out = capsys.readouterr().out
    assert "src/аnn.py (mixed scripts)" in out
    assert "…" in out
