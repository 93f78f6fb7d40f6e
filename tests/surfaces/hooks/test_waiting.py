"""Who holds a file and who waits for it, as hooks report it to agents."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.texts import describe_denial, describe_stale, describe_warning
from holdlog.adapters.operating_system.ancestry import HostProcess, host_process
from holdlog.adapters.policy.policy import DEFAULT_RULE
from holdlog.domain.claims.lease import BY_LEASE, SECOND
from holdlog.domain.refusals import Hold
from tests.surfaces.hooks.test_formats import edit, hook

HELD = "holdlog: waiting for you: bob (a.py); finish these files first."


def queue(store: Path, resource: str, agent: str = "bob") -> None:
    """Let an agent of another session queue for a resource."""
    engine = open_holdlog(store, session=SessionId("option", f"session of {agent}"))
    engine.kept_by = BY_LEASE
    call = engine.requests.claims.claim(resource, agent, wait_seconds=20)
    engine.writer.run(call.command, engine.joined(engine.caller))
    engine.close()


def call_of(kind: str) -> dict[str, Any]:
    """A call of a hook that the fast lane answers with nothing, if nobody waits."""
    match kind:
        case "shell":
            return {**edit("PreToolUse", "", tool="Bash"), "tool_input": {"command": "pytest -q"}}
        case "edit":
            return edit("PreToolUse", "a.py")
        case "post-edit":
            return edit("PostToolUse", "a.py")
        case _:
            return edit("PostToolUse", "other.py", tool="Read")


@pytest.mark.parametrize("kind", ["shell", "edit", "post-edit", "read"])
def test_holder_is_informed_of_each_waiter_once_by_its_next_call_of_any_kind(
    kind: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    assert hook(monkeypatch, capsys, call_of(kind)) is None
    queue(store, "a.py")
    assert hook(monkeypatch, capsys, call_of(kind))["hookSpecificOutput"]["additionalContext"] == HELD
    for again in ("shell", "edit", "post-edit", "read"):
        assert hook(monkeypatch, capsys, call_of(again)) is None
    queue(store, "a.py", "eve")
    text = hook(monkeypatch, capsys, call_of(kind))["hookSpecificOutput"]["additionalContext"]
    assert text == HELD.replace("bob (a.py)", "bob (a.py), eve (a.py)")


@pytest.mark.parametrize(("held", "wanted"), [("src/a.py", "src/"), ("src", "src/a.py"), ("src", "src/")])
def test_holder_is_informed_of_waiters_for_what_overlaps(
    held: str, wanted: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("src").mkdir()
    hook(monkeypatch, capsys, edit("PreToolUse", held))
    queue(store, "src-app/a.py")
    queue(store, wanted)
    text = hook(monkeypatch, capsys, call_of("shell"))["hookSpecificOutput"]["additionalContext"]
    assert text == HELD.replace("a.py", wanted)


@pytest.mark.parametrize("event", ["pre-edit", "post-edit", "read"])
def test_plain_form_contains_who_waits_as_a_warning(
    event: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"session_id": "s-1", "cwd": str(store.parents[1]), "paths": ["a.py"], "prompt": "fix it"}
    hook(monkeypatch, capsys, given, "pre-edit")
    queue(store, "a.py")
    assert hook(monkeypatch, capsys, given, event) == {"warning": HELD}


def test_denied_edit_reports_who_waits_for_another_file(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    queue(store, "a.py")
    output = hook(monkeypatch, capsys, edit("PreToolUse", "held.py"))["hookSpecificOutput"]
    assert output["permissionDecisionReason"].endswith(f"then try again. {HELD}")


def test_agent_is_not_informed_of_waiters_for_files_of_others(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cursor(conversation: str, path: str) -> Any:
        facts = {"conversation_id": conversation, "workspace_roots": [str(store.parents[1])], "cursor_version": "2.4"}
        tool = {"tool_name": "Write", "tool_input": {"file_path": str(store.parents[1] / path)}}
        return hook(monkeypatch, capsys, {**facts, **tool, "hook_event_name": "preToolUse"})

    assert cursor("c-1", "a.py") is None
    queue(store, "a.py")
    assert cursor("c-2", "b.py") is None
    assert cursor("c-1", "a.py") == {"agent_message": HELD}
    hook(monkeypatch, capsys, edit("PreToolUse", "b2.py", "s-2"))
    assert hook(monkeypatch, capsys, edit("PreToolUse", "b2.py", "s-2")) is None


def test_waiter_of_the_same_name_is_another_session(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    queue(store, "a.py", "claude-6a840b")
    text = hook(monkeypatch, capsys, call_of("read"))["hookSpecificOutput"]["additionalContext"]
    assert text == HELD.replace("bob", "another session named claude-6a840b")


def denial(store: Path, **facts: Any) -> str:
    """A denial for the agent ann."""
    engine = open_holdlog(store)
    try:
        hold = Hold("a.py", "bob", time.time_ns() // 1000 - 9 * SECOND, 1, 42 * SECOND, 0, ())._replace(**facts)
        return describe_denial(engine, hold, "ann", bound=False)
    finally:
        engine.close()


def test_denial_reports_when_a_file_of_an_ended_process_becomes_free(store: Path) -> None:
    text = denial(store, session_ended=True)
    assert re.search(r"UTC \(9 s\), whose process has ended; it becomes free in 42 s\. Work on something else", text)
    assert "unless it is renewed" not in text
    assert "the claim expires in 42 s unless it is renewed" in denial(store)


def test_denial_never_names_the_agent_itself_without_its_other_session(store: Path) -> None:
    assert "a.py is held by another session named ann since" in denial(store, held_by="ann")
    assert "a.py is held by your sub-agent ann/x since" in denial(store, held_by="ann/x")
    assert "a.py is reserved for another session named ann" in denial(store, held_by="ann", in_line=True)


@pytest.mark.parametrize("ahead", [1, 3600, 100_000])
def test_denial_has_no_time_in_the_future_after_the_clock_was_set_back(store: Path, ahead: int) -> None:
    text = denial(store, claimed_at=time.time_ns() // 1000 + ahead * SECOND, expires_in=-5 * SECOND)
    assert text.startswith("holdlog: a.py is held by bob; the claim expires in 0 s unless it is renewed.")


def test_other_texts_name_another_session_of_the_same_name(store: Path) -> None:
    from holdlog.adapters.api.claims.files import FileChange
    from holdlog.domain.times import utc

    engine = open_holdlog(store)
    hold = Hold("a.py", "ann", 0, 1, 0, 0, ())
    change = FileChange(agent="ann", at=utc(0), position=1, sha256="0")
    assert "another session named ann changed a.py at" in describe_stale(engine, "a.py", change, "ann")
    assert "held by another session named ann since" in describe_warning(engine, hold, DEFAULT_RULE, "ann")
    engine.close()


@pytest.mark.parametrize("name", ["-x.py", "a b.py", "it's.py"])
def test_command_of_a_denial_names_any_file(store: Path, name: str) -> None:
    import shlex

    words = shlex.split(denial(store, resource=name).partition("run: ")[2].partition(", then")[0])
    assert words == ["holdlog", "claim", name.replace("-x", "./-x"), "--agent", "ann", "--wait", "50"]


def test_denial_reports_that_the_host_of_the_holder_has_ended(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied() -> str:
        output = hook(monkeypatch, capsys, edit("PreToolUse", "a.py", "s-2"))["hookSpecificOutput"]
        return str(output["permissionDecisionReason"])

    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    (session,) = HookFiles(store).all_sessions()
    here = this_process()
    for host, has_ended in ((here, False), (here._replace(started="another process"), True)):
        with HookFiles(store).change(session) as notes:
            notes.host = host
        assert ("whose process has ended; it becomes free in 5 min." in denied()) is has_ended


def this_process() -> HostProcess:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = host_process(child.pid)
        child.communicate(b"\n")
    assert found is not None
    return found
