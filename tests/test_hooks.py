"""Hooks beyond their doors: open calls, sub-agents, conversations that go on, what a server of the host changes."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdlog
from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import list_conversations
from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.hooks.places import Place
from holdlog.adapters.hooks.work import open_work
from holdlog.adapters.operating_system.processes import identify_host
from tests.support.hosts import Session, git, held, repository, run_hook, store_of, write
from tests.support.programs import HOLDLOG, environment


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def one(root: Path) -> Session:
    return Session(root, "s-1")


def open_calls(root: Path) -> dict[str, list[str]]:
    """The ids of the open calls of each holder."""
    engine = open_engine(store_of(root))
    rows = engine.store.read("SELECT agent, open_calls FROM holders", {})
    engine.close()
    return {agent: list(json.loads(calls or "{}")) for agent, calls in rows}


def call(session: Session, event: str, number: str, **given: Any) -> None:
    session.hook(event, tool_use_id=number, **given)


def test_holder_is_in_a_call_from_its_announcement_to_its_end(root, one):
    assert one.edit("src/a.py") == ""
    (name,) = held(root).values()
    build: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "make all"}}
    for number in ("t-1", "t-2"):
        call(one, "PreToolUse", number, **build)
    assert {"t-1", "t-2"} <= {*open_calls(root)[name]}
    call(one, "PostToolUse", "t-1", **build)
    assert "t-1" not in open_calls(root)[name]
    call(one, "PostToolUseFailure", "t-2", **build)
    assert "t-2" not in open_calls(root)[name]
    call(one, "PreToolUse", "t-3", **build)
    one.hook("Stop")
    assert open_calls(root) == {} or open_calls(root)[name] == []


def test_read_commands_write_nothing_while_their_agent_is_known(root, one):
    assert one.edit("src/a.py") == ""
    before = Path(f"{store_of(root)}.lock").stat().st_mtime_ns
    for command in ("ls -la src", "cat src/a.py | head -3"):
        assert one.bash(command) == {}
        assert one.bash(command, "PostToolUse") == {}
    assert Path(f"{store_of(root)}.lock").stat().st_mtime_ns == before


def test_changed_file_stays_held_after_the_turn_until_it_is_committed(root, one):
    one.change("src/a.py", "x = 2\n")
    assert one.edit("src/b.py") == ""
    one.hook("Stop")
    assert list(held(root)) == ["src/a.py"]
    for words in (["add", "src/a.py"], ["commit", "-qm", "second"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    one.hook("Stop")
    assert held(root) == {}


def test_edit_after_a_warning_is_released_with_its_commit_like_any_other(root, one):
    one.read("src/a.py")
    write(root / "src/a.py", "by = 'a person'\n")
    assert "changed since you read it" in one.pre("src/a.py")["additionalContext"]
    one.change("src/a.py", "x = 2\n")
    git(root, "commit", "-qm", "second", "src/a.py")
    one.hook("Stop")
    assert held(root) == {}


def test_what_the_agent_claims_itself_outlives_its_turn(root, one):
    assert one.edit("src/a.py") == ""
    (name,) = held(root).values()
    with holdlog.StateStore(store_of(root), session="s-1") as store:
        assert store.claim("src/b.py", agent=name)
    assert one.edit("src/b.py") == ""
    one.hook("Stop")
    assert list(held(root)) == ["src/b.py"]


def test_conversation_that_goes_on_under_another_id_keeps_claims_and_name(root, one):
    assert one.edit("src/a.py") == ""
    before = held(root)
    one.hook("SessionEnd", reason="clear")
    again = Session(root, "s-2")
    again.hook("SessionStart", source="clear")
    assert again.edit("src/a.py") == ""
    assert held(root) == before
    again.hook("Stop")
    assert held(root) == {}


def test_end_of_a_conversation_releases_what_its_agents_hold_and_forgets_it(root, one):
    for session, name in ((one, "src/a.py"), (one.agent("sub"), "src/b.py")):
        assert session.edit(name) == ""
    one.end()
    assert held(root) == {}
    engine = open_engine(store_of(root))
    assert list_conversations(engine.store, identify_host(), "s-1") == []
    engine.close()


def test_agent_is_told_of_each_call_that_is_not_guarded(root, one):
    store_of(root).write_bytes(b"not a database" * 1000)
    for _ in range(2):
        done = one.run("PreToolUse", tool_name="Edit", tool_input={"file_path": str(root / "src/a.py")})
        assert "; this call is not guarded." in done.json["hookSpecificOutput"]["additionalContext"]
    assert "; this call is not guarded." in run_hook("{", cwd=root).json["systemMessage"]


def test_file_that_was_removed_by_an_edit_is_recorded_so(root, one):
    assert one.edit("src/a.py") == ""
    (root / "src/a.py").unlink()
    one.hook("PostToolUse", tool_name="Edit", tool_input={"file_path": str(root / "src/a.py")})
    one.end()
    with holdlog.StateStore(store_of(root)) as store:
        assert store.status("src/a.py").previous_outcome == "deleted"


def test_hook_in_a_folder_without_holdlog_guards_the_repository_whose_file_it_changes(root, one, tmp_path):
    assert one.edit("src/a.py") == ""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    given = {"session_id": "s-9", "cwd": str(elsewhere), "hook_event_name": "PreToolUse", "tool_name": "Write"}
    done = run_hook({**given, "tool_input": {"file_path": str(root / "src/a.py")}}, cwd=elsewhere)
    assert "is held by" in done.out
    assert "has its own store" in done.out
    assert run_hook("not JSON", cwd=elsewhere).err.count("\n") == 1
    write(elsewhere / "x.py", "")
    assert run_hook({**given, "tool_input": {"file_path": "x.py"}}, cwd=elsewhere) == (0, "", "")


def test_entry_of_hooks_loads_the_standard_library_alone():
    code = """
import sys, json
before = set(sys.modules)
import holdlog.adapters.hooks.entry, holdlog.adapters.hooks.work
names = {it.partition(".")[0] for it in set(sys.modules) - before} - sys.stdlib_module_names
slow = {"asyncio", "dataclasses", "inspect", "subprocess", "urllib"} & set(sys.modules)
print(sorted(names), sorted(slow))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['holdlog'] []\n"


@pytest.mark.xdist_group("postgres")
def test_hooks_claim_in_a_store_in_postgresql(root, postgres):
    holdlog.StateStore(postgres).close()

    def hook(session: str, event: str) -> str:
        given = {"session_id": session, "cwd": str(root), "hook_event_name": event, "tool_name": "Edit"}
        path = {"file_path": str(root / "src/a.py")}
        done = run_hook({**given, "tool_input": path}, cwd=root, env={"HOLDLOG_DB": postgres})
        assert done.err == ""
        return done.out

    assert hook("s-1", "PreToolUse") == ""
    assert "is held by" in hook("s-2", "PreToolUse")
    write(root / "src/a.py", "x = 2\n")
    for event in ("PostToolUse", "Stop", "SessionEnd"):
        assert hook("s-1", event) == ""
    assert hook("s-2", "PreToolUse") == ""


@pytest.mark.parametrize(
    "command",
    [
        "holdlog init --undo --yes",
        "cd src && uv run holdlog --db s.db release src/b.py --force --reason stale",
        "holdlog commit --agent=other -m x",
        "holdlog revert --session s-1 --reverted-by other",
        "holdlog redact --older-than 1s --reason x --redacted-by=other",
        "git status; env HOLDLOG_AGENT=other python3 -m holdlog claim src/b.py",
        "export HOLDLOG_AGENT=other\nbash -c 'holdlog set n k 1 --version 0' && holdlog run --claim custom://m -- ls",
    ],
)
def test_shell_command_that_acts_as_a_person_or_another_agent_is_denied(one, command):
    denied = one.bash(command)
    assert (denied["permissionDecision"], denied["permissionDecisionReason"][:9]) == ("deny", "holdlog: "), command


def test_shell_command_that_acts_as_the_agent_or_only_reads_is_allowed(root, one):
    assert one.edit("src/a.py") == ""
    (name,) = held(root).values()
    for command in (
        f"HOLDLOG_AGENT={name} holdlog commit -m x",
        f"holdlog claim src/a.py --agent {name}/tests; holdlog release src/a.py",
        "holdlog claims --agent other; holdlog check src --agent ci; holdlog init --client cursor",
        "holdlog revert --session s-1 --agent other --dry-run",
        'holdlog claim src/a.py --agent "$UNKNOWN" && holdlog run --claim custom://m -- tool --agent other',
        "echo holdlog init --undo",
    ):
        assert "permissionDecision" not in one.bash(command), command


def test_claim_of_an_edit_that_a_person_refused_ends_with_the_turn(root, one):
    asked = one.pre(".claude/settings.json", "Write")
    assert (asked["permissionDecision"], len(held(root))) == ("ask", 1)
    one.hook("Stop")
    assert held(root) == {}


def test_hooks_of_one_agent_that_run_at_once_keep_what_the_other_has_noted(root, one):
    one.hook("SessionStart", source="startup")
    facts = {**one.facts, "hook_event_name": "PreToolUse"}
    tool = {"tool_name": "mcp__holdlog__holdlog_claim", "tool_input": {"resource": "x", "agent": "ann"}}
    edit = {"tool_name": "Edit", "tool_use_id": "t-3", "tool_input": {"file_path": str(root / "src/a.py")}}
    calls = [parse({**facts, **given}, None) for given in (tool | {"tool_use_id": it} for it in ("t-1", "t-2"))]
    calls.append(parse({**facts, **edit}, None))
    assert one.edit("src/a.py") == ""
    place = Place(str(store_of(root)), str(root))
    with ExitStack() as stack:
        works = [stack.enter_context(open_work(it, place, [str(root / "src/a.py")] if it.id == "t-3" else [], True))
                 for it in calls if it is not None]  # fmt: skip
        assert [work.handle().decision for work in works] == ["", "", ""]
        (row,) = list_conversations(works[0].engine.store, None, "s-1")
    assert (row.name, set(row.calls)) == ("ann", {"t-1", "t-2"})
    assert held(root) == {"src/a.py": "ann"}


def take(root: Path, name: str) -> None:
    """A person ends the claim of a file."""
    release = ("release", name, "--force", "--reason", "urgent", "--agent", "eve")
    subprocess.run([HOLDLOG, *release], cwd=root, env=environment(), check=True, capture_output=True)


def test_loss_is_told_by_the_next_hook_whose_text_reaches_the_agent(root, one):
    assert one.edit("src/a.py") == one.edit("src/b.py") == ""
    take(root, "src/a.py")
    one.agent("sub-1").hook("SubagentStop")
    one.hook("Stop")
    told = one.hook("UserPromptSubmit", prompt="go on")
    assert "a person took src/a.py" in told["additionalContext"]
    assert one.edit("src/b.py") == ""
    take(root, "src/b.py")
    assert "a person took src/b.py" in one.read("own.py")["additionalContext"]
    assert one.hook("UserPromptSubmit", prompt="go on") == {}


def test_agent_of_codex_whose_hooks_reach_it_after_an_edit_is_told_then(root):
    codex = Session(root, "s-1", turn_id="t")
    assert codex.edit("src/a.py") == ""
    take(root, "src/a.py")
    assert codex.pre("own.py") == {}
    assert "a person took src/a.py" in codex.read("own.py")["additionalContext"]
