"""Bundles of evidence from every store: the program that is published for it verifies them without holdlog."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.support.command_line import run_command
from tests.support.commands import digest_of, rows
from tests.support.evidence import Files, events_of, files_of, kind_of, redact, story, verified
from tests.support.places import Place, engine

Made = Callable[..., Path]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "state.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


@pytest.fixture
def made(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Made:
    """Makes a bundle of the story's store with these options."""
    story(place)
    names = iter(range(100))

    def make(*words: str | Path) -> Path:
        path = tmp_path / f"case{next(names)}.zip"
        code, _, err = run_command(capsys, "evidence", "--db", str(place), "-o", str(path), *map(str, words))
        assert (code, err) == (0, "")
        return path

    return make


def positions(files: Files) -> list[int]:
    return [event["position"] for event in events_of(files)]


def test_range_without_filters_is_proven_complete(made: Made) -> None:
    for words, expected in (
        ((), range(1, 10)),
        (("--from", "4"), range(4, 10)),
        (("--from", "3", "--to", "7"), range(3, 8)),
        (("--from", "9"), [9]),
    ):
        bundle = made(*words)
        assert positions(files_of(bundle)) == [*expected]
        is_proven, line = verified(bundle)
        assert is_proven
        assert f"all events from position {expected[0]} to {expected[-1]}, unchanged since the checkpoint" in line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--namespace", "campaign"), [1, 2, 4, 6, 8]),
        (("--agent", "ann", "--from", "3"), [3, 5, 6, 7, 8]),
        (("--resource", "custom://deploy"), [5, 7]),
        (("--kinds", "ValueDeleted,agent", "--to", "8"), [3, 8]),
    ],
)
def test_filtered_bundle_proves_inclusion_only(made: Made, words: tuple[str, ...], expected: list[int]) -> None:
    bundle = made(*words)
    assert positions(files_of(bundle)) == expected
    is_proven, line = verified(bundle)
    assert is_proven
    assert f"inclusion only, of {len(expected)} of the events" in line
    assert "that no other event matches" in line.partition("Not proven: ")[2]


def test_bundle_without_values_verifies_and_contains_none(made: Made) -> None:
    for words in ((), ("--agent", "ann")):
        bundle = made("--without-values", *words)
        is_proven, line = verified(bundle)
        assert is_proven
        assert "redacted: 0" not in line
        files = files_of(bundle)
        assert all(event["payload"] is event["salt"] is None for event in events_of(files))
        everything = b"".join(files.values())
        for text in (b"script", b"<i>", b"s3cret <", b'paid"', "🦊".encode()):
            assert text not in everything


def test_rows_are_those_of_the_log_and_redacted_texts_stay_hashed(made: Made, place: Place) -> None:
    redact(kind_of(place), 9, "reason")
    events = events_of(files_of(made()))
    with engine(place) as store:
        logged = rows(store)
    assert [list(event.values())[:-2] for event in events] == [
        [it.decode() if number == 4 else it.hex() if isinstance(it, bytes) else it for number, it in enumerate(row)]
        for row in logged
    ]
    last: dict[str, str] = {}
    for event, row in zip(events, logged, strict=True):
        assert event["previous"] == last.get(row[1], "")
        assert digest_of(row, bytes.fromhex(event["previous"])).hex() == event["digest"]
        last[row[1]] = event["digest"]
    assert [event["format"] for event in events] == [None, None, *[2] * 7]
    assert (events[3]["payload"], events[8]["reason"]) == (None, None)
    assert None not in (events[3]["payload_hash"], events[8]["reason_hash"])


def test_refusals_and_agents_are_in_the_folder_of_what_is_not_proven(made: Made) -> None:
    files = files_of(made())
    refusals = [json.loads(line) for line in files["unproven/refusals.jsonl"].splitlines()]
    assert [(it["code"], it["by"]) for it in refusals] == [("conflict", "ben")] * 2
    (agent,) = (json.loads(line) for line in files["unproven/agents.jsonl"].splitlines())
    assert (agent["agent"], agent["name"]) == ("ann", "Ann")
    assert "unproven/refusals.jsonl" not in files_of(made("--namespace", "campaign"))
    assert files_of(made("--agent", "ann"))["unproven/refusals.jsonl"] == b""


def test_changed_or_removed_event_of_the_log_gives_no_bundle(
    made: Made, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, target = kind_of(place), tmp_path / "case.zip"
    for damage, problem in (
        (f"UPDATE stored_events SET payload = '501' WHERE {kind.position} = 6", "event 6 was changed after it"),
        (f"DELETE FROM stored_events WHERE {kind.position} = 6", "events are missing "),
    ):
        kind.run(damage)
        code, out, err = run_command(capsys, "evidence", "--db", str(place), "-o", str(target), "--from", "5")
        assert (code, out) == (2, "")
        assert err.startswith(f"holdlog: {problem}")
        assert not list(tmp_path.glob("*case.zip*"))


def test_kept_checkpoint_that_the_log_does_not_begin_with_gives_no_bundle(
    made: Made, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "checkpoint"
    note.write_bytes(files_of(made())["checkpoint.note"])
    with StateStore(place) as store:
        store.set("orders", "second", 1, updated_by="ben")
    bundle = made("--from", "8", "--checkpoint", note)
    assert positions(files_of(bundle)) == [8, 9]
    assert verified(bundle, "--checkpoint", note)[0]
    changed = note.read_text().replace("\n9\n", "\n8\n")
    words: list[Any] = ["evidence", "--db", str(place), "-o", tmp_path / "other.zip", "--to", "8", "--checkpoint", note]
    note.write_text(changed)
    code, out, err = run_command(capsys, *map(str, words))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "the log does not begin with the events of this checkpoint" in err
    assert not (tmp_path / "other.zip").exists()
