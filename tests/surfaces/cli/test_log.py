"""`holdlog log`: what happened, as a person and as a script read it."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.log_texts import line_of
from holdlog.adapters.cli.main import main
from holdlog.domain.refusals import ConflictError
from holdlog.projections.fold import EVENTS
from tests.support.commands import until
from tests.support.thread_story import fork, story


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


def test_log_line_has_position_time_and_a_sentence(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, db)
    moments = [json.loads(line)["at"] for line in run(capsys, db, "--json")]
    assert [line.split("  ", 2)[:2] for line in lines] == [
        [str(number), f"{at[:10]} {at[11:23]} UTC"] for number, at in enumerate(moments, start=1)
    ]
    assert sentences(lines) == [
        'ann wrote campaign/budget: {"eur": "\\u202e2000"} (reason: ads)',
        "bob claimed custom://deploy: ten minutes",
        "ann deleted campaign/budget (v1 by force)",
    ]


def sentences(lines: list[str]) -> list[str]:
    return [line.split("  ", 2)[2] for line in lines]


def test_log_describes_claims_in_the_words_of_the_web_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "state.db"
    with StateStore(db) as store:
        store.claim("custom://merge", agent="codex", mode="shared", note="release 2")
        waiting = threading.Thread(target=lambda: store.claim("custom://merge", agent="claude", wait_seconds=60))
        waiting.start()
        until(lambda: bool(store.board().queues))
        forced = ["release", "custom://merge", "--force", "--reason", "claude died", "--agent", "root"]
        assert main([*forced, f"--db={db}"]) == 0
        waiting.join()
    with StateStore(db) as store:
        store.claim("custom://docs", agent="ann")
        store.release("custom://docs", agent="ann", outcome="moved", moved_to="custom://book", note="renamed")
    capsys.readouterr()
    assert sentences(run(capsys, db)) == [
        "codex claimed custom://merge (shared): release 2",
        "claude waits for custom://merge",
        "codex lost custom://merge, taken by root: claude died",
        "claude got custom://merge",
        "ann claimed custom://docs",
        "ann released custom://docs, moved to custom://book: renamed",
    ]


def test_log_has_a_sentence_for_every_kind_of_event() -> None:
    """And none of them is the one of kinds that this version does not know."""
    base = {"position": 1, "at": "2026-11-21T15:56:26.675777+00:00", "by": "ann", "version": 1}
    for stream, fields in _FIELDS.items():
        for kind, more in fields.items():
            line = line_of({**base, "stream": f"{stream}:x", "kind": kind, **_NAMES[stream], **more})
            assert line.startswith("1  2026-11-21 15:56:26.675 UTC  ann"), line
            assert kind not in line
    described = {kind for fields in _FIELDS.values() for kind in fields}
    assert described == set(EVENTS) - {"ClaimExpired", "ValueExpired", "LogForked"}
    unknown = line_of({**base, "stream": "claim:x", "kind": "ClaimBlessed", "resource": "x"})
    assert unknown.endswith("  ann ClaimBlessed claim:x")


_NAMES: Final[dict[str, dict[str, str]]] = {
    "claim": {"resource": "x"},
    "record": {"namespace": "n", "key": "k"},
    "thread": {"thread": "run-7"},
    "agent": {"agent": "ann"},
    "token": {"name": "ci"},
    "store": {},
}
_FIELDS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "claim": {
        "ClaimGranted": {"agent": "ann", "mode": "exclusive"},
        "ClaimResumed": {"agent": "ann", "mode": "exclusive", "grant": 1},
        "ClaimReleased": {"agent": "ann", "outcome": "released"},
        "ClaimQueued": {"agent": "ann", "mode": "shared", "also": ["y"]},
        "ClaimUnqueued": {"agent": "ann", "why": "absent"},
        "FileChanged": {"agent": "ann", "sha256": "ab" * 32},
    },
    "record": {"ValueWritten": {"value": 1}, "ValueDeleted": {}},
    "thread": {
        "ThreadStarted": {},
        "MessageAppended": {},
        "ResultAppended": {"agent": "writer"},
        "ResultsCleared": {},
        "ThreadDataChanged": {"written": ["plan"]},
    },
    "agent": {"AgentRegistered": {"model": "gpt-x"}},
    "token": {
        "TokenIssued": {"allow": ["read:*"]},
        "TokenRotated": {"overlap_until": "2026-11-21T15:56:26.675777+00:00"},
        "TokenRevoked": {},
    },
    "store": {
        "PayloadRedacted": {"target": "record:n/k", "versions": [[2, 2], [4, 7]], "part": "payload"},
        "RetentionChanged": {"namespace": "n", "seconds": 86400},
    },
}


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            {"stream": "store:log", "kind": "LogForked", "source": "1f6c", "at_position": 7, "root": "ab"},
            "this log is a copy of store 1f6c, made at its position 7",
        ),
        (
            {"stream": "claim:x", "kind": "ClaimExpired", "resource": "x", "collected": True},
            "ann lost x: the claim expired",
        ),
        (
            {"stream": "claim:x", "kind": "ClaimExpired", "resource": "x", "collected": False},
            "ann lost x: the claim expired before it was used",
        ),
        (
            {"stream": "record:n/k", "kind": "ValueExpired", "namespace": "n", "key": "k"},
            "ann's value expired: n/k",
        ),
    ],
)
def test_log_shows_when_an_end_was_due_not_when_noticed(event: dict[str, Any], sentence: str) -> None:
    noticed, due = "2026-11-21T15:56:26.675777+00:00", "2026-11-21T15:50:00.001000+00:00"
    line = line_of({"position": 4, "at": noticed, "due": due, "by": "ann", "agent": "ann", **event})
    assert line == f"4  2026-11-21 15:50:00.001 UTC  {sentence}"


def test_log_last_prints_the_last_matching_events(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.cli.log.PAGE", 2)  # so that it must look back several times
    with StateStore(db) as store:
        for number in range(60):
            store.set("other", f"k{number}", number, updated_by="bob")
    last = sentences(run(capsys, db, "--last", "2"))
    assert last == ["bob wrote other/k58: 58", "bob wrote other/k59: 59"]
    assert sentences(run(capsys, db, "--last", "1", "--kinds", "claim")) == ["bob claimed custom://deploy: ten minutes"]
    assert len(run(capsys, db, "--last", "5", "--agent", "ann")) == 2
    assert len(run(capsys, db, "--last", "1000")) == 63
    assert sentences(run(capsys, db, "--last", "5", "--limit", "1")) == ["bob wrote other/k55: 55"]


@pytest.mark.parametrize("option", ["--last", "--limit"])
def test_log_with_a_huge_number_prints_every_event(db: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert run(capsys, db, option, str(10**30)) == run(capsys, db)


def test_log_last_of_an_empty_log_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(tmp_path / "state.db"):
        pass
    assert run(capsys, tmp_path / "state.db", "--last", "3") == []


def test_log_without_a_match_is_reported_except_with_json(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--db", str(db), "--agent", "nobody"]) == 0
    assert capsys.readouterr() == ("", "holdlog: no event of the store matches\n")
    assert main(["log", "--db", str(db), "--agent", "nobody", "--json"]) == 0
    assert capsys.readouterr() == ("", "")


def test_log_last_and_after_exclude_each_other(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["log", "--db", str(db), "--last", "3", "--after", "1"])
    assert capsys.readouterr().err.count("\n") == 1


def test_log_command_prints_each_event_as_json(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = run(capsys, db, "--json", "--after", "1", "--kinds", "record", "--limit", "5")
    assert (json.loads(line)["position"], json.loads(line)["kind"]) == (3, "ValueDeleted")
    assert len(run(capsys, db, "--limit", "2")) == 2
    assert len(run(capsys, db, "--resource", "custom://deploy", "--agent", "bob")) == 1


def test_log_prints_thread_events_without_their_contents(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(db) as store:
        story(store._engine, "run 7")
        fork(store._engine, "run 8", "run 7", by="bob")
    assert sentences(run(capsys, db, "--thread", "run 7")) == [
        "ann started thread run 7",
        "ann changed the data of thread run 7: wrote plan, files",
        "ann added a message to thread run 7",
        "ann added a result of writer to thread run 7",
        "ann changed the data of thread run 7: wrote plan; deleted files",
        "ann cleared the results of thread run 7",
        "ann added a result of writer to thread run 7",
    ]
    (began,) = run(capsys, db, "--thread", "run 8", "--limit", "1")
    assert began.endswith("  bob started thread run 8 from run 7 (version 7)")
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


def test_log_follow_can_start_at_a_moment(db: Path) -> None:
    command = [sys.executable, "-m", "holdlog", "log", "--db", str(db), "--follow", "--since", "2", "--limit", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert positions(done.stdout.splitlines()) == ["2", "3"]


def test_log_follow_can_start_with_the_last_events(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "holdlog", "log", "--db", str(db), "--follow", "--last", "1", "--limit", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("3  ")
    with StateStore(db) as store:
        store.set("campaign", "budget", 1, updated_by="ann")
    assert process.stdout.readline().startswith("4  ")
    assert process.wait(30) == 0
    process.stdout.close()


def test_bad_filter_is_refused_in_one_line_with_exit_code_2(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--kinds", "written"], ["--after", "9"], ["--prefix", "x"], ["--thread", ""]):
        assert main(["log", "--db", str(db), *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def positions(lines: list[str]) -> list[str]:
    return [line.partition("  ")[0] for line in lines]


def test_log_since_and_until_include_their_events(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert positions(run(capsys, db, "--since", "2", "--until", "2")) == ["2"]
    assert positions(run(capsys, db, "--since", "#2")) == ["2", "3"]
    times = [line.split("  ")[1] for line in run(capsys, db)]
    assert "2" in positions(run(capsys, db, "--since", times[1], "--until", times[1]))
    assert positions(run(capsys, db, "--until", "2", "--last", "1")) == ["2"]
    assert positions(run(capsys, db, "--since", "2", "--last", "9")) == ["2", "3"]
    assert positions(run(capsys, db, "--after", "1", "--until", "2")) == ["2"]
    assert run(capsys, db, "--since", "now") == []


@pytest.fixture
def refused(db: Path) -> Path:
    """Two refusals between the third event and the fifth, and one after it."""
    with StateStore(db) as store:
        for name in ("ben", "ann/tests"):
            with pytest.raises(ConflictError):
                store.set("campaign", "budget", "secret", updated_by=name, expected_version=7)
        store.set("campaign", "budget", 1, updated_by="ann")
        store.claim("custom://merge", agent="ann")
        assert store.claim("custom://merge", agent="ben").status == "busy"
        store.set("campaign", "budget", 2, updated_by="ann")
    return db


def test_log_lists_refused_calls_among_the_events_by_time(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, refused, "--refusals")
    assert positions(lines) == ["1", "2", "3", "-", "-", "4", "5", "-", "6"]
    _, time, sentence = lines[3].split("  ", 2)
    assert time.endswith(" UTC")
    assert sentence.startswith("ben was refused (conflict): campaign/budget")
    assert "secret" not in "\n".join(lines)
    assert positions(run(capsys, refused, "--refusals", "--last", "2")) == ["-", "6"]
    assert positions(run(capsys, refused, "--refusals", "--since", "4", "--until", "5")) == ["4", "5"]
    assert positions(run(capsys, refused, "--refusals", "--since", "3", "--until", "4")) == ["3", "-", "-", "4"]
    assert positions(run(capsys, refused, "--refusals", "--after", "4", "--limit", "2")) == ["5", "-"]
    assert positions(run(capsys, refused, "--refusals", "--agent", "ben")) == ["-", "-"]
    assert positions(run(capsys, refused, "--refusals", "--since", "now")) == []


def test_log_prints_refused_calls_as_objects_of_their_own_kind(
    refused: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [json.loads(line) for line in run(capsys, refused, "--refusals", "--json")]
    busy = found[-2]
    assert [it["kind"] for it in found if "position" not in it] == ["Refusal"] * 3
    assert list(busy) == ["kind", "at", "code", "by", "what"]
    assert (busy["code"], busy["by"]) == ("busy", "ben")
    assert [it for it in found if "position" in it] == [json.loads(line) for line in run(capsys, refused, "--json")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--since", "9"), "--since: is 9, but the log ends at position 3"),
        (("--since", "3", "--until", "1"), "--until: is earlier than since; swap the two"),
        (("--after", "2", "--until", "2"), "--until: is not after --after; swap the two"),
        (("--since", "soon"), "--since: must be 14:03, "),
        (("--until", "2999-01-01 00:00"), "--until: is in the future; the last position is 3"),
        (("--since", "1", "--after", "1"), "--since: not together with --after; pass one of them"),
        (("--refusals", "--after", "9"), "--after: is 9, but the log ends at position 3"),
        (("--follow", "--until", "3"), "--follow: not together with --until"),
        (("--follow", "--refusals"), "--follow: not together with --refusals"),
        (("--refusals", "--namespace", "campaign"), "--refusals: not together with --namespace; "),
        (("--refusals", "--kinds", "claim"), "--refusals: not together with --kinds; "),
    ],
)
def test_log_refuses_a_bad_range_or_combination_in_one_line(
    db: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    assert main(["log", "--db", str(db), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"holdlog: {error}")


def test_log_command_does_not_create_a_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--db", str(tmp_path / "none.db")]) == 1
    assert list(tmp_path.iterdir()) == []
