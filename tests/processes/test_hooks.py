"""Hooks as hosts run them: real hosts, hook processes and stdio servers over one repository."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import observations
from tests.support.processes.hook_host import PATIENT
from tests.support.processes.hosts import EDIT, ENVIRONMENT, Host, commit_policy, held, run_hook, store_of
from tests.support.processes.workers import until
from tests.support.slow import check, slow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


def lease_ends(repository: Path) -> dict[str, float]:
    """Seconds until the lease of each claim ends, once the processes that have ended are known."""
    engine = open_holdlog(store_of(repository))
    try:
        servers = engine.read_now(lambda reader: reader.leases.servers())
        if (sweep := engine.sweep_of_gone(tuple(servers))) is not None:
            engine.writer.run(sweep, engine.caller)
        return {it.resource: it.expires_in_seconds for it in engine.read(engine.requests.claims.board()).claims}
    finally:
        engine.close()


@pytest.mark.check
def test_second_session_is_denied_with_holder_and_remedy(host: Callable[[], Host], repository: Path) -> None:
    one, other = host(), host()
    other.serve()
    assert one.edit("s-1", "a.py") is None
    holder = held(repository)["a.py"]
    for_people, for_agents = one.edit("s-2", "a.py"), other.edit("s-3", "a.py")
    assert for_people is not None
    assert for_agents is not None
    assert for_people.startswith(f"holdlog: a.py is held by {holder} since ")
    assert re.search(r"run: holdlog claim a\.py --agent claude-\w{6} --wait 50, then try again\.$", for_people)
    assert 'call claim(resource="a.py", agent="claude-' in for_agents
    assert other.edit("s-3", "b.py") is None


@pytest.mark.check
def test_agent_with_hooks_and_mcp_is_never_denied_by_itself(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    claude.hook("s-1", "SessionStart", source="startup")
    assert claude.edit("s-1", "a.py") is None  # before its server is connected
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    assert claude.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "already_claimed"
    assert claude.call("claim", "s-1", resource="b.py", agent="alice")["status"] == "claimed"
    assert claude.edit("s-1", "b.py") is None
    (repository / "a.py").write_text("x = 2\n")  # as a formatter does after the edit
    assert claude.edit("s-1", "a.py") is None
    for source, session in (("clear", "s-2"), ("resume", "s-1")):
        claude.hook("s-1" if session == "s-2" else "s-2", "SessionEnd", reason=source)
        claude.hook(session, "SessionStart", source=source)
        assert claude.edit(session, "a.py") is None
        assert claude.edit(session, "b.py") is None
        assert claude.call("claim", session, resource="a.py", agent="alice")["status"] == "already_claimed"
    assert held(repository) == {"a.py": "alice", "b.py": "alice"}
    assert host().edit("s-9", "b.py") is not None


@pytest.mark.check
def test_session_that_resumes_in_a_new_process_is_not_denied(host: Callable[[], Host], repository: Path) -> None:
    first = host()
    first.serve()
    first.hook("s-1", "SessionStart", source="startup")
    assert first.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "claimed"
    assert first.edit("s-1", "b.py") is None
    first.kill()
    second = host()
    second.serve()
    second.hook("s-1", "SessionStart", source="resume")
    assert second.edit("s-1", "a.py") is None
    assert second.edit("s-1", "b.py") is None
    assert held(repository) == {"a.py": "alice", "b.py": "alice"}


@pytest.mark.check
def test_sub_agents_are_holders_whose_end_releases_their_claims(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    assert claude.edit("s-1", "a.py", agent_id="sub-1") is None
    assert "is held by claude-" in (claude.edit("s-1", "a.py", agent_id="sub-2") or "")
    assert "is held by your sub-agent claude-" in (claude.edit("s-1", "a.py") or "")
    assert claude.edit("s-1", "b.py") is None
    assert claude.edit("s-1", "b.py", agent_id="sub-1") is None  # it works for the main agent
    (repository / "a.py").write_text("x = 2\n")
    claude.hook("s-1", "SubagentStop", agent_id="sub-1")
    assert claude.edit("s-1", "a.py", agent_id="sub-2") is None


@pytest.mark.check
@pytest.mark.parametrize("end", ["Stop", "SessionEnd"])
def test_file_that_an_agent_and_its_sub_agent_edit_is_held_until_both_have_ended(
    host: Callable[[], Host], repository: Path, end: str
) -> None:
    claude = host()
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    assert claude.edit("s-1", "a.py", agent_id="sub") is None
    claude.hook("s-1", "SubagentStop", agent_id="sub")
    assert list(held(repository)) == ["a.py"]
    assert claude.edit("s-1", "a.py") is None
    claude.hook("s-1", end)
    assert held(repository) == {}


@pytest.mark.check
def test_restarted_server_denies_no_sub_agent_the_files_of_its_main_agent(
    host: Callable[[], Host], repository: Path
) -> None:
    claude = host()
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    assert claude.call("claim", "s-1", resource="b.py", agent=held(repository)["a.py"])["status"] == "claimed"
    claude.kill_server()
    claude.serve()
    for path in ("a.py", "b.py"):
        assert claude.edit("s-1", path, agent_id="sub-1") is None
    assert host().edit("s-2", "a.py") is not None
    claude.kill_server()
    assert claude.edit("s-1", "a.py", agent_id="sub-1") is None  # without a server
    assert host().edit("s-2", "a.py") is not None


@pytest.mark.check
def test_agents_of_a_session_stay_the_same_holders_after_its_server_restarts(
    host: Callable[[], Host], repository: Path
) -> None:
    claude = host()
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    assert claude.edit("s-1", "b.py", agent_id="sub-1") is None
    before = held(repository)
    claude.kill_server()
    claude.serve()
    assert claude.edit("s-1", "c.py", agent_id="sub-2") is None
    after = held(repository)
    assert {path: after[path] for path in before} == before
    assert claude.edit("s-1", "a.py", agent_id="sub-1") is None
    assert claude.edit("s-1", "b.py", agent_id="sub-2") is not None


@pytest.mark.check
def test_server_that_is_connected_while_its_predecessor_ends_takes_over(
    host: Callable[[], Host], repository: Path
) -> None:
    claude, other = host(), host()
    claude.serve()
    former = claude.server_pid
    claude.read("s-1", "b.py")
    assert claude.edit("s-1", "a.py") is None
    claude.serve()
    assert claude.edit("s-1", "c.py") is None
    os.kill(former, signal.SIGKILL)
    assert other.edit("s-2", "b.py") is None
    (repository / "b.py").write_text("x = 2\n")
    other.edited("s-2", "b.py")
    other.hook("s-2", "SessionEnd", reason="other")
    assert "after you read it" in claude.hook(
        "s-1", EDIT, tool_name="Edit", tool_input={"file_path": str(repository / "b.py")}
    ).get("additionalContext", "")
    claude.hook("s-1", "SessionEnd", reason="other")
    assert held(repository) == {}


@pytest.mark.check
def test_late_end_of_a_session_releases_nothing_of_the_one_that_replaced_it(
    host: Callable[[], Host], repository: Path
) -> None:
    claude = host()
    claude.serve()
    claude.hook("s-1", "SessionStart", source="startup")
    assert claude.edit("s-1", "b.py") is None
    claude.hook("s-2", "SessionStart", source="clear")
    assert claude.edit("s-2", "a.py") is None
    claude.hook("s-1", "SessionEnd", reason="clear")
    assert "a.py" in held(repository)
    claude.hook("s-2", "SessionEnd", reason="other")
    assert held(repository) == {}


@pytest.mark.check
def test_session_that_runs_in_two_hosts_holds_a_file_in_one_of_them(host: Callable[[], Host], repository: Path) -> None:
    one, other = host(), host()
    for each in (one, other):
        each.serve()
    assert one.edit("s-1", "a.py") is None
    assert other.edit("s-1", "a.py") is not None
    assert other.edit("s-1", "b.py") is None
    assert one.edit("s-1", "a.py") is None
    one.kill()
    assert other.edit("s-1", "a.py") is None


@pytest.mark.check
def test_reads_of_an_agent_are_known_after_its_server_has_ended(host: Callable[[], Host], repository: Path) -> None:
    commit_policy(repository, 'stale-reads = "deny"\n')
    claude, other = host(), host()
    claude.read("s-1", "a.py")  # before its server is connected
    claude.serve()
    claude.read("s-1", "b.py")
    for number, (session, name) in enumerate([("s-2", "a.py"), ("s-1", "b.py")]):
        editor, agent = (other, {}) if session == "s-2" else (claude, {"agent_id": "sub-1"})
        assert editor.edit(session, name, **agent) is None
        (repository / name).write_text(f"changed = {number}\n")
        editor.edited(session, name, **agent)
        editor.hook(session, "SubagentStop" if agent else "SessionEnd", reason="other", **agent)
    denied = claude.edit("s-1", "a.py")
    claude.kill_server()
    assert claude.edit("s-1", "b.py") is None  # changed by its own sub-agent, in the session of its former server
    assert other.edit("s-2", "b.py") is not None
    claude.hook("s-1", "Stop")
    assert denied is not None
    assert "after you read it" in denied


@pytest.mark.check
def test_tools_in_two_worktrees_obey_the_policy(host: Callable[[], Host], repository: Path, tmp_path: Path) -> None:
    commit_policy(repository, '[paths]\n"b.py" = "across-worktrees"\n"LICENSE" = "human"\n')
    subprocess.run(["git", "worktree", "add", "-q", ".git/other"], cwd=repository, check=True)
    one, other = host(), Host(repository / ".git" / "other")
    try:
        for each in (one, other):
            each.serve()
        for name, status in (("a.py", "claimed"), ("b.py", "busy")):
            assert one.call_alone("claim", resource=name, agent="ann")["status"] == "claimed"
            assert other.call_alone("claim", resource=name, agent="bob")["status"] == status
        refused = one.call_alone("claim", resource="new.py", also=["LICENSE"], agent="ann")
        assert refused["message"].startswith("also: only a person may change this file (holdlog.toml:3)")
        assert "new.py" not in held(repository)
    finally:
        other.kill()


@pytest.mark.check
def test_silent_holder_sees_who_waits_in_its_next_hook_and_its_next_response(host: Callable[[], Host]) -> None:
    holder, other = host(), host()
    holder.serve()
    other.serve()
    assert holder.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "claimed"
    assert other.call("claim", "s-2", resource="a.py", agent="bob", wait_seconds=0.1)["status"] == "busy"
    text = holder.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: waiting for you: bob (a.py); you hold a.py."
    response = holder.call_alone("claim", resource="a.py", agent="alice")
    assert response["status"] == "already_claimed"
    assert [it["agent"] for it in response["waiting"]] == ["bob"]


@pytest.mark.check
def test_turn_end_releases_what_is_unchanged_or_committed(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    for path in ("a.py", "b.py", "new.py"):
        assert claude.edit("s-1", path) is None
    (repository / "a.py").write_text("x = 2\n")
    (repository / "new.py").write_text("y = 1\n")
    claude.hook("s-1", "Stop")
    assert sorted(held(repository)) == ["a.py", "new.py"]
    subprocess.run(["git", "commit", "-qam", "second"], cwd=repository, check=True)
    claude.hook("s-1", "Stop")
    assert sorted(held(repository)) == ["new.py"]
    text = claude.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: you hold new.py."
    claude.hook("s-1", "SessionEnd", reason="other")
    assert held(repository) == {}


def take(repository: Path, name: str) -> None:
    """A person takes a claim away."""
    engine = open_holdlog(store_of(repository))
    try:
        engine.write(engine.requests.claims.release(name, "ann", forced=True, note="it is mine"), engine.caller)
    finally:
        engine.close()


@pytest.mark.check
@pytest.mark.parametrize("has_server", [False, True])
def test_prompt_reports_what_a_person_took_and_does_not_claim_it_again(
    host: Callable[[], Host], repository: Path, has_server: bool
) -> None:
    claude = host()
    if has_server:
        claude.serve()
    for name in ("a.py", "b.py"):
        assert claude.edit("s-1", name) is None
        (repository / name).write_text("x = 2\n")
        claude.edited("s-1", name)
    claude.hook("s-1", "Stop")
    take(repository, "a.py")
    text = claude.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: a person took a.py (run: holdlog history a.py); you hold b.py."
    assert list(held(repository)) == ["b.py"]


@pytest.mark.check
def test_edit_warns_of_what_a_person_took(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    for name in ("a.py", "b.py"):
        assert claude.edit("s-1", name) is None
    for name in ("a.py", "b.py"):
        take(repository, name)
    assert warned(claude, "a.py") == "holdlog: a person took a.py, b.py (run: holdlog history a.py)."
    text = claude.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: you hold a.py."
    assert list(held(repository)) == ["a.py"]


@pytest.mark.check
def test_edit_warns_of_other_files_whose_claims_have_expired(
    host: Callable[[], Host], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_LEASE_SECONDS", "2")
    claude = host()
    for name in ("a.py", "b.py"):
        assert claude.edit("s-1", name) is None
    until(lambda: held(repository) == {})
    assert warned(claude, "a.py") == "holdlog: lost b.py."


def warned(host: Host, name: str) -> str:
    """The text with which an edit is allowed."""
    tool_input = {"file_path": str(host.folder / name)}
    text: str = host.hook("s-1", EDIT, tool_name="Edit", tool_input=tool_input)["additionalContext"]
    return text


@pytest.mark.check
def test_prompt_claims_nothing_that_the_agent_knows_as_lost(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    claude.serve()
    for name in ("a.py", "b.py", "new.py"):
        assert claude.edit("s-1", name) is None
    for name in ("a.py", "b.py"):
        take(repository, name)
    assert [it["why"] for it in claude.call_alone("status", resource="a.py")["lost"]] == ["forced", "forced"]
    text = claude.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: you hold new.py."
    assert list(held(repository)) == ["new.py"]


@pytest.mark.check
def test_denied_edit_reports_what_a_person_took(host: Callable[[], Host], repository: Path) -> None:
    claude, other = host(), host()
    assert claude.edit("s-1", "a.py") is None
    assert other.edit("s-2", "b.py") is None
    take(repository, "a.py")
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Update File: b.py\n"
    output = claude.hook("s-1", EDIT, tool_name="apply_patch", tool_input={"command": patch})
    assert output["permissionDecisionReason"].endswith(" holdlog: a person took a.py (run: holdlog history a.py).")


@pytest.mark.check
def test_next_edit_reports_what_a_person_took_before_the_server_was_connected(
    host: Callable[[], Host], repository: Path
) -> None:
    claude = host()
    assert claude.edit("s-1", "a.py") is None
    take(repository, "a.py")
    claude.serve()
    claude.hook("s-1", "Stop")
    assert warned(claude, "b.py") == "holdlog: a person took a.py (run: holdlog history a.py)."


@pytest.mark.check
def test_edit_in_cursor_reports_what_a_person_took_before_the_prompt(
    host: Callable[[], Host], repository: Path
) -> None:
    facts = {"conversation_id": "c-1", "workspace_roots": [str(repository)], "cursor_version": "2.4"}

    def edit(name: str) -> str:
        tool = {"tool_name": "Write", "tool_input": {"file_path": str(repository / name)}}
        return run_hook(repository, facts | tool | {"hook_event_name": "preToolUse"}).stdout

    assert edit("a.py") == ""
    take(repository, "a.py")
    run_hook(repository, facts | {"hook_event_name": "beforeSubmitPrompt"})
    assert "a person took a.py" in edit("b.py")


@pytest.mark.check
@pytest.mark.parametrize("is_claimed_since", [False, True])
def test_restarted_server_claims_nothing_that_a_person_took(
    host: Callable[[], Host], repository: Path, is_claimed_since: bool
) -> None:
    claude = host()
    assert claude.edit("s-1", "a.py") is None
    take(repository, "a.py")
    if is_claimed_since:
        other = host()
        assert other.edit("s-2", "a.py") is None
        other.hook("s-2", "SessionEnd", reason="exit")
    claude.serve()
    text = claude.hook("s-1", "SessionStart", source="startup")["additionalContext"]
    assert "; a person took a.py (run: holdlog history a.py)" in text
    assert held(repository) == {}


@pytest.mark.check
def test_server_renews_nothing_after_the_end_of_a_turn(
    host: Callable[[], Host], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_LEASE_SECONDS", "3")
    claude = host()
    claude.serve()
    began = time.monotonic()
    assert claude.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "claimed"
    until(lambda: time.monotonic() - began > 4)
    assert held(repository) == {"a.py": "alice"}  # its server renewed it
    claude.hook("s-1", "Stop")
    until(lambda: held(repository) == {})
    text = claude.hook("s-1", "UserPromptSubmit", prompt="go on")["additionalContext"]
    assert text == "holdlog: lost a.py."
    assert claude.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "claimed"
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 4)
    assert held(repository) == {"a.py": "alice"}


@pytest.mark.check
def test_server_renews_again_once_its_agent_calls_it_although_no_hook_runs(
    host: Callable[[], Host], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_LEASE_SECONDS", "4")
    claude = host()
    claude.serve()
    assert claude.call("claim", "s-1", resource="a.py", agent="alice")["status"] == "claimed"
    claude.hook("s-1", "Stop")
    assert claude.call_alone("claim", resource="b.py", agent="alice")["status"] == "claimed"
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 5)
    assert sorted(held(repository)) == ["a.py", "b.py"]


@pytest.mark.check
def test_interrupted_turn_ends_renewal_after_the_idle_limit(
    host: Callable[[], Host], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_LEASE_SECONDS", "2")
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_IDLE_LIMIT", "3")
    claude = host()
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    until(lambda: held(repository) == {})  # no hook says that the turn has ended
    assert claude.edit("s-1", "a.py") is None
    assert list(held(repository)) == ["a.py"]


@pytest.mark.check
def test_hook_of_a_frozen_server_claims_by_itself(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    claude.serve()
    os.kill(claude.server_pid, signal.SIGSTOP)
    assert claude.edit("s-1", "a.py") is None
    assert list(held(repository)) == ["a.py"]


@pytest.mark.check
def test_obeyed_denial_is_noted_with_the_version_of_the_client(host: Callable[[], Host], repository: Path) -> None:
    claude, other = host(), host()
    claude.serve()
    assert other.edit("s-2", "a.py") is None
    assert claude.edit("s-1", "a.py") is not None
    claude.hook("s-1", "Stop")
    assert list(observations(HookFiles(store_of(repository)))) == ["claude 1"]


@pytest.mark.check
@pytest.mark.parametrize("is_recorded", [True, False])
def test_denial_is_obeyed_if_only_the_holder_changed_the_file(
    host: Callable[[], Host], repository: Path, is_recorded: bool
) -> None:
    claude, other = host(), host()
    assert other.edit("s-2", "a.py") is None
    assert claude.edit("s-1", "a.py") is not None
    (repository / "a.py").write_text("x = 2\n")
    if is_recorded:  # otherwise nobody knows who wrote it
        other.edited("s-2", "a.py")
    claude.hook("s-1", "Stop")
    found = observations(HookFiles(store_of(repository)))
    assert [it.state for it in found.values()] == ["guarded"] * is_recorded


@pytest.mark.check
def test_edit_of_the_holder_does_not_bypass_the_denial_of_another_sub_agent(
    host: Callable[[], Host], repository: Path
) -> None:
    claude = host()
    assert claude.edit("s-1", "a.py", agent_id="sub-1") is None
    assert claude.edit("s-1", "a.py", agent_id="sub-2") is not None
    (repository / "a.py").write_text("x = 2\n")
    claude.edited("s-1", "a.py", agent_id="sub-1")
    assert observations(HookFiles(store_of(repository))) == {}


@pytest.mark.check
def test_content_recorded_before_the_denial_does_not_show_that_it_was_obeyed(
    host: Callable[[], Host], repository: Path
) -> None:
    claude, other = host(), host()
    assert other.edit("s-2", "a.py") is None
    (repository / "a.py").unlink()
    other.edited("s-2", "a.py")
    (repository / "a.py").write_text("x = 2\n")
    assert claude.edit("s-1", "a.py") is not None
    (repository / "a.py").unlink()
    claude.hook("s-1", "Stop")
    assert observations(HookFiles(store_of(repository))) == {}


@pytest.mark.check
@pytest.mark.parametrize("serves", [True, False])
def test_commit_of_an_agent_is_blocked_by_another_sessions_file_and_not_by_its_own(
    host: Callable[[], Host], repository: Path, serves: bool
) -> None:
    one, other = host(), host()
    if serves:
        one.serve()
    assert one.edit("s-1", "a.py") is None
    assert one.edit("s-1", "sub.py", agent_id="sub-1") is None
    assert other.edit("s-2", "b.py") is None
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\n{sys.executable} -m holdlog check --staged || exit 1\n")
    hook.chmod(0o755)
    for name in ("a.py", "b.py", "sub.py"):
        (repository / name).write_text("x = 2\n")
    commit = ("" if serves else "CLAUDE_CODE_SESSION_ID=s-1 ") + "git commit -qm second"
    assert one.run(f"git add a.py sub.py && {commit}") == {"code": 0, "out": "", "err": ""}
    refused = one.run(f"git add b.py && {commit}")
    assert (refused["code"], refused["err"].count("\n")) == (1, 1)
    assert refused["err"].startswith(f"holdlog: b.py: held by {held(repository)['b.py']}, since ")
    by_a_person = subprocess.run(
        ["git", "commit", "-qm", "third"], cwd=repository, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (by_a_person.returncode, "warning: b.py: held by" in by_a_person.stderr) == (0, True)


@pytest.mark.check
@pytest.mark.parametrize("serves", [False, True])
def test_commands_of_an_agent_act_for_it(host: Callable[[], Host], repository: Path, serves: bool) -> None:
    one, other = host(), host()
    if serves:
        other.serve()
    holdlog = ("" if serves else "CLAUDE_CODE_SESSION_ID=s-2 ") + f"{sys.executable} -m holdlog"
    assert one.edit("s-1", "a.py") is None
    assert other.edit("s-2", "b.py") is None
    assert other.edit("s-2", "a.py") is not None
    assert other.run(f"{holdlog} claim a.py --wait 0.01")["code"] == 1
    one.hook("s-1", "SessionEnd", reason="other")
    assert other.run(f"{holdlog} claim a.py --wait 30")["code"] == 0
    assert other.edit("s-2", "a.py") is None
    version = json.loads(other.run(f"{holdlog} claim a.py --json")["out"])["version"]
    assert other.run(f"{holdlog} set n k 1 --version 0 --guard a.py@{version}")["code"] == 0
    assert other.run(f"{holdlog} run --claim a.py --claim b.py -- true") == {"code": 0, "out": "", "err": ""}
    assert len(set(held(repository).values())) == 1
    assert sorted(held(repository)) == ["a.py", "b.py"]
    assert other.run(f"{holdlog} release a.py")["code"] == 0
    assert list(held(repository)) == ["b.py"]
    other.kill()
    assert lease_ends(repository)["b.py"] > 0


@pytest.mark.check
@pytest.mark.parametrize("serves", [False, True])
def test_commands_of_codex_act_for_it(host: Callable[[], Host], repository: Path, serves: bool) -> None:
    codex = host()
    if serves:
        codex.serve()
    assert codex.edit("s-1", "a.py", turn_id="t-1") is None
    assert codex.run(f"CODEX_THREAD_ID=s-1 {sys.executable} -m holdlog claim b.py")["code"] == 0
    assert codex.edit("s-1", "b.py", turn_id="t-1") is None
    assert len(set(held(repository).values())) == 1


def followed(text: str, before: str) -> str:
    """The command that a text names after some words."""
    found = re.search(rf"\b{before}: (holdlog [^,;\n]+)", text)
    assert found is not None, text
    return found[1]


def run_here(host: Host, command: str, variable: str = "") -> str:
    """What a shell command prints, in which `holdlog` is this one."""
    done = host.run(f'holdlog() {{ {variable} {sys.executable} -m holdlog "$@"; }}; {command}')
    return str(done["out"] + done["err"])


@pytest.mark.check
@pytest.mark.parametrize("variable", ["", "CLAUDE_CODE_SESSION_ID=s-2"])
@pytest.mark.parametrize("sub_agent", [{}, {"agent_id": "sub-1"}])
def test_command_of_a_denial_queues_as_the_agent_whose_edit_then_passes(
    host: Callable[[], Host], repository: Path, variable: str, sub_agent: dict[str, str]
) -> None:
    """Without the variable, the command finds out nothing about the agent that runs it."""
    one, other = host(), host()
    assert one.edit("s-1", "a b.py") is None
    denial = other.edit("s-2", "a b.py", **sub_agent) or ""
    with ThreadPoolExecutor() as threads:
        queued = threads.submit(run_here, other, followed(denial, "run"), variable)
        until(lambda: "waiting for you: claude-" in json.dumps(one.hook("s-1", "UserPromptSubmit", prompt="")))
        one.hook("s-1", "SessionEnd", reason="other")
        assert queued.result(30).startswith("claimed a b.py")
    assert other.edit("s-2", "a b.py", **sub_agent) is None
    assert held(repository)["a b.py"] in denial
    other.hook("s-2", "SubagentStop" if sub_agent else "Stop", **sub_agent)
    assert held(repository) == {}, "hooks release what the agent queued for only to edit it"


@pytest.mark.check
@pytest.mark.parametrize("before", ["To wait again", "to queue for it"])
def test_commands_after_a_wait_lead_to_the_edit(host: Callable[[], Host], repository: Path, before: str) -> None:
    one, other = host(), host()
    assert one.edit("s-1", "a.py") is None
    assert other.edit("s-2", "a.py") is not None
    variable = "CLAUDE_CODE_SESSION_ID=s-2"
    waited = run_here(other, "holdlog wait a.py --timeout 0", variable)
    one.hook("s-1", "SessionEnd", reason="other")
    run_here(other, followed(waited, before), variable)
    assert other.edit("s-2", "a.py") is None


@pytest.mark.check
@pytest.mark.parametrize("client", ["cursor", "opencode"])
@pytest.mark.parametrize("serves", [False, True])
def test_command_of_a_denial_acts_for_one_conversation_of_a_shared_server(
    host: Callable[[], Host], repository: Path, client: str, serves: bool
) -> None:
    one, other = host(), host()
    if serves:
        other.serve()
    assert one.edit("s-1", "a.py") is None

    def edit(conversation: str) -> str | None:
        if client == "cursor":
            given = {"conversation_id": conversation, "cursor_version": "2.4", "workspace_roots": [str(repository)]}
            given |= {"tool_name": "Write", "tool_input": {"file_path": str(repository / "a.py")}}
            output = other.output({**given, "hook_event_name": "preToolUse"})
            return output.get("agent_message")
        given = {"client": client, "session_id": conversation, "agent_id": conversation, "cwd": str(repository)}
        given |= {"tool_name": "edit", "tool_input": {"filePath": "a.py"}}
        return other.output(given, "pre-edit").get("reason")

    denial = edit("c-1") or ""
    one.hook("s-1", "SessionEnd", reason="other")
    name = (re.search(rf"{client}-\w{{6}}", denial) or [""])[0]
    run_here(other, f"holdlog claim a.py --agent {name} --wait 50" if serves else followed(denial, "run"))
    assert edit("c-1") is None
    assert held(repository) == {"a.py": name}
    assert edit("c-2") is not None


@pytest.mark.check
def test_claims_of_a_killed_host_end_with_their_lease(host: Callable[[], Host], repository: Path) -> None:
    alone, bound = host(), host()
    bound.serve()
    assert alone.edit("s-1", "a.py") is None
    assert bound.edit("s-2", "b.py") is None
    alone.kill()
    bound.kill()
    ends = until(lambda: ends if (ends := lease_ends(repository))["b.py"] <= 60 else {})  # its server ended
    assert 0 < ends["a.py"] <= 300


@pytest.mark.check
def test_repository_that_has_not_opted_in_stays_as_it_is(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    before = sorted(map(str, tmp_path.rglob("*")))
    edit = {"session_id": "s-1", "hook_event_name": EDIT, "cwd": str(tmp_path)}
    done = run_hook(tmp_path, {**edit, "tool_name": "Write", "tool_input": {"file_path": "a.py"}})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    (tmp_path / "holdlog.toml").write_text("")
    run_hook(tmp_path, {**edit, "tool_name": "Write", "tool_input": {"file_path": "a.py"}})
    assert list(held(tmp_path)) == ["a.py"]


@pytest.mark.check
def test_read_before_there_is_a_store_is_noted(host: Callable[[], Host], repository: Path) -> None:
    commit_policy(repository, 'stale-reads = "deny"\n')
    shutil.rmtree(store_of(repository).parent)
    one, other = host(), host()
    one.read("s-1", "a.py")
    assert other.edit("s-2", "a.py") is None
    (repository / "a.py").write_text("x = 2\n")
    other.edited("s-2", "a.py")
    other.hook("s-2", "SessionEnd", reason="other")
    assert "after you read it" in (one.edit("s-1", "a.py") or "")


@pytest.mark.parametrize("calls", [*check(200), *slow(10_000)])
def test_hook_calls_leave_no_process_and_no_file(host: Callable[[], Host], repository: Path, calls: int) -> None:
    claude = host()
    claude.serve()
    for number in range(3):
        assert claude.edit("s-1", f"{number}.py") is None
    folder = repository / ".git" / "holdlog" / "state.db.hooks"
    files, descriptors = sorted(os.listdir(folder)), len(os.listdir(f"/proc/{claude.server_pid}/fd"))
    for number in range(calls):
        assert claude.edit("s-1", f"{number % 3}.py") is None
    assert sorted(os.listdir(folder)) == files
    assert len(os.listdir(f"/proc/{claude.server_pid}/fd")) == descriptors
    children = Path(f"/proc/{claude.process.pid}/task/{claude.process.pid}/children").read_text().split()
    assert children == [str(claude.server_pid)]


@pytest.mark.check
def test_of_sessions_that_edit_a_file_at_once_one_is_allowed(repository: Path) -> None:
    edit = {"cwd": str(repository), "hook_event_name": EDIT, "tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    command = [sys.executable, "-c", PATIENT]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repository, env=ENVIRONMENT)
        for _ in range(4)
    ]
    for number, racer in enumerate(racers):
        assert racer.stdin is not None
        racer.stdin.write(json.dumps({**edit, "session_id": f"s-{number}"}).encode())
    outputs = [racer.communicate()[0] for racer in racers]
    assert sorted(map(bool, outputs)) == [False, True, True, True]
    assert list(held(repository)) == ["a.py"]


@pytest.mark.check
def test_running_server_obeys_a_new_commit_of_the_policy(host: Callable[[], Host], repository: Path) -> None:
    claude = host()
    claude.serve()
    assert claude.edit("s-1", "a.py") is None
    policy = '[paths]\n"b.py" = "human"\n'
    (repository / "holdlog.toml").write_text(policy)
    assert claude.edit("s-1", "b.py") is None  # the file is not committed
    claude.hook("s-1", "SessionEnd", reason="other")
    commit_policy(repository, policy)
    denied = claude.edit("s-1", "b.py")
    assert denied is not None
    assert denied.startswith("holdlog: only a person may change b.py (holdlog.toml:2).")
