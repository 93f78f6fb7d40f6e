"""Sessions on the command line: each command is one of its own, unless `--session` names it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.opening import perform_alone
from tests.support.command_line import run_command
from tests.surfaces.cli.test_claims import Terminal, run

__all__ = ["run"]

NOTHING = "nothing is claimed in the store {}; to claim a file: holdlog claim README.md\n"


def test_commands_with_one_session_are_one_holder(run: Terminal) -> None:
    assert run("claim custom://db --agent ann --session s1").startswith("claimed custom://db (version 1)")
    assert run("claim custom://db --agent ann --session s1").startswith("already_claimed: you hold custom://db since")
    assert run("release --agent ann --session s1") == "released custom://db\n"


def test_command_resumes_a_claim_of_an_ended_command_of_that_name(run: Terminal) -> None:
    run("claim custom://db --agent ann")
    again = run("claim custom://db --agent ann")
    assert again.startswith("claimed custom://db (version 2), resumed from a session that ended at ")
    assert "Work may be half done: look before you edit." in again
    body = json.loads(run("claim custom://db --agent ann --json"))
    assert (body["resumed"], "previous_session_ended_at" in body) == (True, True)


def test_release_by_name_ends_the_claim_of_an_ended_command(run: Terminal) -> None:
    run("claim custom://db --agent ann")
    assert run("release custom://db --agent ann") == "released custom://db (version 2)\n"
    assert run("log").splitlines()[1].endswith("ann released custom://db")
    assert json.loads(run("log --json --last 1"))["former_session"].startswith("shell-")


def test_releasing_everything_shows_what_other_sessions_hold(run: Terminal) -> None:
    run("claim custom://db --agent codex")
    run("claim custom://web --agent codex")
    shown = run("release --agent codex")
    assert shown.code == 1
    assert "this command holds nothing; other sessions of that name hold custom://db, custom://web" in shown
    assert "holdlog release --agent NAME --force --reason TEXT" in shown
    assert sum(line.startswith("codex ") for line in shown.splitlines()) == 2
    assert shown.count("sessions with claims under this name:\n") == 1
    body = json.loads(run("release --agent codex --json").splitlines()[0])
    assert body["held_elsewhere"] == ["custom://db", "custom://web"]


def test_person_takes_all_claims_of_an_agent_at_once(run: Terminal) -> None:
    run("claim custom://db --agent codex")
    run("claim custom://web --agent codex")
    run("claim custom://mine --agent bob")
    refused = run("release --agent codex --force")
    assert (refused.code, "--force: add --reason TEXT" in refused) == (2, True)
    taken = run.words("release", "--agent", "codex", "--force", "--reason", "gone home")
    assert taken.startswith("released custom://db, custom://web\n")
    assert taken.count("last call ") == 2, "who held them, and since when it was silent, is shown"
    assert [line.split()[:2] for line in run("claims").splitlines()] == [["custom://mine", "bob"]]
    again = run.words("release", "--agent", "codex", "--force", "--reason", "again")
    assert (again.code, "already_free: nothing was held\n" in again) == (0, True)


def test_named_session_is_alive_until_its_leases_end(run: Terminal) -> None:
    run("claim custom://deploy --agent ann --session job1")
    busy = run("claim custom://deploy --agent ann --session job2")
    assert (busy.code, "Another session with this name holds it" in busy) == (1, True)
    refused = run("release custom://deploy --agent ann --session job2")
    assert (refused.code, "A person can take it: holdlog release custom://deploy --force" in refused) == (1, True)
    assert run("release custom://deploy --agent ann --session job1") == "released custom://deploy (version 2)\n"


def test_command_makes_a_write_conditional_on_its_claim(run: Terminal) -> None:
    run("claim custom://deploy --agent ann --session job1")
    guarded = "set n k 1 --by ann --version 0 --session {} --guard custom://deploy@1"
    assert run(guarded.format("job2")).startswith("fenced: ")
    assert run(guarded.format("job1")) == "version 1\n"
    wrong = run("set n k 1 --by ann --version 1 --guard custom://deploy")
    assert (wrong.code, "--guard: must be RESOURCE@VERSION" in wrong) == (2, True)
    too_large = run(f"set n k 1 --by ann --version 1 --guard custom://deploy@{'1' * 5_000}")
    assert (too_large.code, "--guard: must be RESOURCE@VERSION" in too_large) == (2, True)


def test_malformed_receipt_is_refused_in_one_line(run: Terminal) -> None:
    refused = run("release custom://z --agent ann --receipt \udcff")
    assert (refused.code, "--receipt: must be the receipt" in refused) == (2, True)


def test_taking_all_claims_by_force_needs_the_agents_name(run: Terminal) -> None:
    run("claim custom://db --agent codex")
    refused = run.words("release", "--force", "--reason", "gone home")
    assert (refused.code, "--force: name a RESOURCE, or with --agent NAME the agent" in refused) == (2, True)


def test_force_takes_more_claims_than_one_call_may_name(run: Terminal) -> None:
    for session in ("s1", "s2"):
        run.words("claim", f"custom://{session}", "--agent", "codex", "--session", session)
        also = [word for n in range(60) for word in ("--also", f"custom://{session}-{n}")]
        run.words("claim", f"custom://{session}-x", "--agent", "codex", "--session", session, *also)
    taken = run.words("release", "--agent", "codex", "--force", "--reason", "gone home")
    assert (taken.code, run("claims")) == (0, NOTHING.format(run.db))


def test_sessions_of_hooks_are_shown_with_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".holdlog" / "state.db"
    store.parent.mkdir(0o700)
    for session in ("s-1", "s-2"):
        call = parse({"session_id": session, "cwd": str(tmp_path), "paths": [f"{session}.py"]}, "pre-edit")
        assert call is not None
        assert perform_alone(call, store, HookFiles(store), None) == {}
    claims, agents = (run_command(capsys, it, "--db", str(store))[1] for it in ("claims", "agents"))
    rows = re.findall(r"^(agent-\w+) +by hooks +1 claim +last call \d+ s ago +(session hook-\w{6})", agents, re.M)
    assert len(set(rows)) == 2
    assert sorted(re.findall(r"(agent-\w+) .*(session hook-\w{6})", claims)) == sorted(rows)
    _, out, _ = run_command(capsys, "agents", "--db", str(store), "--json")
    assert [("session" in it, it["connected"]) for it in json.loads(out)["agents"]] == [(False, True), (False, True)]


def hook(store: Path, event: str, **given: object) -> None:
    """Let a hook of Claude Code do its work in this process."""
    facts = {"session_id": "s-1", "hook_event_name": event, "cwd": str(store.parents[1])}
    text = json.dumps(facts | given).encode()
    assert subprocess.run([sys.executable, "-m", "holdlog", "hook"], input=text, cwd=store.parents[1]).returncode == 0


PROMPT = "rename \u202eparse()\x1b[31m\nto read(),  in every module of the package"


def test_people_see_where_each_session_works_and_what_its_first_prompt_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [it for it in os.environ if it.startswith(("HOLDLOG_", "CLAUDE_", "CODEX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".holdlog" / "state.db"
    store.parent.mkdir(0o700)
    open_holdlog(store).close()
    hook(store, "UserPromptSubmit", prompt=PROMPT)  # nothing else is to be done: the hook does not open the store
    hook(store, "PreToolUse", tool_name="Edit", tool_input={"file_path": str(tmp_path / "a.py")})
    hook(store, "UserPromptSubmit", prompt="go on")
    shown = rf'Claude Code in {re.escape(str(tmp_path))} +"rename parse\(\)\[31m to read\(\), in every…"$'
    for command in ("claims", "agents", "status"):
        assert re.search(shown, run_command(capsys, command, "--db", str(store))[1], re.M), command
        assert "rename" not in run_command(capsys, command, "--db", str(store), "--json")[1]
    (notes,) = store.parent.glob("*.hooks/hook-*.json")
    assert notes.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")  # an agent runs the command
    for command in ("claims", "agents", "status"):
        text = run_command(capsys, command, "--db", str(store))[1]
        assert f"Claude Code in {tmp_path}" in text
        assert "rename" not in text


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("", ""),
        ("fix it", "fix it"),
        ("a" * 40, "a" * 40),
        ("a" * 41, "a" * 39 + "…"),
        ("ä" * 20 + " " + "ö" * 30, "ä" * 20 + "…"),
        ("\n\t x\u200by\u2066 \x00\x9bz ", "xy ?z"),
        (["no text"], ""),
    ],
)
def test_first_words_of_a_prompt_are_short_and_visible(prompt: object, shown: str) -> None:
    call = parse({"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "cwd": "/", "prompt": prompt}, None)
    assert call is not None
    assert call.prompt == shown
