"""In which conversation a process acts that has none of its own: a stdio server, or a command in a shell; and what
conversations of one host process get of each other: nothing, unless one goes on as another."""

import copy
import fcntl
import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import SHELL, Adopt, Conversation, Rename, list_candidates, name_call
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.hooks.clients import CLIENTS, Project
from holdlog.adapters.operating_system.processes import identify_process, is_alive
from holdlog.adapters.operations.claims import Claim
from holdlog.adapters.operations.steps import claim, take_steps
from holdlog.adapters.stores.sql import END_CONVERSATION, PUT_CONVERSATION
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.claims.results import AlreadyClaimed, Claimed
from holdlog.domain.moment import IDLE_LIMIT, SECOND, Caller
from tests.conftest import both_stores
from tests.support.hosts import Host, git, held, repository, store_of, write
from tests.support.library import in_thread
from tests.support.programs import HOLDLOG, environment
from tests.support.waiting import until

pytestmark = pytest.mark.rest

HOST = "boot/1/7/100"


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    opened = open_engine(request.getfixturevalue("postgres" if kind == "postgres" else "db"))
    yield opened
    opened.close()


def note(engine: Engine, session: str, agent: str = "", call: str = "", **facts: Any) -> None:
    calls = {"call-1": call} if call else {}
    row = Conversation(session, agent, f"claude-{session}{agent}", HOST, engine.store.steady(), calls, False, ())
    with engine.write_alone():
        engine.store.execute(PUT_CONVERSATION, row._replace(**facts).encode())


def find(engine: Engine, call: str = SHELL, host: str | None = HOST, **environ: str) -> str | None:
    with patch.dict(os.environ, environ, clear=True):
        candidates = list_candidates(engine.store, host, call)
    return candidates[0].name if len(candidates) == 1 else None


@both_stores
def test_only_live_conversation_of_the_host_is_the_one(engine):
    assert find(engine) is None
    note(engine, "s-1")
    assert (find(engine), find(engine, host="boot/1/8/100"), find(engine, host=None)) == ("claude-s-1", None, None)
    note(engine, "s-2")
    assert find(engine) is None
    note(engine, "s-2", has_ended=True)
    note(engine, "s-3", seen_at=engine.store.steady() - IDLE_LIMIT)
    assert find(engine) == "claude-s-1"
    with engine.write_alone():
        engine.store.execute(END_CONVERSATION, {"session": "s-1"})
    assert find(engine) is None


@both_stores
def test_announced_call_names_the_conversation_and_the_agent(engine):
    note(engine, "s-1")
    note(engine, "s-2")
    note(engine, "s-2", "7", SHELL)
    assert (find(engine), find(engine, name_call("alice"))) == ("claude-s-27", None)
    note(engine, "s-1", call=name_call("alice"))
    assert (find(engine), find(engine, name_call("alice"))) == ("claude-s-27", "claude-s-1")
    note(engine, "s-1", call=SHELL)
    assert find(engine) is None
    assert find(engine, CLAUDE_CODE_SESSION_ID="s-1") == "claude-s-1"
    assert find(engine, CLAUDE_CODE_SESSION_ID="s-9") is None


@both_stores
def test_conversation_that_goes_on_under_another_id_keeps_what_it_holds(engine):
    before, after = Caller("s-1", host=HOST), Caller("s-2", host=HOST)
    for agent, name in (("alice", "src/a.py"), ("alice/tests", "src/b.py")):
        assert engine.run(Acquire(name, agent), before)
    engine.run(Adopt("s-1"), after)
    for agent, name in (("alice", "src/a.py"), ("alice/tests", "src/b.py")):
        assert isinstance(engine.run(Acquire(name, agent), after), AlreadyClaimed)
    assert not engine.run(Acquire("src/a.py", "alice"), before)


def test_conversations_are_forgotten_with_their_store(tmp_path: Path):
    engine = open_engine(tmp_path / "state.db")
    note(engine, "s-1")
    engine.close()
    engine = open_engine(tmp_path / "state.db")
    assert find(engine) == "claude-s-1"
    engine.close()


@both_stores
def test_what_one_agent_had_is_handed_on_without_that_of_others(engine):
    before, after = Caller("process-1", host=HOST), Caller("s-1", host=HOST)
    for agent, name in (("ann", "src/a.py"), ("ann/tests", "src/b.py"), ("bob", "src/c.py")):
        assert engine.run(Acquire(name, agent), before)
    engine.run(Adopt("process-1", "ann"), after)
    assert isinstance(engine.run(Acquire("src/a.py", "ann"), after), AlreadyClaimed)
    assert isinstance(engine.run(Acquire("src/b.py", "ann/tests"), after), AlreadyClaimed)
    assert engine.run(Acquire("src/c.py", "bob"), after).status == "busy"
    assert isinstance(engine.run(Acquire("src/c.py", "bob"), before), AlreadyClaimed)


def wait_for(engine: Engine, agent: str, caller: Caller) -> Any:
    """A call that queues for src/a.py."""
    command = Claim.parse({"resource": "src/a.py", "agent": agent, "wait_seconds": 50})
    waiting = in_thread(take_steps, claim(command, caller, engine), engine)
    until(lambda: engine.store.read("SELECT 1 FROM claims WHERE is_ticket = 1", {}))
    return waiting


@both_stores
def test_call_that_waits_gets_its_turn_where_its_conversation_goes_on(engine):
    before, after, other = (Caller(name, host=HOST) for name in ("s-1", "s-2", "s-9"))
    assert engine.run(Acquire("src/a.py", "ben"), other)
    waiting = wait_for(engine, "ann", before)
    engine.run(Adopt("s-1"), after)
    engine.run(Release("ben"), other)
    assert isinstance(waiting.result(), Claimed)
    assert isinstance(engine.run(Acquire("src/a.py", "ann"), after), AlreadyClaimed)


@both_stores
def test_new_name_of_an_agent_holds_what_hooks_claimed_and_no_waiter_gets_it(engine):
    own, other = Caller("s-1", host=HOST), Caller("s-9", host=HOST)
    version = engine.run(Acquire("src/a.py", "claude-1"), own).version
    assert engine.run(Acquire("src/b.py", "claude-1"), own)
    engine.run(Call("claude-1", begins="t-1", lasts=SECOND), own)
    waiting = wait_for(engine, "ben", other)
    engine.run(Rename("claude-1", "ann", (("src/a.py", version),)), own)
    assert isinstance(engine.run(Acquire("src/a.py", "ann"), own), AlreadyClaimed)
    assert engine.run(Acquire("src/b.py", "ann"), own).status == "busy"
    rows = engine.store.read("SELECT agent, open_calls FROM holders WHERE session = 's-1'", {})
    assert {agent: "t-1" in (calls or "") for agent, calls in rows} == {"ann": True, "claude-1": False}
    engine.run(Release("ann"), own)
    assert isinstance(waiting.result(), Claimed)


# --- several conversations of one host process


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def one(root: Path) -> Iterator[Host]:
    host = Host(root, "s-1")
    host.hook("SessionStart", source="startup")
    yield host
    host.kill()


def another(host: Host, name: str, source: str = "startup") -> Host:
    """A conversation of the same process."""
    other = copy.copy(host)
    other.facts = {**host.facts, "session_id": name}
    other.hook("SessionStart", source=source)
    return other


def call(host: Host, **arguments: Any) -> Any:
    """Call claim() with both of its hooks."""
    result = host.call("claim", **arguments)
    host.hook("PostToolUse", tool_name="mcp__holdlog__holdlog_claim", tool_input=arguments)
    return result


def call_without_hook(host: Host, **arguments: Any) -> Any:
    result = host._ask(call="tools/call", params={"name": "holdlog_claim", "arguments": arguments})
    return result["structuredContent"]


def sessions(root: Path) -> dict[str, str]:
    """The session that holds each resource."""
    engine = open_engine(store_of(root))
    rows = dict(engine.store.read("SELECT resource, session FROM claims", {}))
    engine.close()
    return rows


def test_agents_of_one_name_in_two_conversations_are_two_holders(root, one):
    two = another(one, "s-2")
    one.serve()
    assert call(one, resource="y", agent="bob")["status"] == "claimed"
    assert call(two, resource="x", agent="bob")["status"] == "claimed"
    assert call(one, resource="x", agent="bob")["status"] == "busy"
    assert call(two, resource="x", agent="bob")["status"] == "already_claimed"
    assert sessions(root) == {"y": "s-1", "x": "s-2"}


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_hooks_of_a_host_see_the_end_of_our_own_calls_too(client, tmp_path):
    project = Project(str(tmp_path), str(tmp_path))
    entries = [entry for target in CLIENTS[client].targets(project) for entry in target.entries]
    groups = {entry.path[1]: entry.value for entry in entries if entry.path[0] == "hooks"}
    for event in ("PreToolUse", "PostToolUse"):
        assert re.fullmatch(groups[event]["matcher"], "mcp__holdlog__holdlog_claim")


def test_shell_commands_of_two_conversations_in_one_terminal_are_two_holders(root):
    engine = open_engine(store_of(root))
    for name in ("s-1", "s-2"):
        note(engine, name, host=identify_process(os.getpid()))
    engine.close()
    control, terminal = os.openpty()
    script = f"sh -c '{HOLDLOG} claim custom://x --agent bob; echo $?'; " * 2
    done = subprocess.run(
        ["sh", "-c", script], cwd=root, env=environment(), stdin=terminal, stdout=subprocess.PIPE, check=True,
        text=True, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    for descriptor in (control, terminal):
        os.close(descriptor)
    assert [line for line in done.stdout.splitlines() if line in ("0", "1")] == ["0", "1"]


def test_call_that_may_be_of_two_conversations_gets_a_receipt_and_neither_acts_as_it(root, one):
    two = another(one, "s-2")
    one.serve()
    claimed = call_without_hook(two, resource="src/a.py", agent="bob")
    assert claimed["status"] == "claimed"
    busy = call_without_hook(one, resource="src/a.py", agent="bob")
    assert (busy["status"], busy["same_name"]) == ("busy", True)
    assert call(one, resource="y", agent="ann")["status"] == "claimed"
    assert one.edit("src/a.py") != ""
    assert sessions(root) == {"src/a.py": claimed["receipt"], "y": "s-1"}
    again = call_without_hook(two, resource="src/a.py", agent="bob", receipt=claimed["receipt"])
    assert again["status"] == "already_claimed"


def test_names_that_two_conversations_have_announced_are_of_neither(one):
    two = another(one, "s-2")
    one.serve()
    for host in (one, two):
        host.hook("PreToolUse", tool_name="mcp__holdlog__holdlog_claim", tool_input={"resource": "x", "agent": "bob"})
    assert "receipt" in call_without_hook(one, resource="x", agent="bob")
    assert call_without_hook(two, resource="x", agent="bob")["status"] == "busy"


def test_what_an_agent_claimed_before_its_hooks_ran_is_its_own_and_that_of_others_is_not(root):
    host = Host(root, "s-1")
    try:
        host.serve()
        for agent, name in (("ann", "src/a.py"), ("bob", "src/b.py")):
            assert call_without_hook(host, resource=name, agent=agent)["status"] == "claimed"
        assert host.edit("src/b.py") != ""
        assert call(host, resource="src/a.py", agent="ann")["status"] == "already_claimed"
        assert host.edit("src/a.py") == ""
        assert sessions(root)["src/a.py"] == "s-1"
        assert sessions(root)["src/b.py"].startswith("process-")
    finally:
        host.kill()


def test_claims_from_before_the_hooks_are_of_no_conversation_once_there_are_two(root):
    host = Host(root, "s-1")
    try:
        host.serve()
        assert call_without_hook(host, resource="src/a.py", agent="ann")["status"] == "claimed"
        two = another(host, "s-2")
        host.hook("SessionStart", source="startup")
        assert call(two, resource="src/a.py", agent="ann")["status"] == "busy"
        two.end()
        assert call(host, resource="src/a.py", agent="ann")["status"] == "busy"
    finally:
        host.kill()


@pytest.mark.parametrize("ends", [True, False])
def test_conversation_that_is_resumed_in_a_new_process_lives_in_that(root, one, ends):
    """As with `claude --continue`, which keeps the id of the conversation."""
    one.change("src/a.py", "x = 2\n")
    if ends:
        one.end()
    one.kill()
    again, two = Host(root, "s-1"), Host(root, "s-2")
    try:
        again.hook("SessionStart", source="resume")
        again.change("src/a.py", "x = 3\n")
        assert "whose process has ended" not in two.edit("src/a.py")
        assert json.loads(again.command("holdlog status src/a.py --json").out)["holder_connected"]
    finally:
        again.kill()
        two.kill()


def test_only_the_conversation_that_its_host_says_goes_on_gets_what_ended_with_clear(root, one):
    two = another(one, "s-2")
    assert one.edit("src/a.py") == ""
    before = held(root)
    one.hook("SessionEnd", reason="clear")
    two.hook("UserPromptSubmit", prompt="go on")
    assert two.edit("src/a.py") != ""
    assert another(one, "s-3").edit("src/a.py") != ""
    assert another(one, "s-4", source="clear").edit("src/a.py") == ""
    assert (held(root), sessions(root)) == (before, {"src/a.py": "s-4"})
    assert another(one, "s-5", source="clear").edit("src/a.py") != ""


@pytest.mark.parametrize("seconds", [0, 60])
def test_of_two_conversations_that_ended_or_one_that_ended_long_ago_none_goes_on(root, one, seconds):
    two = another(one, "s-2")
    assert one.edit("src/a.py") == two.edit("src/b.py") == ""
    one.hook("SessionEnd", reason="clear")
    if seconds:
        engine = open_engine(store_of(root))
        with engine.write_alone():
            ago = {"seconds": seconds * SECOND}
            engine.store.execute("UPDATE conversations SET seen_at = seen_at - :seconds WHERE has_ended = 1", ago)
        engine.close()
    else:
        two.hook("SessionEnd", reason="clear")
    three = another(one, "s-3", source="clear")
    assert three.edit("src/a.py") != ""
    assert three.edit("src/b.py") != ""


def test_what_a_conversation_changed_before_clear_is_still_its_own(root, one):
    one.change("src/a.py", "x = 2\n")
    current = one
    for later in ("s-2", "s-3"):
        current.hook("SessionEnd", reason="clear")
        current = another(one, later, source="clear")
        assert current.denied("git stash") == ""
    assert "src/a.py" in another(one, "s-4").denied("git stash")


def test_agent_that_names_itself_keeps_its_files_from_a_waiter_and_its_sub_agents(root, one):
    sub = copy.copy(one)
    sub.facts = {**one.facts, "agent_id": "sub-1"}
    assert one.edit("src/a.py") == one.edit("own.py") == sub.edit("src/b.py") == ""
    engine = open_engine(store_of(root))
    waiting = wait_for(engine, "ben", Caller("s-9"))
    one.hook("PreToolUse", tool_name="mcp__holdlog__holdlog_set", tool_input={"updated_by": "ann"})
    assert one.edit("src/a.py") == sub.edit("own.py") == ""
    holders = held(root)
    assert (holders["src/a.py"].partition("/")[0], holders["src/b.py"].partition("/")[0]) == ("ann", "ann")
    write(root / "src/a.py", "x = 2\n")
    git(root, "commit", "-qam", "second")
    sub.hook("SubagentStop")
    one.hook("Stop")
    assert isinstance(waiting.result(), Claimed)
    engine.close()


def test_what_an_agent_claimed_under_one_name_is_not_that_of_its_other_name(root, one):
    one.serve()
    assert call(one, resource="src/a.py", agent="w1")["status"] == "claimed"
    assert call(one, resource="src/a.py", agent="w2")["status"] == "busy"
    assert call(one, resource="src/a.py", agent="w1")["status"] == "already_claimed"
    assert one.edit("src/a.py") == ""
    assert held(root) == {"src/a.py": "w1"}


def end_server(host: Host) -> None:
    """End the only child of a host, as one does that restarts its server."""
    with open(f"/proc/{host.process.pid}/task/{host.process.pid}/children") as file:
        (child,) = map(int, file.read().split())
    server = identify_process(child)
    os.kill(child, signal.SIGTERM)
    until(lambda: is_alive(server) is False)


def test_end_of_a_server_leaves_what_a_conversation_holds_to_no_other_of_its_host(root, one):
    two = another(one, "s-2")
    one.serve()
    for host, name in ((one, "src/a.py"), (two, "src/b.py")):
        assert call(host, resource=name, agent="bob")["status"] == "claimed"
    end_server(one)
    assert two.edit("src/a.py") != ""
    one.serve()
    assert call(two, resource="src/a.py", agent="bob")["status"] == "busy"
    assert call(one, resource="src/a.py", agent="bob")["status"] == "already_claimed"
    assert sessions(root) == {"src/a.py": "s-1", "src/b.py": "s-2"}


def test_end_of_a_sub_agent_under_the_name_of_its_agent_ends_nothing_of_it(root, one):
    assert one.edit("src/a.py") == ""
    (name,) = held(root).values()
    sub = copy.copy(one)
    sub.facts = {**one.facts, "agent_id": "sub-1"}
    one.serve()
    assert call(sub, resource="src/b.py", agent=name)["status"] == "claimed"
    sub.hook("SubagentStop")
    assert held(root) == {"src/a.py": name, "src/b.py": name}
    one.end()
    assert held(root) == {}


def test_end_of_a_conversation_ends_what_it_held_under_each_of_its_names(root, one):
    two = another(one, "s-2")
    one.serve()
    for name in ("w1", "w2"):
        assert call(one, resource=f"src/{name}.py", agent=name)["status"] == "claimed"
    assert call(two, resource="src/a.py", agent="w1")["status"] == "claimed"
    one.end()
    assert held(root) == {"src/a.py": "w1"}


def test_end_of_a_command_leaves_nothing_of_the_agent_that_ran_it(root, one):
    sub = copy.copy(one)
    sub.facts = {**one.facts, "agent_id": "sub-1"}
    sub.change("src/a.py", "x = 2\n")
    command = "holdlog run --claim custom://build -- true; sleep 60"
    assert sub.denied(command) == ""
    assert sub.command(command.partition(";")[0]).code == 0
    assert "your sub-agent" in one.edit("src/a.py")
