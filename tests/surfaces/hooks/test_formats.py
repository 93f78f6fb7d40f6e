"""What hosts pass to hooks and what they read back, as recorded in tests/support/fixtures/hooks/."""

import hashlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import MAX_CONTEXT
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import observations
from holdlog.adapters.hooks.running import run
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.claims.lease import BY_LEASE

FIXTURES = Path(__file__).parents[2] / "support" / "fixtures" / "hooks"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of a folder in which `ann` holds held.py."""
    for name in list(os.environ):
        if name.startswith("HOLDLOG_") or name == "CLAUDE_PROJECT_DIR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".holdlog"
    folder.mkdir()
    with_claim(folder / "state.db", "held.py", "ann")
    return folder / "state.db"


def with_claim(path: Path, resource: str, agent: str) -> None:
    engine = open_holdlog(path, Settings(), SessionId("option", agent))
    engine.kept_by = BY_LEASE
    engine.claim(engine.requests.claims.claim(resource, agent), engine.caller)
    engine.close()


def hook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: Any, *words: str) -> Any:
    """The output of a hook in this process; None if there is none."""
    text = json.dumps(given).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out) if out else None


def held(store: Path, but: str = "held.py") -> list[str]:
    engine: Engine = open_holdlog(store)
    try:
        return [it.resource for it in engine.read(engine.requests.claims.board()).claims if it.resource != but]
    finally:
        engine.close()


def normal(output: Any) -> Any:
    """Without what differs between two runs."""
    text = re.sub(r"\d\d:\d\d:\d\d UTC \(\d+ s\)", "TIME", json.dumps(output))
    return json.loads(re.sub(r"(cursor|codex)-[0-9a-f]{6}", r"\1-NAME", text))


@pytest.mark.parametrize("client", ["claude", "codex", "cursor", "agent"])
def test_host_gets_the_output_that_is_recorded_for_its_input(
    client: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FIXTURES / f"{client}.json").read_text().replace("FOLDER", str(store.parents[1]))
    for number, case in enumerate(json.loads(text)):
        words = [case["event"]] if "event" in case else []
        found = hook(monkeypatch, capsys, case["stdin"], *words)
        assert normal(found) == normal(case["stdout"]), number
        if "holds" in case:
            assert held(store) == case["holds"], number


def test_context_has_at_most_300_characters_in_one_line(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = {"session_id": "s-1", "cwd": str(store.parents[1])}
    paths = [f"{letter * 90}.py" for letter in "abcde"]
    assert hook(monkeypatch, capsys, session | {"paths": paths}, "pre-edit") is None
    text = hook(monkeypatch, capsys, session, "start")["context"]
    assert len(text) <= MAX_CONTEXT
    assert text.startswith("holdlog: your agent name is agent-6a840b")
    assert "\n" not in text


def test_waiter_and_lost_claim_are_reported_to_their_agent(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = {"session_id": "s-1", "cwd": str(store.parents[1])}
    hook(monkeypatch, capsys, session | {"paths": ["a.py", "b.py"]}, "pre-edit")
    engine = open_holdlog(store, session=SessionId("option", "bob"))
    engine.kept_by = BY_LEASE
    call = engine.requests.claims.claim("a.py", "bob", wait_seconds=20)
    engine.writer.run(call.command, engine.joined(engine.caller))
    engine.write(engine.requests.claims.release("b.py", "boss", note="urgent", forced=True), engine.caller)
    engine.close()
    text = hook(monkeypatch, capsys, session, "prompt")["context"]
    assert text == "holdlog: lost b.py; waiting for you: bob (a.py); you hold a.py."
    assert hook(monkeypatch, capsys, session, "prompt")["context"] == (
        "holdlog: waiting for you: bob (a.py); you hold a.py."
    )


def edit(event: str, path: str, session: str = "s-1", tool: str = "Edit") -> dict[str, Any]:
    facts = {"session_id": session, "cwd": os.getcwd(), "hook_event_name": event, "tool_name": tool}
    return {**facts, "tool_input": {"file_path": os.path.join(os.getcwd(), path)}}


def turn_end(session: str = "s-1") -> dict[str, Any]:
    return {"session_id": session, "cwd": os.getcwd(), "hook_event_name": "Stop"}


def test_denial_that_is_obeyed_is_observed(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hook(monkeypatch, capsys, edit("PreToolUse", "held.py")) is not None
    assert observations(HookFiles(store)) == {}
    hook(monkeypatch, capsys, turn_end())
    assert [it.state for it in observations(HookFiles(store)).values()] == ["guarded"]


def test_denied_call_that_was_run_is_observed(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(monkeypatch, capsys, edit("PreToolUse", "held.py"))
    Path("held.py").write_text("y = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "held.py"))
    hook(monkeypatch, capsys, turn_end())
    assert [it.state for it in observations(HookFiles(store)).values()] == ["bypassed"]


def test_edit_that_is_allowed_after_a_denial_is_no_bypass(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(monkeypatch, capsys, edit("PreToolUse", "held.py"))
    engine = open_holdlog(store, Settings(), SessionId("option", "ann"))
    engine.write(engine.requests.claims.release("held.py", "ann"), engine.caller)
    engine.close()
    assert hook(monkeypatch, capsys, edit("PreToolUse", "held.py")) is None
    Path("held.py").write_text("y = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "held.py"))
    assert [it.state for it in observations(HookFiles(store)).values()] == ["guarded"]


def changes_in(store: Path) -> list[tuple[str, str | None]]:
    """Who changed which file, oldest first, as the log has it."""
    engine = open_holdlog(store)
    try:
        return [
            (it.envelope.stream, it.event.sha256)
            for it in engine.read_now(lambda reader: reader.log(0, 100))
            if isinstance(it.event, FileChanged)
        ]
    finally:
        engine.close()


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_change_is_recorded_once_for_each_content(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    assert changes_in(store) == []
    for text in ("x = 2\n", "x = 2\n", "x = 3\n"):
        hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
        Path("a.py").write_text(text)
        hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    Path("a.py").write_text("checked out\n")
    hook(monkeypatch, capsys, edit("PreToolUse", "b.py"))
    Path("a.py").unlink()
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    stream = "claim:a.py"
    assert changes_in(store) == [(stream, sha256("x = 2\n")), (stream, sha256("x = 3\n")), (stream, None)]


def test_edit_of_a_file_that_another_session_changed_after_the_read_warns_once(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    assert hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read")) is None
    assert hook(monkeypatch, capsys, edit("PreToolUse", "a.py", "s-2")) is None
    Path("a.py").write_text("secret = 2\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", "s-2"))
    hook(monkeypatch, capsys, {**turn_end("s-2"), "hook_event_name": "SessionEnd"})
    output = hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))["hookSpecificOutput"]
    assert "permissionDecision" not in output
    assert re.fullmatch(
        r"holdlog: claude-[0-9a-f]{6} changed a\.py at \d\d:\d\d:\d\d UTC, after you read it;"
        r" read it again before you edit it\.",
        output["additionalContext"],
    )
    assert hook(monkeypatch, capsys, edit("PreToolUse", "a.py")) is None


def test_edit_of_a_file_that_a_program_changed_warns_and_names_nobody(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    Path("a.py").write_text("x  =  1\n")
    output = hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))["hookSpecificOutput"]
    assert "permissionDecision" not in output
    assert "by a program or a person" in output["additionalContext"]


def test_file_that_was_read_again_or_never_read_is_edited_without_a_warning(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    for session in ("s-2", "s-3"):
        assert hook(monkeypatch, capsys, edit("PreToolUse", "a.py", session)) is None  # never read
        Path("a.py").write_text(f"x = '{session}'\n")
        hook(monkeypatch, capsys, edit("PostToolUse", "a.py", session))
        hook(monkeypatch, capsys, {**turn_end(session), "hook_event_name": "SessionEnd"})
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    assert hook(monkeypatch, capsys, edit("PreToolUse", "a.py")) is None


def with_policy(store: Path, text: str) -> None:
    """A folder without git obeys its file as it is."""
    (store.parents[1] / "holdlog.toml").write_text(text)


def edited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, session: str) -> None:
    """Let an agent edit a.py, and end its session."""
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py", session))
    Path("a.py").write_text(text)
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", session))
    hook(monkeypatch, capsys, {**turn_end(session), "hook_event_name": "SessionEnd"})


def is_denied(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **more: str) -> bool:
    """Whether session s-1 is denied to edit a.py, because it is stale."""
    output = hook(monkeypatch, capsys, {**edit("PreToolUse", "a.py"), **more}) or {}
    return "after you read it" in output.get("hookSpecificOutput", {}).get("permissionDecisionReason", "")


def test_stale_edit_is_denied_once_for_each_content_even_if_one_returns(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_policy(store, 'stale-reads = "deny"\n')
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    edited(monkeypatch, capsys, "x = 22\n", "s-2")
    assert [is_denied(monkeypatch, capsys) for _ in range(2)] == [True, False]
    hook(monkeypatch, capsys, {**turn_end(), "hook_event_name": "SessionEnd"})
    edited(monkeypatch, capsys, "x = 333\n", "s-2")
    assert [is_denied(monkeypatch, capsys) for _ in range(2)] == [True, False]
    Path("a.py").write_text("x = 22\n")
    assert not is_denied(monkeypatch, capsys)


def test_change_by_another_session_counts_although_the_own_sub_agent_edited_since(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_policy(store, 'stale-reads = "deny"\n')
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    edited(monkeypatch, capsys, "x = 22\n", "s-2")
    for event in ("PreToolUse", "PostToolUse"):
        hook(monkeypatch, capsys, {**edit(event, "a.py"), "agent_id": "sub-1"})
        Path("a.py").write_text("x = 333\n")
    hook(monkeypatch, capsys, {**turn_end(), "hook_event_name": "SubagentStop", "agent_id": "sub-1"})
    assert is_denied(monkeypatch, capsys)


def test_edit_that_restores_what_the_agent_had_read_is_recorded(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    Path("a.py").write_text("x = 22\n")
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    assert changes_in(store) == [("claim:a.py", sha256("x = 1\n"))]


def test_file_outside_of_the_repository_is_edited_without_a_warning(
    store: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outside = str(tmp_path_factory.mktemp("outside") / "a.py")
    hook(monkeypatch, capsys, edit("PostToolUse", outside, tool="Read"))
    Path(outside).write_text("x = 1\n")
    assert hook(monkeypatch, capsys, edit("PreToolUse", outside)) is None
    Path(outside).write_text("x = 22\n")
    assert hook(monkeypatch, capsys, edit("PostToolUse", outside)) is None
    assert changes_in(store) == []
