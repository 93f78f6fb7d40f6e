"""What hosts pass to hooks and what they read back, as recorded in tests/support/fixtures/hooks/."""

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
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import MAX_CONTEXT
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import observations
from holdlog.adapters.hooks.running import run
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.lease import BY_LEASE

FIXTURES = Path(__file__).parents[2] / "support" / "fixtures" / "hooks"


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


def noted(store: Path) -> set[str]:
    """Names of the files whose content the agents know."""
    lines = [line for path in store.parent.glob("*.hooks/*.reads") for line in path.read_text().splitlines()]
    return {os.path.basename(json.loads(line)[1]) for line in lines}


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
        if "noted" in case:
            assert case["noted"] in noted(store), number


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
    assert (
        text == "holdlog: a person took b.py (run: holdlog history b.py); waiting for you: bob (a.py); you hold a.py."
    )
    assert hook(monkeypatch, capsys, session, "prompt")["context"] == (
        "holdlog: waiting for you: bob (a.py); you hold a.py."
    )
    output = hook(monkeypatch, capsys, session | {"paths": ["c.py"]}, "pre-edit")
    assert output == {"warning": "holdlog: waiting for you: bob (a.py); finish these files first."}


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


def test_history_shows_modified_where_a_hook_recorded_the_change(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(monkeypatch, capsys, edit("PreToolUse", "new.py"))
    Path("new.py").write_text("y = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "new.py"))
    assert main(["history", "new.py"]) == 0
    assert "  not ended, modified" in capsys.readouterr().out
    hook(monkeypatch, capsys, {"session_id": "s-1", "cwd": str(Path.cwd()), "hook_event_name": "SessionEnd"})
    assert main(["history", "new.py"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("  modified")
