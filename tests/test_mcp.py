"""MCP over stdio beyond the doors: sessions, worktrees that come and go, files that people alone may change, input from
a file."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.doors.conftest import stdio as stdio
from tests.doors.conftest import work as work
from tests.support.hosts import write
from tests.support.mcp import INITIALIZE, LEGACY, MODERN
from tests.support.programs import HOLDLOG, environment

pytestmark = pytest.mark.rest

AT = {"namespace": "n", "key": "k"}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder / "a.py", "x = 1\n")
    write(folder / "holdlog.toml", '[paths]\n"law/**" = "human"\n"*.sql" = "across-worktrees"\n')
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_texts_of_echovalue_are_saved_and_read(stdio):
    agent = stdio("--tools", "kv")
    missing = agent.call("read_state", group="g", key="k")
    assert (missing["status"], "holdlog_save_state" in missing["hint"]) == ("not_found", True)
    assert agent.call("save_state", group="g", key="k", value="done", ttl=60)["version"] == 1
    assert agent.call("save_state", group="g", key="k", value="{}")["version"] == 2
    read = agent.call("read_state", group="g", key="k")
    assert (read["value"], read["expires_in_seconds"] > 2_000_000) == ("{}", True)
    assert agent.error("save_state", group="g", key="k", value=5).startswith("value")
    assert agent.error("save_state", key="k", value="x").startswith("group")


def test_servers_with_one_session_are_one_holder(stdio):
    one, two = (stdio(env={"HOLDLOG_SESSION": "s-1"}) for _ in range(2))
    one.call("claim", resource="custom://a", agent="ann")
    assert two.call("claim", resource="custom://a", agent="ann")["status"] == "already_claimed"
    assert stdio().call("claim", resource="custom://a", agent="ann")["status"] == "busy"


def test_server_for_each_call_claims_guards_and_releases(stdio):
    """As the adapters of LangChain and LlamaIndex do."""

    def call(tool: str, **arguments):
        agent = stdio("--tools", "claims,state")
        response = agent.call(tool, **arguments)
        assert agent.close() == (0, "")
        return response

    claim = {"resource": "custom://a", "agent": "ann"}
    guard = [{"resource": "custom://a", "version": call("claim", **claim)["version"]}]
    assert call("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    assert call("set", **AT, value=1, updated_by="bob", force=True, guard=guard)["status"] == "fenced"
    assert call("release", **claim)["status"] == "released"


def test_hints_name_the_tools_as_they_are_called(stdio):
    agent = stdio("--tool-prefix", "x_", prefix="x_")
    agent.call("claim", resource="custom://a", agent="ann")
    hint = agent.call("claim", resource="custom://a", agent="bob")["hint"]
    assert ("x_claim " in hint, "()" in hint) == (True, False)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_server_announces_tools_and_neither_prompts_nor_resources(stdio, era):
    agent = stdio(era=era)
    assert {"prompts", "resources"} & agent.opening["capabilities"].keys() == set()
    assert agent.ask("prompts/list")["prompts"] == []
    assert "claim" in agent.tools()


def test_worktree_that_is_added_while_a_server_runs_has_resources_of_its_own(stdio, repository):
    agent = stdio(cwd=repository)
    agent.call("claim", resource="a.py", agent="ann")
    git(repository, "worktree", "add", "-q", "trees/two")
    assert agent.call("claim", resource="x.sql", agent="ann")["status"] == "claimed"
    assert agent.call("claim", resource="trees/two/x.sql", agent="bob")["resource"] == "x.sql"
    other = agent.call("claim", resource="trees/two/a.py", agent="bob")
    assert (other["status"], other["resource"]) == ("claimed", "file://two/a.py")
    assert other["also_claimed_in"] == [{"workspace": "main", "held_by": "ann"}]
    git(repository, "worktree", "remove", "trees/two")
    assert agent.call("status", resource="file://two/a.py")["held_by"] == "bob"
    assert agent.call("release", resource="file://two/a.py", agent="bob")["status"] == "released"


def test_claim_of_a_file_that_only_a_person_may_change_is_refused(stdio, repository):
    agent = stdio(cwd=repository)
    for name in ("law/a.md", "holdlog.toml"):
        refusal = agent.error("claim", resource=name, agent="ann")
        assert "only a person" in refusal
        assert refusal.startswith("resource: ")
    assert agent.call("status", resource="law/a.md")["status"] == "available"


def test_calls_in_a_file_are_answered_into_a_file(db, work):
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "holdlog_status", "arguments": {}}}
    (work / "in").write_text(f"{json.dumps(first)}\n{json.dumps(call)}")
    with (work / "in").open() as source, (work / "out").open("w") as target:
        done = subprocess.run(
            [HOLDLOG, "serve", "--db", db], stdin=source, stdout=target, env=environment(), check=False, timeout=60
        )
    responses = [json.loads(line) for line in (work / "out").read_text().splitlines()]
    assert (done.returncode, [it["id"] for it in responses]) == (0, [0, 1])
