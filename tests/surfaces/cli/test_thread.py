"""`holdlog thread`: threads as a person and as a script read them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.api.threads.conversation import (
    AgentResult,
    TextContent,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
    new_message,
    new_result,
)
from holdlog.adapters.cli.main import main
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller
from tests.support.commands import redact
from tests.support.kinds import InFile
from tests.support.thread_story import append, change_data, fork, result, said, start, story

HOSTILE = "\x1b[2J\x9b31m\u202egnp.exe\x00\u2028\u2066 v9  2026-01-01 00:00:00 UTC  root  system"


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


@pytest.fixture
def engine(db: str) -> Any:
    with StateStore(db) as store:
        yield store._engine


def run(capsys: pytest.CaptureFixture[str], db: str, *words: str, code: int = 0) -> list[str]:
    """The lines of the answer, or of the refusal."""
    assert main(["thread", *words, "--db", db]) == code
    out, error = capsys.readouterr()
    assert error == "" if code == 0 else out == ""
    return (out if code == 0 else error).splitlines()


def fields(line: str) -> list[str]:
    return [it.strip() for it in line.split("  ") if it]


def asked(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> dict[str, Any]:
    (line,) = run(capsys, db, *words, "--json")
    found: dict[str, Any] = json.loads(line)
    return found


# --- list


def test_thread_command_lists_threads_by_id_with_their_counts(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    story(engine)
    fork(engine, "run 8", by="bob")
    start(engine, "a")
    lines = [fields(line) for line in run(capsys, db, "list")]
    assert [tuple(it[:5]) for it in lines] == [
        ("a", "v1", "0 messages", "0 results", "ann"),
        ("run 8", "v4", "1 message", "1 result", "bob"),
        ("run-7", "v7", "1 message", "1 result", "ann"),
    ]
    assert [it[6:] for it in lines] == [[], ["from run-7"], []]
    listed = asked(capsys, db, "list", "--limit", "1", "--after", "a")
    assert [it["thread_id"] for it in listed["threads"]] == ["run 8"]
    assert listed["next_after"] == "run 8"


def test_thread_list_without_threads_names_the_next_step(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = run(capsys, db, "list")
    assert listed == ["there are no threads yet; an agent starts one with thread_start (docs/threads.md)"]


# --- read


def test_thread_command_prints_a_conversation(db: str, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    start(engine)
    call = ToolCall(id="1", name="search", input={"q": "é"})
    found = AgentResult(
        agent_name="writer",
        output=[TextMessage(role="assistant", content="I look it up"), ToolCallMessage(tools=[call])],
        tool_calls=[ToolResultMessage(tool=call, content={"hits": 2})],
    )
    parts = [TextContent(text="be "), TextContent(text="brief")]
    append(engine, said("two\nlines"), new_message(TextMessage(role="system", content=parts)), new_result(found))
    lines = run(capsys, db, "read", "run-7")
    heads = [fields(line) for line in lines if not line.startswith(" ")]
    assert [(it[0], *it[2:]) for it in heads] == [
        ("v2", "ann", "user"),
        ("v3", "ann", "system"),
        ("v4", "ann", "result of writer"),
    ]
    datetime.strptime(heads[0][1], "%Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC)
    assert [line for line in lines if line.startswith(" ")] == [
        "    two",
        "    lines",
        "    be brief",
        "    I look it up",
        '    calls search {"q": "é"}',
        '    search returned {"hits": 2}',
    ]


def test_thread_command_prints_the_newest_items_or_those_after_a_version(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    start(engine)
    append(engine, *(said(f"number {number}") for number in range(60)))

    def told(*words: str) -> list[str]:
        return [line.strip() for line in run(capsys, db, "read", "run-7", *words) if line.startswith(" ")]

    assert told() == [f"number {number}" for number in range(10, 60)]
    assert told("--limit", "2") == ["number 58", "number 59"]
    assert told("--after", "11", "--limit", "2") == ["number 10", "number 11"]
    assert told("--after", "0")[0] == "number 0"
    assert run(capsys, db, "read", "run-7", "--after", "61") == ["there are no messages or results in run-7 there"]
    page = asked(capsys, db, "read", "run-7", "--after", "11", "--limit", "2")
    assert ([it["version"] for it in page["items"]], page["next_after"]) == ([12, 13], 13)
    assert page["items"][0]["message"] == {"type": "text", "role": "user", "content": "number 10"}


def test_thread_command_marks_redacted_and_cleared_items(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    story(engine)
    engine.close()
    InFile(db).doctored(
        "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = zeroblob(32) WHERE POSITION IN (3, 5)"
    )
    (message, found, text) = run(capsys, db, "read", "run-7")
    assert fields(message)[2:] == ["ann", "message, redacted"]
    assert (fields(found)[2:], text) == (["ann", "result of writer"], "    b.py")
    assert [fields(line)[4:] for line in run(capsys, db, "history", "run-7", "plan")] == [["redacted"], ['"search"']]
    assert asked(capsys, db, "history", "run-7", "plan")["history"][0]["redacted"] is True


def test_thread_command_shows_redacted_data_as_redacted(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    story(engine)
    redact(engine.store, 5)
    engine.close()
    assert run(capsys, db, "data", "run-7", "plan") == ["redacted"]
    assert ["plan", "redacted"] in [fields(line) for line in run(capsys, db, "data", "run-7")]
    assert asked(capsys, db, "data", "run-7")["redacted"] == ["plan"]


# --- data and its history


def test_thread_command_prints_data_by_key_and_one_value_in_full(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    start(engine, plan={"step": 1}, notes="x" * 100)
    lines = run(capsys, db, "data", "run-7")
    assert [fields(line)[0] for line in lines] == ["notes", "plan"]
    assert len(lines[0]) < 80
    assert lines[0].endswith("…")
    assert run(capsys, db, "data", "run-7", "plan") == ["{", '  "step": 1', "}"]
    assert asked(capsys, db, "data", "run-7", "plan")["value"] == {"step": 1}
    assert asked(capsys, db, "data", "run-7")["data"] == {"notes": "x" * 100, "plan": {"step": 1}}
    start(engine, "empty")
    assert run(capsys, db, "data", "empty") == ["this thread has no data"]


def test_thread_command_prints_data_larger_than_a_page_in_full(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {f"k{number}": "x" * 250_000 for number in range(9)}
    start(engine, **values)
    found = asked(capsys, db, "data", "run-7")
    assert (found["data"], "next_after" in found) == (values, False)


def test_thread_command_prints_the_history_of_a_key_newest_first(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    start(engine, plan="search", other=1)
    change_data(engine, {"plan": "write"}, by="bob", caller=Caller(reason="it was found"))
    change_data(engine, {"other": 2})
    change_data(engine, {}, "plan")
    lines = [fields(line) for line in run(capsys, db, "history", "run-7", "plan")]
    assert [(*it[:3], *it[4:]) for it in lines] == [
        ("v5", "delete", "ann"),
        ("v3", "write", "bob", '"write"', "# it was found"),
        ("v2", "write", "ann", '"search"'),
    ]
    found = asked(capsys, db, "history", "run-7", "plan", "--limit", "2")["history"]
    assert [(it["version"], it["kind"]) for it in found] == [(5, "delete"), (3, "write")]
    assert ("value" in found[0], found[1]["value"]) == (False, "write")
    assert (found[1]["reason"], found[1]["position"]) == ("it was found", 3)


# --- what it is refused for


@pytest.mark.parametrize("words", [["read", "none"], ["data", "none"], ["data", "none", "k"], ["history", "none", "k"]])
def test_thread_command_reports_a_thread_that_was_never_started(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (line,) = run(capsys, db, *words, code=1)
    assert line == "holdlog: there is no thread none; to see all: holdlog thread list (use --db for another store)"
    assert main(["thread", *words, "--json", "--db", db]) == 1
    refused = json.loads(capsys.readouterr().out)
    assert (refused["status"], refused["thread_id"]) == ("not_found", "none")


@pytest.mark.parametrize("action", ["data", "history"])
def test_thread_command_reports_a_missing_key(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    start(engine, plan=1)
    (line,) = run(capsys, db, action, "run-7", "plans", code=1)
    assert "run-7" in line
    assert "plans" in line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["read", ""], "ID: "),
        (["data", "run-7", "a\u202eb"], "KEY: "),
        (["history", "run-7", " "], "KEY: "),
        (["read", "run-7", "--limit", "1001"], "--limit: "),
        (["read", "run-7", "--after", "-1"], "--after: "),
        (["read", "run-7", "--after", "9"], "--after: is 9, but the thread ends at version 1"),
        (["list", "--limit", "1001"], "--limit: "),
    ],
)
def test_thread_command_names_a_bad_argument_in_one_line(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    start(engine)
    (line,) = run(capsys, db, *words, code=2)
    assert line.startswith(f"holdlog: {named}")


def test_thread_command_does_not_create_a_missing_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = run(capsys, str(tmp_path / "none.db"), "list", code=1)
    assert "there is no store" in line
    assert list(tmp_path.iterdir()) == []


def test_thread_command_reads_threads_in_postgres(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(postgres) as store:
        story(store._engine)
    assert [fields(line)[0] for line in run(capsys, postgres, "list")] == ["run-7"]
    assert run(capsys, postgres, "read", "run-7")[1] == "    which file?"
    assert fields(run(capsys, postgres, "history", "run-7", "files")[0])[1] == "delete"


# --- terminals


@pytest.mark.parametrize("words", [["list"], ["read"], ["data"], ["data", "key"], ["history", "key"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_thread_command_prints_no_terminal_control_characters(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], words: list[str], as_json: bool
) -> None:
    start(engine, key=HOSTILE)
    call = ToolCall(id=HOSTILE, name=HOSTILE, input={HOSTILE: HOSTILE})
    append(
        engine,
        said(f"{HOSTILE}\n{HOSTILE}\r\x85{HOSTILE}"),
        result(HOSTILE),
        new_message(ToolCallMessage(tools=[call])),
        new_message(ToolResultMessage(tool=call, content=HOSTILE)),
    )
    action, *rest = words
    given = [action, *(["run-7"] if action != "list" else []), *rest, *(["--json"] if as_json else [])]
    lines = run(capsys, db, *given)
    assert all(line.isprintable() for line in lines)
    if action == "read" and not as_json:
        assert sum(not line.startswith("    ") for line in lines) == 4  # no line of theirs looks like one of ours


def test_thread_command_uses_colours_and_remarks_on_terminals_only(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(engine)
    append(engine, said("one"), said("two"))
    words = ["thread", "read", "run-7", "--limit", "1", "--db", db]
    assert main(words) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert out.startswith("\x1b[1mv3  ")
    assert error == "holdlog: there is more before this: use --limit N, or --after 0 to read from the beginning\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*words, "--after", "0"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("v2  ")
    assert error == "holdlog: there is more: use --after 2\n"
    assert main(["at", "now", "thread", "run-7", "--db", db]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("action", [[], ["list"], ["read"], ["data"], ["history"]])
def test_help_of_thread_has_an_example(action: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["thread", *action, "--help"])
    told = capsys.readouterr().out
    assert f"\n  holdlog thread {''.join(action)}" in told


def test_thread_command_announces_more_history(
    db: str, engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(engine, plan=1)
    change_data(engine, {"plan": 2})
    words = ["thread", "history", "run-7", "plan", "--db", db]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main([*words, "--limit", "1"]) == 0
    assert capsys.readouterr().err == "holdlog: there is more before this: use --limit N\n"
    assert main([*words, "--limit", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*words, "--limit", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert ([it["version"] for it in told["history"]], told["next_before"]) == ([3], 3)
