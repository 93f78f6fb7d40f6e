"""Hooks as hosts run them: the edit of a file claims it, and a second session is denied it with what to do instead."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdlog
from tests.support.hosts import (
    Host,
    Json,
    Session,
    commit_policy,
    git,
    held,
    is_denied,
    repository,
    run_hook,
    store_of,
    write,
)
from tests.support.library import in_thread
from tests.support.programs import HOLDLOG, Done, environment, run
from tests.support.waiting import PATIENCE, until

rest = pytest.mark.rest


@pytest.fixture
def host(root: Path) -> Iterator[Callable[[str], Host]]:
    hosts = list[Host]()

    def start(name: str, folder: Path = root) -> Host:
        hosts.append(Host(folder, name))
        return hosts[-1]

    yield start
    for each in hosts:
        each.kill()


def claude(session: str, path: str) -> Json:
    return {
        "session_id": session,
        "hook_event_name": "PreToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": path},
    }


def codex(session: str, path: str) -> Json:
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-x = 1\n+x = 2\n*** End Patch"
    return {**claude(session, ""), "turn_id": "1", "tool_name": "apply_patch", "tool_input": {"command": patch}}


def cursor(session: str, path: str) -> Json:
    facts = {"conversation_id": session, "generation_id": "g", "cursor_version": "2.4", "hook_event_name": "preToolUse"}
    facts |= {"workspace_roots": [str(Path(path).parents[1])]}
    return {**facts, "tool_name": "StrReplace", "tool_input": {"path": path}}


def opencode(session: str, path: str) -> Json:
    facts = {"client": "opencode", "session_id": session, "agent_id": session}
    return {**facts, "tool_name": "edit", "tool_input": {"filePath": path}}


def plain(session: str, path: str) -> Json:
    return {"session_id": session, "paths": [path]}


def vscode(session: str, path: str) -> Json:
    facts = {"timestamp": "2026-11-27T10:30:00Z", "sessionId": session, "hookEventName": "PreToolUse"}
    return {**facts, "tool_name": "replace_string_in_file", "tool_input": {"filePath": path, "oldString": "x"}}


def copilot(session: str, path: str) -> Json:
    facts = {"timestamp": 1, "sessionId": session, "hookEventName": "preToolUse"}
    return {**facts, "toolName": "edit", "toolArgs": json.dumps({"path": path})}


CLAUDES = ("hookSpecificOutput", "permissionDecision"), ("hookSpecificOutput", "permissionDecisionReason")
CLIENTS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "claude": (claude, CLAUDES, ""),
    "codex": (codex, CLAUDES, ""),
    "cursor": (cursor, (("permission",), ("user_message",), ("agent_message",)), ""),
    "opencode": (opencode, (("decision",), ("reason",)), "pre-edit"),
    "agent": (plain, (("decision",), ("reason",)), "pre-edit"),
    "vscode": (vscode, (*CLAUDES, ("permissionDecision",)), ""),
    "copilot": (copilot, (("permissionDecision",), ("permissionDecisionReason",)), ""),
}
"""What a client passes for an edit, where its output has the decision and then its reasons, and the hook's word."""


@pytest.mark.parametrize(
    "client",
    ["claude", *(pytest.param(it, marks=rest) for it in ("cursor", "codex", "opencode", "agent", "vscode", "copilot"))],
)
def test_edit_claims_the_file_and_another_session_is_denied_in_its_clients_form(root, client):
    payload, (decision, *reasons), word = CLIENTS[client]

    def edit(session: str) -> Json:
        given = payload(session, str(root / "src/a.py")) | {"cwd": str(root)}
        done = run_hook(given, *([word] if word else []), cwd=root)
        assert done.err == ""
        return json.loads(done.out) if done.out else {}

    def field(output: Any, path: tuple[str, ...]) -> Any:
        for name in path:
            output = output[name]
        return output

    assert edit("s-1") == {}
    (holder,) = held(root).values()
    denial = edit("s-2")
    assert field(denial, decision) == "deny"
    for path in reasons:
        reason = field(denial, path)
        if reason != "deny":
            assert re.match(rf"holdlog: src/a\.py is held by {holder} since ", reason)
    assert edit("s-1") == {}
    assert held(root) == {"src/a.py": holder}


def command_in(denial: str) -> str:
    found = re.search(r"run: (holdlog claim .+), then try again", denial)
    assert found is not None, denial
    return found[1]


def is_waited_for(root: Path) -> bool:
    with holdlog.StateStore(store_of(root)) as store:
        return bool(store.status("src/a.py").queue_length)


def test_command_of_a_denial_queues_for_the_edit_that_then_passes(root, host):
    one, other = Session(root, "s-1"), host("s-2")
    assert one.edit("src/a.py") == ""
    command = command_in(other.edit("src/a.py"))
    queued = in_thread(other.command, command)
    until(lambda: is_waited_for(root))
    one.end()
    assert queued.result().out.startswith("claimed src/a.py")
    assert other.edit("src/a.py") == ""
    assert list(held(root)) == ["src/a.py"]


@rest
def test_denial_names_a_tool_to_an_agent_with_a_server(host, one):
    other = host("s-2")
    other.serve()
    assert one.edit("src/a.py") == ""
    assert 'call claim(resource="src/a.py", agent="claude-' in other.edit("src/a.py")
    assert other.edit("src/b.py") == ""


@rest
@pytest.mark.parametrize("end", ["SessionEnd", "Stop"])
def test_end_of_a_turn_or_session_releases_what_was_not_changed(root, one, two, end):
    assert one.edit("src/a.py") == ""
    one.hook(end)
    assert held(root) == {}
    assert two.edit("src/a.py") == ""


@rest
def test_sub_agents_are_holders_whose_end_releases_their_claims(one):
    sub, other = one.agent("sub-1"), one.agent("sub-2")
    assert sub.edit("src/a.py") == ""
    assert "is held by claude-" in other.edit("src/a.py")
    assert "is held by your sub-agent claude-" in one.edit("src/a.py")
    assert one.edit("src/b.py") == ""
    assert sub.edit("src/b.py") == "", "it works for the main agent"
    sub.hook("SubagentStop")
    assert other.edit("src/a.py") == ""


@rest
def test_file_of_a_dead_sub_agent_becomes_free_for_the_main_agent(root):
    """Field case 1: the host reports no end of a sub-agent that was killed."""
    env = {"HOLDLOG_LEASE_SECONDS": "20", "HOLDLOG_IDLE_LIMIT": "20"}
    server = subprocess.Popen([HOLDLOG, "serve"], cwd=root, env=environment(env), stdin=subprocess.PIPE)
    edit = claude("main", str(root / "src/a.py")) | {"cwd": str(root)}
    assert run_hook({**edit, "agent_id": "sub-1"}, cwd=root, env=env).out == ""
    write(root / "src/a.py", "x = 2\n")
    assert is_denied(json.loads(run_hook(edit, cwd=root, env=env).out))
    assert run("wait", "src/a.py", "--timeout-seconds", "50", cwd=root).code == 0
    assert run_hook(edit, cwd=root, env=env).out == ""
    server.communicate()


@rest
def test_server_keeps_what_hooks_claimed_also_with_a_short_lease(root):
    env = {"HOLDLOG_LEASE_SECONDS": "12"}
    server = subprocess.Popen([HOLDLOG, "serve"], cwd=root, env=environment(env), stdin=subprocess.PIPE)
    edit = claude("main", str(root / "src/a.py")) | {"cwd": str(root)}
    assert run_hook(edit, cwd=root, env=env).out == ""
    assert run("wait", "src/a.py", "--timeout-seconds", "20", "--json", cwd=root).json["status"] == "timeout"
    server.communicate()


@rest
def test_agent_with_hooks_and_a_server_is_never_denied_by_itself(host, one):
    """Also after /clear, which gives its conversation a new id."""
    claude = host("s-2")
    claude.hook("SessionStart", source="startup")
    assert claude.edit("src/a.py") == "", "before its server is connected"
    claude.serve()
    assert claude.call("claim", resource="src/a.py", agent="alice")["status"] == "already_claimed"
    assert claude.call("claim", resource="src/b.py", agent="alice")["status"] == "claimed"
    assert claude.edit("src/b.py") == ""
    claude.hook("SessionEnd", reason="clear")
    claude.facts["session_id"] = "s-3"
    claude.hook("SessionStart", source="clear")
    assert claude.edit("src/a.py") == claude.edit("src/b.py") == ""
    assert claude.call("claim", resource="src/a.py", agent="alice")["status"] == "already_claimed"
    assert one.edit("src/b.py") != ""


@rest
def test_shell_commands_of_an_agent_act_for_it(root, host):
    one, other = host("s-1"), host("s-2")
    assert one.edit("src/a.py") == other.edit("src/b.py") == ""
    other.bash("holdlog claim src/b.py")
    claimed = other.command("CLAUDE_CODE_SESSION_ID=s-2 holdlog claim src/b.py --json")
    assert (claimed.code, claimed.json["status"]) == (0, "already_claimed")
    assert other.command("CLAUDE_CODE_SESSION_ID=s-2 holdlog claim src/a.py").code == 1
    guard = f"src/b.py@{claimed.json['version']}"
    assert other.command(f"CLAUDE_CODE_SESSION_ID=s-2 holdlog set n k 1 --version 0 --guard {guard}").code == 0
    assert other.command("CLAUDE_CODE_SESSION_ID=s-2 holdlog run --claim src/b.py -- true") == (0, "", "")
    assert len({*held(root).values()}) == 2


@rest
def test_of_sessions_that_edit_a_file_at_once_one_is_allowed(root):
    edits = [in_thread(Session(root, f"s-{number}").edit, "src/a.py") for number in range(5)]
    assert sorted(it.result() != "" for it in edits) == [False, True, True, True, True]
    assert list(held(root)) == ["src/a.py"]


@rest
def test_holder_is_told_once_who_waits_and_what_it_lost(root, one):
    assert one.edit("src/a.py") == one.edit("src/b.py") == ""
    words = ("claim", "src/a.py", "--agent", "bob", "--session", "b", "--wait-seconds", "50")
    waiter = subprocess.Popen([HOLDLOG, *words], cwd=root, env=environment(), stdout=subprocess.DEVNULL)
    until(lambda: is_waited_for(root))
    assert "waiting for you: bob (src/a.py)" in one.bash("pytest -q")["additionalContext"]
    assert one.bash("pytest -q") == {}
    assert run("release", "src/b.py", "--force", "--reason", "urgent", cwd=root).code == 0
    text = one.hook("UserPromptSubmit", prompt="go on")["additionalContext"]
    assert ("src/b.py" in text, "urgent" in text) == (True, False)
    assert "a person took src/b.py" in text
    one.end()
    assert waiter.wait(PATIENCE) == 0


@rest
def test_session_start_names_the_agent(root, one):
    text = one.hook("SessionStart", source="startup")["additionalContext"]
    name = re.match(r"holdlog: your agent name is (claude-\w+);", text)
    assert name is not None
    assert (len(text) <= 300, "\n" in text) == (True, False)
    assert one.edit("src/a.py") == ""
    assert held(root) == {"src/a.py": name[1]}


@rest
def test_edit_in_another_worktree_is_allowed_and_names_the_other_editor(root, tmp_path):
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    one, two = Session(tmp_path / "tree", "s-1"), Session(root, "s-2")
    assert one.edit("src/a.py") == ""
    text = two.pre("src/a.py")["additionalContext"]
    assert re.match(r"holdlog: src/a\.py is also claimed by claude-\w+ .*in tree", text)
    assert {*held(root)} == {"file://tree/src/a.py", "src/a.py"}
    assert "is held by" in Session(tmp_path / "tree", "s-3").edit("src/a.py")
    assert "is held by" in Session(root, "s-3").edit(str(tmp_path / "tree/src/a.py"))


@rest
def test_claim_in_a_removed_worktree_can_be_looked_at_and_taken(root, tmp_path):
    """Field case 3."""
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    bob = ("--agent", "bob", "--session", "bob-1", "--lease-seconds", "3600")
    assert run("claim", "src/a.py", *bob, cwd=tmp_path / "tree").code == 0
    git(root, "worktree", "remove", "--force", str(tmp_path / "tree"))
    (name,) = held(root)
    for words in (("status", name), ("history", name), ("log", "--resource", name)):
        done = run(*words, cwd=root)
        assert (done.code, "bob" in done.out, done.err) == (0, True, ""), words
    assert run("release", name, "--force", "--reason", "worktree removed", cwd=root).code == 0
    assert held(root) == {}


@rest
def test_agents_inside_and_outside_of_a_submodule_exclude_each_other(root, tmp_path):
    """Field case 4."""
    origin = repository(tmp_path / "origin", has_store=False)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "lib")
    outer, inner = Session(root, "s-1"), Session(root / "lib", "s-2")
    for prepare in (lambda: None, lambda: run("claim", "own.py", "--agent", "setup", cwd=root / "lib")):
        prepare()
        assert outer.edit("lib/src/a.py") == ""
        assert "is held by" in inner.edit("src/a.py")
        outer.end()
        assert inner.edit("src/a.py") == ""
        assert "is held by" in outer.edit("lib/src/a.py")
        inner.end()


ODD = [
    "docs/\u26a0\ufe0f notes.md",
    "Screenshot 9.41.00\u202fAM.png",
    "docs/\u0645\u06cc\u200c\u062e.md",
    "a\nb.py",
    " blank ",
]


@rest
@pytest.mark.parametrize("name", [*ODD, "/".join(["p" * 100] * 5) + "/" + "f" * 60 + ".py"], ids=range(6))
def test_second_session_is_denied_a_file_whatever_its_name(root, one, two, name):
    """Field case 5."""
    write(root / name, "1")
    assert one.edit(name) == ""
    reason = two.edit(name)
    assert reason != ""
    assert reason.isprintable()
    shown, *_ = held(root)  # of a name with a blank at its end, also the one without it
    assert run("status", shown, cwd=root).out.startswith("claimed: ")
    assert two.edit("src/a.py") == ""


@rest
def test_patch_with_padded_markers_and_one_in_a_shell_are_denied(root, one):
    """Field cases 6 and 7."""
    assert one.edit("src/b.py") == ""
    facts = {"session_id": "s-2", "turn_id": "t", "cwd": str(root), "hook_event_name": "PreToolUse"}
    update = "@@\n-y = 1\n+y = 2\n"
    patches = [
        f" *** Begin Patch\n  *** Update File: src/b.py  \n{update} *** End Patch ",
        "*** Begin Patch\n\t*** Delete File: src/b.py\n*** End Patch",
        f"*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/b.py\n{update}*** End Patch",
    ]
    shell = f"apply_patch <<'EOF_PATCH'\n*** Begin Patch\n*** Update File: src/b.py\n{update}*** End Patch\nEOF_PATCH"
    calls = [("apply_patch", it) for it in patches] + [("Bash", shell), ("Bash", ["bash", "-lc", "rm src/b.py"])]
    for tool, command in calls:
        done = run_hook({**facts, "tool_name": tool, "tool_input": {"command": command}}, cwd=root)
        assert is_denied(json.loads(done.out or "{}")), command


@rest
@pytest.mark.parametrize("marks", [1, 2])
def test_byte_order_marks_before_the_input_are_ignored(root, one, marks):
    """Field case 9: Cursor on Windows."""
    assert one.edit("src/b.py") == ""
    text = json.dumps(cursor("c-1", str(root / "src/b.py")))
    assert is_denied(json.loads(run_hook("\ufeff" * marks + text, cwd=root).out))


@rest
def test_command_runs_in_the_folder_that_its_tool_names(root, one):
    """Field case 26: OpenCode's `workdir`."""
    write(root / "src/own.py", "")
    assert one.edit("src/b.py") == one.edit("own.py") == ""

    def denies(session: str, command: str, folder: Path) -> bool:
        facts = {
            "client": "opencode",
            "session_id": session,
            "agent_id": session,
            "cwd": str(root),
            "tool_name": "bash",
        }
        given = {"command": command, "workdir": str(folder), "description": "d"}
        return is_denied(json.loads(run_hook({**facts, "tool_input": given}, "pre-edit", cwd=root).out or "{}"))

    assert denies("s-2", "rm src/b.py", root)
    assert denies("s-3", "rm b.py", root / "src")
    assert not denies("s-4", "rm own.py", root / "src")
    assert {*held(root)} == {"src/b.py", "own.py", "src/own.py"}


@rest
def test_stale_file_is_warned_about_once_or_denied_by_policy(root, one, two):
    assert one.read("src/a.py") == {}
    two.change("src/a.py", "x = 22\n")
    two.end()
    text = one.pre("src/a.py")["additionalContext"]
    assert re.match(r"holdlog: claude-\w+ changed src/a\.py at .*, after you read it; read it again", text)
    assert one.pre("src/a.py") == {}
    one.end()
    commit_policy(root, 'stale-reads = "deny"\n')
    one.read("src/b.py")
    two.change("src/b.py", "x = 22\n")
    two.end()
    assert "after you read it" in one.edit("src/b.py")
    assert one.edit("src/b.py") == ""
    two.read("own.py")
    assert two.edit("own.py") == "", "nobody changed it"


@rest
def test_changes_by_hooks_are_in_blame_and_history(root, one):
    one.change("src/a.py", "x = 2\n")
    one.end()
    (name,) = re.findall(r"claude-\w{6}", run("blame", "src/a.py", cwd=root).out)
    assert "  modified" in run("history", "src/a.py", cwd=root).out
    assert name in run("history", "src/a.py", cwd=root).out


POLICY = '[paths]\n"*.md" = "warn"\n"LICENSE" = "human"\n"*.lock" = "across-worktrees"\n'


@rest
def test_policy_blocks_warns_or_leaves_a_file_to_a_person(root, one, two, tmp_path):
    write(root / "holdlog.toml", POLICY)
    assert one.edit("LICENSE") == "", "the policy is not committed"
    one.end()
    commit_policy(root, POLICY)
    assert "only a person may change LICENSE (holdlog.toml" in one.edit("LICENSE")
    assert "only a person may change LICENSE" in one.denied("rm LICENSE")
    assert one.edit("notes.md") == one.edit("uv.lock") == ""
    warning = two.pre("notes.md")
    assert "permissionDecision" not in warning
    assert "notes.md is held by claude-" in warning["additionalContext"]
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert "uv.lock is held by" in Session(tmp_path / "tree", "s-3").edit("uv.lock")
    assert two.denied("echo > holdlog.toml") != ""


@rest
def test_wrong_policy_is_reported_and_the_defaults_hold(root, one, two):
    commit_policy(root, '[paths]\n"*.md" = "wran"\n')
    assert "holdlog.toml" in json.dumps(one.hook("SessionStart", source="startup"))
    assert one.run("PreToolUse", tool_name="Edit", tool_input={"file_path": "src/a.py"}).out == ""
    assert is_denied(json.loads(two.run("PreToolUse", tool_name="Edit", tool_input={"file_path": "src/a.py"}).out))


@rest
def test_agent_that_edits_the_hooks_of_its_host_asks_a_person(root, one):
    for name in (".claude/settings.json", ".cursor/hooks.json", ".codex/config.toml"):
        output = one.pre(name, "Write")
        assert (output["permissionDecision"], name in output["permissionDecisionReason"]) == ("ask", True)
    assert one.bash("rm -rf .claude")["permissionDecision"] == "ask"
    assert one.bash("echo exit 0 > .git/hooks/pre-commit")["permissionDecision"] == "ask"


@rest
def test_repository_that_has_not_opted_in_stays_as_it_is(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    before = sorted(map(str, root.rglob("*")))
    assert Session(root, "s-1").edit("src/a.py") == ""
    assert sorted(map(str, root.rglob("*"))) == before
    write(root / "holdlog.toml", "")
    assert Session(root, "s-1").edit("src/a.py") == ""
    assert list(held(root)) == ["src/a.py"]


def is_open(done: Done) -> bool:
    """Whether the edit was allowed, and one line says that it is not guarded; the agent may be told, too."""
    is_one_line = done.err.startswith("holdlog hook: ") and done.err.count("\n") == 1
    return is_one_line and "deny" not in done.out and "Traceback" not in done.err


MALFORMED = ["", "{", "[]", "{}", '{"hook_event_name": "PreToolUse"}', "[" * 100_000, '{"session_id": 1}']


@rest
def test_malformed_input_allows_the_edit_and_is_reported_in_one_line(root, one):
    for text in MALFORMED:
        assert is_open(run_hook(text, cwd=root)), text[:50]
    for words in (["pre-edti"], ["--bogus"]):
        done = run_hook(claude("s-1", "src/a.py"), *words, cwd=root)
        assert ("deny" in done.out, done.err.count("\n")) == (False, 1)


@rest
def test_edit_that_names_no_file_is_reported_once(one):
    given = {"tool_name": "Edit", "tool_input": {"old_string": "1"}}
    done = one.run("PreToolUse", **given)
    assert "this call is not guarded" in json.loads(done.out)["hookSpecificOutput"]["additionalContext"]
    assert done.err.endswith("; the edit is not guarded\n")
    assert one.run("PreToolUse", **given) == (0, "", "")
    for tool, arguments in (("TodoWrite", {"todos": []}), ("Glob", {"pattern": "*"}), ("Read", {"file_path": "x.py"})):
        assert one.hook("PreToolUse", tool_name=tool, tool_input=arguments) == {}


def test_store_that_cannot_be_used_allows_the_edit_and_says_so(root):
    store = store_of(root)
    for spoil in (lambda: store.write_bytes(b"not a database" * 1000), lambda: (store.unlink(), store.mkdir())):
        spoil()
        done = run_hook(claude("s-1", str(root / "src/a.py")), cwd=root)
        assert is_open(done)
        assert "; this call is not guarded." in done.out, "the agent learns it, too"
    assert (root / "src/a.py").read_text() == "x = 1\n"


@rest
@pytest.mark.parametrize("redirection", [">/dev/full", "2>/dev/full", "<&-", ">&-", "2>&-"])
def test_hook_whose_streams_fail_ends_without_a_traceback(root, one, redirection):
    assert one.edit("src/a.py") == ""
    for text in (json.dumps(claude("s-2", str(root / "src/a.py"))), "{"):
        done = subprocess.run(
            ["sh", "-c", f"exec {HOLDLOG} hook {redirection}"],
            input=text, capture_output=True, text=True, cwd=root, env=environment(), check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr, done.stderr.count("\n") <= 1) == (0, False, True)


@rest
def test_hook_that_waits_for_its_input_ends_by_itself(root):
    with subprocess.Popen(
        [HOLDLOG, "hook"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env=environment()
    ) as hook:
        assert hook.wait(PATIENCE) == 0
        assert hook.stderr is not None
        assert b"the edit is not guarded" in hook.stderr.read()


@rest
def test_files_of_the_store_and_outside_of_the_repository_are_not_claimed(root, one):
    for path in (store_of(root), f"{store_of(root)}-wal", "/etc/hosts", root.parent / "elsewhere.py"):
        assert one.edit(str(path)) == ""
    assert held(root) == {}


def test_edit_without_paths_is_reported_as_not_guarded(root):
    done = run_hook({"session_id": "s-1", "path_list": ["src/a.py"]}, "pre-edit", cwd=root)
    assert done.json == {"warning": "holdlog: paths: is missing; this call is not guarded."}
