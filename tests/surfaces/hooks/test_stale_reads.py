"""Edits of files that changed since the agent read them, and which changes are recorded."""

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.reads import Reads, read_now
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from tests.surfaces.hooks.test_formats import edit, hook, turn_end


def log_of(store: Path) -> list[Recorded[Event]]:
    engine = open_holdlog(store)
    try:
        return list(engine.read_now(lambda reader: reader.log(0, 10_000)))
    finally:
        engine.close()


def changes_in(store: Path) -> list[tuple[str, str | None]]:
    """Which file changed to what, oldest first, as the log has it."""
    return [(it.envelope.stream, it.event.sha256) for it in log_of(store) if isinstance(it.event, FileChanged)]


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


def edited(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    session: str,
    path: str = "a.py",
) -> None:
    """Let an agent edit a file, and end its session."""
    hook(monkeypatch, capsys, edit("PreToolUse", path, session))
    Path(path).write_text(text)
    hook(monkeypatch, capsys, edit("PostToolUse", path, session))
    hook(monkeypatch, capsys, {**turn_end(session), "hook_event_name": "SessionEnd"})


def make_stale(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a policy that denies edits of stale files, let session s-1 read a.py, and session s-2 change it after."""
    (store.parents[1] / "holdlog.toml").write_text('stale-reads = "deny"\n')  # without git, in force as it is
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    edited(monkeypatch, capsys, "x = 22\n", "s-2")


def is_denied(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **more: str) -> bool:
    """Whether session s-1 is denied to edit a.py, because it is stale."""
    output = hook(monkeypatch, capsys, {**edit("PreToolUse", "a.py"), **more}) or {}
    return "after you read it" in output.get("hookSpecificOutput", {}).get("permissionDecisionReason", "")


def test_stale_edit_is_denied_once_for_each_content_even_if_one_returns(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stale(store, monkeypatch, capsys)
    assert [is_denied(monkeypatch, capsys) for _ in range(2)] == [True, False]
    hook(monkeypatch, capsys, {**turn_end(), "hook_event_name": "SessionEnd"})
    edited(monkeypatch, capsys, "x = 333\n", "s-2")
    assert [is_denied(monkeypatch, capsys) for _ in range(2)] == [True, False]
    Path("a.py").write_text("x = 22\n")
    assert not is_denied(monkeypatch, capsys)


def test_change_by_another_session_counts_although_the_own_sub_agent_edited_since(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stale(store, monkeypatch, capsys)
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


def test_edit_that_writes_the_same_content_counts_as_a_read(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stale(store, monkeypatch, capsys)
    edited(monkeypatch, capsys, "x = 1\n", "s-3")
    hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))
    Path("a.py").write_text("x  =  1\n")  # by a formatter
    assert not is_denied(monkeypatch, capsys)


def test_file_that_was_removed_again_counts_as_read(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.parents[1] / "holdlog.toml").write_text('stale-reads = "deny"\n')

    def remove(session: str) -> None:
        given = {"tool_name": "Bash", "tool_input": {"command": "rm a.py"}}
        hook(monkeypatch, capsys, edit("PreToolUse", "a.py", session) | given)
        Path("a.py").unlink(missing_ok=True)
        hook(monkeypatch, capsys, edit("PostToolUse", "a.py", session) | given)
        hook(monkeypatch, capsys, {**turn_end(session), "hook_event_name": "SessionEnd"})

    remove("s-1")
    edited(monkeypatch, capsys, "x = 22\n", "s-2")
    remove("s-2")
    remove("s-1")
    Path("a.py").write_text("x = 333\n")  # by a program
    assert not is_denied(monkeypatch, capsys)


def test_content_that_returns_before_an_edit_is_no_change_of_the_agent(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("x = 1\n")
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py", tool="Read"))
    for text in ("x = 22\n", "x = 333\n", "x = 22\n"):  # by a program
        Path("a.py").write_text(text)
        hook(monkeypatch, capsys, edit("PreToolUse", "a.py"))  # the user rejects the first two edits
    hook(monkeypatch, capsys, edit("PostToolUse", "a.py"))  # the third changes nothing
    assert changes_in(store) == []


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


@pytest.mark.check
@pytest.mark.parametrize("change", ["checkout", "formatter"])
def test_thousand_files_changed_by_a_program_add_no_event(
    change: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two hooks, and by a command of the agent whose effect cannot be read off it."""
    monkeypatch.setenv("HOLDLOG_DB", str(store))
    paths = [os.path.abspath(f"{number}.py") for number in range(1_000)]
    for path in paths:
        Path(path).write_text("x=1\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "*.py"], ["commit", "-qm", "first"], ["checkout", "-qb", "other"]):
        subprocess.run([*git, *words], check=True)
    for path in paths:
        Path(path).write_text("x = 1\n")
    subprocess.run([*git, "commit", "-qam", "second"], check=True)
    hook(monkeypatch, capsys, edit("PreToolUse", paths[0]))
    (session,) = {it.envelope.caller.session for it in log_of(store)[1:]}
    reads = Reads(HookFiles(store), str(session), "")
    for path in paths:
        reads.note(path, read_now(path))
    before = len(log_of(store))

    def change_all() -> None:
        if change == "checkout":
            subprocess.run([*git, "checkout", "-q", "-"], check=True)
        else:
            for path in paths:
                Path(path).write_text(Path(path).read_text().replace("1", "1  # formatted"))

    command = {**turn_end(), "tool_name": "Bash", "tool_input": {"command": "cd . && ruff format && git checkout -"}}
    assert hook(monkeypatch, capsys, {**command, "hook_event_name": "PreToolUse"}) is None
    change_all()
    assert hook(monkeypatch, capsys, {**command, "hook_event_name": "PostToolUse"}) is None
    change_all()
    hook(monkeypatch, capsys, {**turn_end(), "hook_event_name": "UserPromptSubmit"})
    hook(monkeypatch, capsys, turn_end())
    assert changes_in(store) == []
    assert len(log_of(store)) <= before + 1  # its own claim is released
    change_all()
    edited(monkeypatch, capsys, "x = 333\n", "s-1", "7.py")
    assert changes_in(store) == [("claim:7.py", sha256("x = 333\n"))]
