"""`holdlog replay`: the events of a range as they happened, and the state that they led to."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from holdlog.adapters.cli.replay import Pace
from holdlog.adapters.cli.store import Bar
from tests.support.clock import SECOND, Clock
from tests.support.command_line import run_command
from tests.support.commands import until
from tests.support.thread_story import fork, story


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "state.db")
    with StateStore(path) as store:
        store.set("campaign", "budget", 1000, updated_by="ann")
        store.claim("custom://deploy", agent="ann")
        store.set("campaign", "budget", {"eur": "\u202e2000"}, updated_by="ben", reason="ads")
        store.set("orders", "first", 1, updated_by="ann/tests")
        store.release("custom://deploy", agent="ann", outcome="modified")
        store.claim("custom://merge", agent="ben", mode="shared")
        store.delete("orders", "first", deleted_by="ann")
    return path


def run(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> tuple[int, str, str]:
    return run_command(capsys, "replay", *words, "--db", db)


def shown(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> list[Any]:
    code, out, err = run(capsys, db, "--json", *words)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def positions(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> list[int]:
    return [event["position"] for event in shown(capsys, db, *words)]


def test_replay_prints_the_lines_and_the_json_of_log(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--json"]):
        _, replayed, err = run(capsys, db, *words)
        assert main(["log", "--db", db, *words]) == 0
        assert (replayed, err) == (capsys.readouterr().out, "")
        assert replayed.count("\n") == 7
        assert "\\u202e" in replayed


def test_replay_includes_the_events_of_both_ends(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert positions(capsys, db, "--from", "2", "--to", "#4") == [2, 3, 4]
    assert positions(capsys, db, "--from", "5") == [5, 6, 7]
    assert positions(capsys, db, "--to", "1") == [1]
    times = [event["at"] for event in shown(capsys, db)]
    assert positions(capsys, db, "--from", times[2], "--to", times[4]) == [3, 4, 5]
    printed = [line.split("  ")[1] for line in run(capsys, db)[1].splitlines()]
    assert set(positions(capsys, db, "--from", printed[2], "--to", printed[4])) >= {3, 4, 5}
    assert positions(capsys, db, "--from", "2001-01-01T00:00:00Z", "--to", "now") == [1, 2, 3, 4, 5, 6, 7]
    assert positions(capsys, db, "--from", "now") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--namespace", "campaign"), [1, 3]),
        (("--namespace", "orders", "--prefix", "fir"), [4, 7]),
        (("--namespace", "orders", "--prefix", "x"), []),
        (("--resource", "custom://deploy"), [2, 5]),
        (("--agent", "ann"), [1, 2, 4, 5, 7]),
        (("--kinds", "claim,ValueDeleted", "--from", "3"), [5, 6, 7]),
        (("--thread", "run-7"), []),
    ],
)
def test_replay_applies_the_filters_of_log(
    db: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: list[int]
) -> None:
    assert positions(capsys, db, *words) == expected


def test_replay_without_a_match_is_reported_except_with_json(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, db, "--agent", "nobody") == (0, "", "holdlog: no event of the range matches\n")
    assert run(capsys, db, "--agent", "nobody", "--json") == (0, "", "")


def test_replay_state_is_the_state_at_its_end(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    *events, state = shown(capsys, db, "--from", "3", "--to", "4", "--state")
    assert [event["position"] for event in events] == [3, 4]
    assert (state["kind"], state["as_of"]["position"]) == ("State", 4)
    assert [(it["namespace"], it["key"], it["value"]) for it in state["values"]] == [
        ("campaign", "budget", {"eur": "\u202e2000"}),
        ("orders", "first", 1),
    ]
    assert [(it["resource"], it["held_by"], it["outcome"]) for it in state["claims"]] == [
        ("custom://deploy", "ann", "modified")
    ]
    assert (state["queues"], state["threads"]) == ([], [])
    code, out, _ = run(capsys, db, "--from", "7", "--state")
    _, _, values, claims, threads = (part.splitlines() for part in out.split("\n\n"))
    assert (code, values[0], claims[0], threads) == (0, "values:", "claims and queues:", ["threads:", "  none"])
    assert values[1:] == ['  campaign/budget  v2  ben  {"eur": "\\u202e2000"}']
    assert claims[1].startswith("  custom://merge  ben  shared")


def test_replay_state_shows_only_what_the_filters_select(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    def state(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = shown(capsys, db, "--state", *words)[-1]
        del found["kind"], found["as_of"]
        return found

    of_namespace = state("--namespace", "orders", "--to", "6")
    assert list(of_namespace) == ["values"]
    assert [it["key"] for it in of_namespace["values"]] == ["first"]
    assert state("--namespace", "orders", "--prefix", "x") == {"values": []}
    of_resource = state("--resource", "custom://merge")
    assert list(of_resource) == ["claims", "queues"]
    assert [it["resource"] for it in of_resource["claims"]] == ["custom://merge"]
    of_agent = state("--agent", "ann", "--to", "4")
    assert [it["key"] for it in of_agent["values"]] == ["first"]
    assert [it["held_by"] for it in of_agent["claims"]] == ["ann"]


def test_replay_state_of_a_thread_is_the_thread_then(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(db) as store:
        story(store._engine, "run 7")
        fork(store._engine, "run 8", "run 7", by="bob")
    *events, state = shown(capsys, db, "--thread", "run 7", "--state", "--to", "10")
    assert {event["thread"] for event in events} == {"run 7"}
    assert [(it["thread_id"], it["version"]) for it in state["threads"]] == [("run 7", 3)]
    assert "  run 7  v3" in run(capsys, db, "--thread", "run 7", "--state", "--to", "10")[1]


def test_replay_of_an_empty_log_has_an_empty_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = str(tmp_path / "state.db")
    with StateStore(db):
        pass
    assert run(capsys, db)[:2] == (0, "")
    assert shown(capsys, db, "--state") == [
        {"kind": "State", "as_of": {"position": 0}, "values": [], "claims": [], "queues": [], "threads": []}
    ]
    assert run(capsys, db, "--state")[1].startswith("\nstate before the first event\n\nvalues:\n  none\n")
    assert run(capsys, db, "--from", "1")[2] == "holdlog: --from: is 1, but the log ends at position 0\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--from", "8"), "--from: is 8, but the log ends at position 7"),
        (("--to", "8"), "--to: is 8, but the log ends at position 7"),
        (("--from", "0"), "--from: must be 1 or more"),
        (("--to", "0"), "--to: must be 1 or more"),
        (("--from", "3", "--to", "2"), "--to: is earlier than from; swap the two"),
        (("--from", "now", "--to", "2001-01-02T00:00Z"), "--to: is before the first event of the log"),
        (("--from", "now", "--to", "7"), "--to: is earlier than from; swap the two"),
        (("--to", "2001-01-01 00:00"), "--to: is before the first event of the log"),
        (("--from", "2999-01-01 00:00"), "--from: is in the future; the last position is 7"),
        (("--to", "2999-01-01 00:00"), "--to: is in the future; the last position is 7"),
        (("--from", "soon"), "--from: must be 14:03, "),
        (("--to", "-1"), "--to: must be 14:03, "),
        (("--prefix", "x"), "--prefix: requires namespace"),
        (("--kinds", "claims"), "--kinds: 'claims' is not one of record, claim"),
        (("--speed", "0"), "argument --speed: must be a number from 0.001"),
        (("--speed", "nan"), "argument --speed: must be a number from 0.001"),
        (("--speed", "-1"), "argument --speed: "),
        (("--speed", "fast"), "argument --speed: must be a number from 0.001"),
    ],
)
def test_bad_range_filter_or_speed_is_refused_in_one_line(
    db: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    code, out, err = run(capsys, db, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.partition(": ")[2].startswith(error)


def test_two_times_without_an_event_between_are_a_range_unless_swapped(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = datetime.fromisoformat(shown(capsys, db)[-1]["at"])
    first = last.replace(microsecond=last.microsecond // 1000 * 1000) + timedelta(milliseconds=1)
    earlier, later = first.isoformat(), (first + timedelta(microseconds=5)).isoformat()
    until(lambda: datetime.now(UTC).isoformat() > later)
    assert positions(capsys, db, "--from", earlier, "--to", later) == []
    assert run(capsys, db, "--from", later, "--to", earlier)[0] == 2


def test_replay_state_by_time_leaves_out_what_had_expired_by_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "state.db")
    with StateStore(db) as store:
        store.set("campaign", "budget", 1, updated_by="ann", ttl_seconds=0.2)
        expires = store.get("campaign", "budget").expires_at
        assert expires is not None
    until(lambda: datetime.now(UTC) > expires + timedelta(seconds=0.01))
    by_time = shown(capsys, db, "--to", (expires + timedelta(microseconds=1)).isoformat(), "--state")
    by_position = shown(capsys, db, "--to", "1", "--state")
    assert (by_time[0], by_time[-1]["values"]) == (by_position[0], [])
    assert [it["value"] for it in by_position[-1]["values"]] == [1]
    assert by_time[-1]["as_of"] == by_position[-1]["as_of"] | {"may_change": True}  # the time is less than a minute ago


@pytest.mark.parametrize("words", [(), ("--kinds", "record"), ("--agent", "ann")])
def test_replay_in_many_small_parts_prints_the_same(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    words = (*words, "--from", "2", "--to", "6", "--state", "--json")
    whole = run(capsys, db, *words)
    monkeypatch.setattr("holdlog.adapters.api.events.paging.MAX_PAGE_BYTES", 1)
    monkeypatch.setattr("holdlog.adapters.cli.replay_state.MAX_PAGE", 1)
    assert run(capsys, db, *words) == whole
    assert whole[1].count("\n") > 1


def test_replay_into_a_closed_pipe_ends_quietly(db: str) -> None:
    with StateStore(db) as store:
        for batch in range(3):
            store.transact(
                [
                    {"op": "set", "namespace": "n", "key": f"{batch}-{number}", "value": "x" * 40}
                    for number in range(500)
                ],
                updated_by="ann",
            )
    command = [sys.executable, "-m", "holdlog", "replay", "--db", db]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("1  ")
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(30)) == ("", 0)
    process.stderr.close()


def test_replay_does_not_create_a_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, str(tmp_path / "none.db"))[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_pace_waits_as_long_as_the_events_did_divided_by_the_speed() -> None:
    clock, slept = Clock(now=0), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        clock.move(seconds)

    pace = Pace(10, lambda: clock.now / SECOND, sleep)
    for at in (1_000_000, 1_005, 1_005, 1_025):
        pace.wait(at * SECOND)
    assert slept == []
    pace.wait(1_000_010 * SECOND)
    assert slept == [1.0]
    clock.move(0.5)  # printing took a while
    pace.wait(1_000_020 * SECOND)
    assert slept == [1.0, 0.5]
    pace.wait(1_000_020 * SECOND + 10 * 2 * 86_400 * SECOND)
    assert slept[2:] == [86_400.0, 86_400.0]


def test_replay_with_a_speed_prints_the_same(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, db, "--speed", "1000000") == run(capsys, db)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_shows_rate_and_time_left() -> None:
    clock, terminal = Clock(now=0), Terminal()
    bar = Bar("replay", stream=terminal, clock=lambda: clock.now / SECOND)
    bar.draw(1, 400_000)
    assert terminal.getvalue() == ""
    clock.move(2)
    bar.draw(100_000, 400_000)
    clock.move(0.05)
    bar.draw(100_001, 400_000)
    drawn = "\rreplay [#######                       ] 100,000 of 400,000 events, 50,000/s, 6 s left\x1b[K"
    assert terminal.getvalue() == drawn
    bar.clear()
    assert terminal.getvalue() == drawn + "\r\x1b[K"


def test_progress_is_drawn_only_if_the_events_go_elsewhere(
    db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.cli.store.BAR_EVERY", 0.0)
    for out_is_terminal in (False, True):
        err, out = Terminal(), Terminal() if out_is_terminal else StringIO()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", err)
            patch.setattr("sys.stdout", out)
            assert main(["replay", "--db", db]) == 0
        assert ("of 7 events" in err.getvalue()) is not out_is_terminal
        assert out.getvalue().count("\n") == 7
