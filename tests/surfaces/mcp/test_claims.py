"""What agents are told about claims over MCP: losses, lines, progress, workspaces, sessions."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.mcp.server import build_server
from tests.support.agent import ALL, ERAS, Agent, connected, engine, process, served
from tests.support.clock import Clock
from tests.support.http import http_server
from tests.support.slow import check

ONE, OTHER = {"holdlog/session": "s-1"}, {"holdlog/session": "s-2"}


@pytest.fixture(params=ERAS)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with served(request.param) as agent:
        yield agent


async def in_line(agent: Agent, length: int = 1) -> None:
    """Wait until so many stand in line, for whatever."""
    while sum(len(queue["line"]) for queue in (await agent("status"))["queues"]) != length:
        pass


# --- what was lost


@pytest.mark.parametrize("mode", ERAS)
async def test_session_learns_once_what_it_lost(mode: str) -> None:
    clock = Clock()
    async with served(mode, clock=clock) as agent:
        await agent("claim", ONE, resource="a.md", agent="ann", lease_seconds=1)
        clock.pass_by(1)
        assert (await agent("claim", OTHER, resource="a.md", agent="ben"))["previous_outcome"] == "expired"
        assert "lost" not in await agent("status", OTHER)
        told = await agent("get", ONE, namespace="n", key="k")
        assert told["lost"] == [{"resource": "a.md", "version": 1, "why": "expired", "held_by": "ben"}]
        assert "lost" not in await agent("get", ONE, namespace="n", key="k")


async def test_claim_taken_by_a_person_is_reported_with_the_reason() -> None:
    with engine() as store:
        async with connected(build_server(store, ALL)) as agent:
            version = (await agent("claim", resource="a.md", agent="ann"))["version"]
            store.write(store.requests.claims.release("a.md", "boss", note="it hangs", forced=True), store.caller)
            fenced = await agent(
                "set",
                namespace="n",
                key="k",
                value=1,
                updated_by="ann",
                expected_version=0,
                guard=[{"resource": "./a.md", "version": version}],
            )
            assert (fenced["status"], fenced["reason"]) == ("fenced", "it hangs")
            assert "a person ended your claim" in fenced["hint"]
            assert [(it["why"], it["reason"]) for it in fenced["lost"]] == [("forced", "it hangs")]
            refused = await agent("release", resource="a.md", agent="ann")
            assert (refused["status"], refused["reason"]) == ("not_holder", "it hangs")
            taken = await agent("claim", resource="a.md", agent="ben")
            assert (taken["previous_outcome"], taken["previous_holder"]) == ("forced", "ann")
            assert "previous_note" not in taken  # ann said nothing


async def test_outcome_of_a_covering_resource_is_reported_with_its_name(agent: Agent) -> None:
    await agent("claim", resource="src/", agent="ann")
    await agent("release", resource="src/", agent="ann", outcome="modified", note="half")
    for told in (
        await agent("status", resource="src/a.py"),
        await agent("wait", resource="src/a.py"),
        await agent("claim", resource="src/a.py", agent="ben"),
    ):
        assert (told["previous_resource"], told["previous_holder"], told["previous_note"]) == ("src/", "ann", "half")
    await agent("release", resource="src/a.py", agent="ben")
    assert "previous_resource" not in await agent("claim", resource="src/a.py", agent="cleo")


# --- in line


async def test_queue_is_shown_to_the_holder_and_to_its_waiters(agent: Agent) -> None:
    await agent("claim", resource="a.md", agent="ann", note="five minutes")
    waiting = asyncio.create_task(agent("claim", resource="a.md", agent="ben", wait_seconds=30, note="a typo"))
    await in_line(agent)
    busy = await agent("claim", resource="a.md", agent="cleo")
    assert (busy["queue_length"], busy["holder_note"]) == (1, "five minutes")
    assert "ticket" not in busy
    mine = await agent("claim", resource="a.md", agent="ann", note="ten more minutes")
    assert [(it["agent"], it["note"]) for it in mine["waiting"]] == [("ben", "a typo")]
    assert (await agent("status", resource="a.md"))["holder_note"] == "ten more minutes"
    (queue,) = (await agent("status"))["queues"]
    assert [(it["agent"], it["present"]) for it in queue["line"]] == [("ben", True)]
    released = await agent("release", resource="a.md", agent="ann", outcome="modified", note="renamed f()")
    assert released["granted_to"] == "ben"
    granted = await waiting
    assert (granted["status"], granted["previous_outcome"], granted["previous_note"]) == (
        "claimed",
        "modified",
        "renamed f()",
    )


@pytest.mark.parametrize("mode", ERAS)
async def test_wait_beyond_the_cap_keeps_its_queue_place_and_reports_it(mode: str) -> None:
    async with served(mode, settings=Settings(max_wait=0.01)) as agent:
        await agent("claim", resource="a.md", agent="ann")
        first = await agent("claim", resource="a.md", agent="ben", wait_seconds=1e15)
        assert (first["status"], first["capped_at_seconds"], first["queue_position"]) == ("busy", 0.01, 1)
        again = await agent("claim", resource="a.md", agent="ben", wait_seconds=0.001)
        assert (again["ticket"], "capped_at_seconds" in again) == (first["ticket"], False)
        assert (await agent("release", agent="ben"))["status"] == "released"
        assert (await agent("status"))["queues"] == []


@pytest.mark.parametrize("mode", ERAS)
async def test_waiter_in_the_queue_gets_progress_notifications(mode: str) -> None:
    async with served(mode, progress_every=0.01) as agent:
        await agent("claim", resource="a.md", agent="ann")
        told: list[float] = []
        enough = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)
            if len(told) >= 3:
                enough.set()

        claim = {"resource": "a.md", "agent": "ben", "wait_seconds": 30}
        waiting = asyncio.create_task(agent.client.call_tool_mcp("holdlog_claim", claim, progress_handler=hear))
        await enough.wait()
        await agent("release", resource="a.md", agent="ann")
        assert (await waiting).structured_content["status"] == "claimed"  # type: ignore[index]
        assert told == sorted(set(told))


async def test_cycle_of_waits_is_refused_with_its_holders(agent: Agent) -> None:
    await agent("claim", resource="a.md", agent="ann")
    await agent("claim", resource="b.md", agent="ben")
    waiting = asyncio.create_task(agent("claim", resource="a.md", agent="ben", wait_seconds=30))
    await in_line(agent)
    ring = await agent("claim", resource="b.md", agent="ann", wait_seconds=30)
    assert ring["status"] == "deadlock"
    assert sorted((it["agent"], it["holds"], it["waits_for"]) for it in ring["cycle"]) == [
        ("ann", "a.md", "b.md"),
        ("ben", "b.md", "a.md"),
    ]
    await agent("release", agent="ann")
    await waiting


# --- several, subtrees, modes


async def test_several_resources_are_claimed_and_released_together_over_mcp(agent: Agent) -> None:
    claimed = await agent("claim", resource="a.md", agent="ann", also=["b.md", "c.md"])
    assert [it["resource"] for it in claimed["also"]] == ["b.md", "c.md"]
    assert (await agent("claim", resource="d.md", agent="ben", also=["c.md"]))["resource"] == "c.md"
    assert (await agent("status", resource="d.md"))["status"] == "available"
    released = await agent("release", agent="ann", resource="a.md", also=["b.md"])
    assert [it["resource"] for it in released["released"]] == ["a.md", "b.md"]
    assert (await agent("release", agent="ann"))["released"] == [{"resource": "c.md", "version": 2}]
    assert (await agent("release", agent="ann"))["status"] == "already_free"


async def test_first_free_resource_of_a_pool_is_granted(agent: Agent) -> None:
    pool = {"resource": "custom://port/1", "alternatives": ["custom://port/2", "custom://port/3"]}
    for number, name in enumerate(("ann", "ben", "cleo"), start=1):
        assert (await agent("claim", agent=name, **pool))["resource"] == f"custom://port/{number}"
    assert (await agent("claim", agent="dora", **pool))["status"] == "busy"


async def test_subtree_and_its_contents_block_each_other_over_mcp(agent: Agent) -> None:
    await agent("claim", resource="src/", agent="ann")
    busy = await agent("claim", resource="src\\a.py", agent="ben")
    assert (busy["resource"], busy["covered_by"]) == ("src/a.py", "src/")
    assert (await agent("claim", resource="src-app/a.py", agent="ben"))["status"] == "claimed"


async def test_shared_claim_reports_that_others_share_it(agent: Agent) -> None:
    for name in ("ann", "ben"):
        assert (await agent("claim", resource="a.md", agent=name, mode="shared"))["status"] == "claimed"
    held = await agent("status", resource="a.md")
    assert (held["mode"], held["holders"]) == ("shared", ["ann", "ben"])
    upgrade = await agent("claim", resource="a.md", agent="ann")
    assert upgrade["status"] == "busy"
    assert "share" in upgrade["hint"]


# --- who is who


async def test_namesake_in_another_session_is_another_holder(agent: Agent) -> None:
    await agent("claim", ONE, resource="a.md", agent="ann")
    busy = await agent("claim", OTHER, resource="a.md", agent="ann")
    assert (busy["status"], busy["held_by"]) == ("busy", "ann")
    assert "name" in busy["hint"]
    refused = await agent("release", OTHER, resource="a.md", agent="ann")
    assert (refused["status"], "only that session can release it" in refused["hint"]) == ("not_holder", True)


async def test_fenced_writer_learns_what_is_wrong(agent: Agent) -> None:
    write = {"namespace": "n", "key": "k", "value": 1, "force": True}

    async def fenced(by: str, version: int, meta: dict[str, str]) -> str:
        guard = [{"resource": "a.md", "version": version}]
        told = await agent("set", meta, **write, updated_by=by, guard=guard)
        assert told["status"] == "fenced"
        return str(told["hint"])

    never = await fenced("ann", 1, ONE)
    await agent("claim", ONE, resource="a.md", agent="ann")
    assert "you do not hold this claim" in never
    assert never == await fenced("ben", 1, ONE) == await fenced("ann/sub", 1, ONE)
    assert "Repeat the call with version=1 in guard" in await fenced("ann", 7, ONE)
    assert "another session with your name" in await fenced("ann", 1, OTHER)
    await agent("release", ONE, resource="a.md", agent="ann")
    assert "you released this claim" in await fenced("ann", 1, ONE)
    assert await fenced("ben", 1, ONE) == never


async def test_agent_does_not_block_its_sub_agents(agent: Agent) -> None:
    await agent("claim", resource="a.md", agent="claude")
    assert (await agent("claim", resource="a.md", agent="claude/tests"))["status"] == "claimed"
    assert (await agent("claim", resource="a.md", agent="claude/docs"))["status"] == "busy"
    board = await agent("status", agent="claude")
    assert {it["agent"]: it["claims"] for it in board["agents"]} == {"claude": 1, "claude/tests": 1}
    assert [it["held_by"] for it in (await agent("status", agent="claude/tests"))["claims"]] == ["claude/tests"]


async def test_registered_agent_is_shown_with_its_description(agent: Agent) -> None:
    assert (await agent("register", agent="ann", name="Ann", model="m-1"))["version"] == 1
    assert (await agent("register", agent="ann", purpose="tests"))["version"] == 2
    assert (await agent("register", agent="ann", purpose="tests"))["version"] == 2
    await agent("claim", resource="a.md", agent="ann")
    held = await agent("status", resource="a.md")
    assert (held["agent_name"], held["agent_model"]) == ("Ann", "m-1")
    (row,) = (await agent("status"))["agents"]
    assert (row["agent"], row["name"], row["model"], row["purpose"]) == ("ann", "Ann", "m-1", "tests")


async def test_number_of_claims_per_session_is_limited_over_mcp() -> None:
    async with served(settings=Settings(max_claims=2)) as agent:
        await agent("claim", resource="a.md", agent="ann")
        assert (await agent.error("claim", resource="b.md", agent="ann", also=["c.md"])).startswith("agent: ")
        assert (await agent("claim", resource="b.md", agent="ann"))["status"] == "claimed"
        assert (await agent("claim", resource="b.md", agent="ann"))["status"] == "already_claimed"
        assert (await agent.error("claim", resource="c.md", agent="ann")).startswith("agent: ")
        assert (await agent.error("claim", resource="c.md", agent="ben")).startswith("agent: ")  # the same session
        assert (await agent("claim", OTHER, resource="c.md", agent="ben"))["status"] == "claimed"


async def test_status_shows_whether_a_claim_is_current(agent: Agent) -> None:
    version = (await agent("claim", resource="a.md", agent="ann"))["version"]
    assert (await agent("status", resource="a.md", version=version))["current"] is True
    assert (await agent("status", resource="a.md", version=version + 1))["current"] is False
    await agent("release", resource="a.md", agent="ann")
    assert (await agent("status", resource="a.md", version=version))["status"] == "available"


# --- real servers


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a worktree beside it."""
    root = tmp_path / "repository"

    def git(*words: str) -> None:
        name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)

    root.mkdir()
    git("init", "-q", "-b", "trunk")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(tmp_path / "feature"))
    return root


@contextlib.asynccontextmanager
async def server_in(folder: Path, *settings: str, mode: Any = "auto") -> AsyncIterator[Agent]:
    transport = process("--tools", "all", *settings, env={"CLAUDE_PROJECT_DIR": str(folder), "HOLDLOG_DB": ""})
    async with connected(transport, mode=mode) as agent:
        yield agent


async def test_worktrees_see_each_other_and_do_not_block(repository: Path) -> None:
    feature = repository.with_name("feature")
    async with server_in(repository) as here, server_in(feature) as there:
        assert (await here("claim", resource="a.py", agent="ann"))["resource"] == "a.py"
        claimed = await there("claim", resource=str(feature / "a.py"), agent="ben")
        assert (claimed["status"], [it["held_by"] for it in claimed["also_claimed_in"]]) == ("claimed", ["ann"])
        for answer in (
            claimed,
            await there("claim", resource="a.py", agent="ben"),
            await here("status", resource="a.py"),
        ):
            assert "Another worktree has a claim" in answer["hint"]
            assert "does not block" in answer["hint"]
        busy = await there("claim", resource=str(repository / "a.py"), agent="ben")
        assert (busy["status"], busy["held_by"]) == ("busy", "ann")
        assert (await there("status", resource=busy["resource"]))["held_by"] == "ann"
        told: Any = (await here("status", resource="a.py"))["also_claimed_in"]
        assert [it["held_by"] for it in told] == ["ben"]


@pytest.mark.check
async def test_claiming_a_folder_without_its_slash_explains_what_it_covers(repository: Path) -> None:
    (repository / "src").mkdir()
    async with server_in(repository) as agent:
        await agent("claim", resource="src/a.py", agent="ann")
        assert "/ at the end" in (await agent("claim", resource="./src", agent="ben"))["hint"]
        assert "/ at the end" in (await agent("claim", resource="b.py", agent="ben", also=["src"]))["hint"]
        assert "/ at the end" not in (await agent("claim", resource="lib", agent="ben"))["hint"]
        assert (await agent("claim", resource="src/", agent="cleo"))["status"] == "busy"


@pytest.mark.check
async def test_worktrees_block_each_other_when_configured(repository: Path) -> None:
    across = "--claims-across-worktrees"
    async with server_in(repository, across) as here, server_in(repository.with_name("feature"), across) as there:
        await here("claim", resource="a.py", agent="ann")
        assert (await there("claim", resource="./a.py", agent="ben"))["held_by"] == "ann"


@pytest.mark.check
async def test_ended_server_is_shown_as_not_connected(repository: Path) -> None:
    async with server_in(repository) as here:
        async with server_in(repository) as other:
            await other("claim", resource="a.py", agent="ann")
            busy = await here("claim", resource="a.py", agent="ben")
            assert busy["holder_connected"] is True
        busy = await here("claim", resource="a.py", agent="ben")
        assert (busy["status"], busy["holder_connected"]) == ("busy", False)


# --- names that protect nothing

ONCE = "release this and claim custom://"


@pytest.mark.check
@pytest.mark.parametrize("mode", ERAS)
async def test_bare_word_in_two_worktrees_is_granted_with_its_common_name(repository: Path, mode: str) -> None:
    feature = repository.with_name("feature")
    async with server_in(repository, mode=mode) as here, server_in(feature, mode=mode) as there:
        for agent, name in ((here, "ann"), (there, "ben")):
            claimed = await agent("claim", resource="merge", agent=name)
            assert claimed["status"] == "claimed"
            assert claimed["hint"] == (
                "No such file in this worktree. If you mean something that exists once for all worktrees, release this"
                " and claim custom://merge."
            )
            await agent("release", resource="merge", agent=name)
        assert (await here("claim", resource="custom://merge", agent="ann"))["status"] == "claimed"
        assert (await there("claim", resource="custom://merge", agent="ben"))["held_by"] == "ann"


@pytest.mark.parametrize(
    ("resource", "custom"),
    [
        ("database", "custom://database."),
        *check(
            ("feature/login", "custom://feature/login."),
            ("gone/my notes.md", '"custom://gone/my notes.md".'),
            ("gone/" + "x" * 60, "custom://merge."),
            ('gone/a"b', "custom://merge."),
            ("file://main/deploy", "custom://deploy."),
            ("ворота", "custom://ворота."),
        ),
    ],
)
async def test_hint_for_a_missing_path_contains_the_name_of_the_caller(
    repository: Path, resource: str, custom: str
) -> None:
    async with server_in(repository) as agent:
        hint = (await agent("claim", resource=resource, agent="ann"))["hint"]
        assert hint.endswith(f"release this and claim {custom}")
        assert len(hint) <= 200


@pytest.mark.check
async def test_claim_of_a_file_about_to_be_created_gets_no_hint(repository: Path) -> None:
    (repository / "src").mkdir()
    async with server_in(repository) as agent:
        for resource in ("src/new.py", "new.py", ".env", "new/", "src/", "custom://merge"):
            assert "hint" not in await agent("claim", resource=resource, agent="ann")
        also = await agent("claim", resource="b.py", agent="ben", also=["c.py", "database"])
        assert f"{ONCE}database." in also["hint"]
        again = await agent("claim", resource="b.py", agent="ben", also=["c.py", "database"])
        assert (again["status"], ONCE in again["hint"]) == ("already_claimed", False)
        pool = await agent("claim", resource="src/", agent="cleo", alternatives=["custom://port", "deploy"])
        assert (pool["resource"], "hint" in pool) == ("custom://port", False)


@pytest.mark.check
async def test_names_that_protect_nothing_are_refused_with_what_to_use(repository: Path) -> None:
    (repository / "src").mkdir()
    for name in ("a.py", "src/parser.py"):
        (repository / name).touch()
    refusals = {
        "src/*.py": "trailing slash, such as src/",
        "src/**": "list the files in also",
        "a.py, b.py": "pass the first as resource and the others in also",
        "src/parser.py:10-20": "a whole file",
        "src/parser.py#L10": "a whole file",
        "src/parser.py#L10-L20": "a whole file",
        "custom:merge": "custom://merge",
        "custom//deploy": "custom://merge",
        "custom:/x": "custom://merge",
        "ann\u3164.py": "U+3164 HANGUL FILLER",
    }
    async with server_in(repository) as agent:
        for resource, remedy in refusals.items():
            message = await agent.error("claim", resource=resource, agent="ann")
            assert message.startswith("resource: must ")
            assert remedy in message
            assert resource not in message
        assert (await agent("status"))["claims"] == []
        for resource in ("custom//deploy", "a.py, b.py"):
            message = await agent.error("release", agent="ann", outcome="moved", moved_to=resource)
            assert message.startswith("moved_to: must ")
        for name in ("app/[id]/page.tsx", "資料（最終）.docx", "my file.py", "custom://every *"):
            assert (await agent("claim", resource=name, agent="ann"))["status"] == "claimed"


@pytest.mark.check
async def test_server_for_many_clients_does_not_look_for_files(repository: Path, tmp_path: Path) -> None:
    env = {"CLAUDE_PROJECT_DIR": str(repository)}
    with http_server(tmp_path / "state.db", "--tools", "all", env=env) as server:
        for mode in ERAS:
            async with connected(f"{server.url}/mcp", mode=mode) as agent:
                claimed = await agent("claim", resource=f"merge-{mode}", agent="ann")
                assert (claimed["status"], "hint" in claimed) == ("claimed", False)
                assert "trailing slash" in await agent.error("claim", resource="src/*.py", agent="ann")
                assert "U+2800 BRAILLE" in await agent.error("claim", resource="a.py", agent="ann\u2800")


# --- moved


@pytest.mark.check
@pytest.mark.parametrize("resource", ["a.md", "./a.md", "././/a.md"])
async def test_resource_is_not_moved_to_itself(agent: Agent, resource: str) -> None:
    await agent("claim", resource="a.md", agent="ann")
    message = await agent.error("release", resource="a.md", agent="ann", outcome="moved", moved_to=resource)
    assert message.startswith("moved_to: must ")
    assert (await agent("status", resource="a.md"))["held_by"] == "ann"


@pytest.mark.check
async def test_resource_in_a_workspace_is_not_moved_to_itself(repository: Path) -> None:
    async with server_in(repository) as agent:
        await agent("claim", resource="a.md", agent="ann")
        for same in (str(repository / "a.md"), ".//a.md", "file://main/a.md"):
            message = await agent.error("release", resource="./a.md", agent="ann", outcome="moved", moved_to=same)
            assert message.startswith("moved_to: must ")
        moved = await agent("release", resource="a.md", agent="ann", outcome="moved", moved_to="b.md")
        assert (moved["status"], moved["outcome"]) == ("released", "moved")


async def test_rename_under_both_names_reports_the_new_one_as_created(agent: Agent) -> None:
    for several in ({"resource": "a.md", "also": ["b.md"]}, {}):
        await agent("claim", resource="a.md", agent="ann", also=["b.md"])
        await agent("release", agent="ann", outcome="moved", moved_to="b.md", **several)
        old, new = await agent("status", resource="a.md"), await agent("status", resource="b.md")
        assert (old["previous_outcome"], old["moved_to"]) == ("moved", "b.md")
        assert (new["previous_outcome"], "moved_to" in new) == ("created", False)


async def test_hint_for_a_moved_resource_does_not_lead_into_a_deadlock(agent: Agent) -> None:
    await agent("claim", resource="old.md", agent="cleo")
    await agent("release", resource="old.md", agent="cleo", outcome="moved", moved_to="new.md")
    assert (await agent("claim", resource="new.md", agent="ben"))["status"] == "claimed"
    moved = await agent("claim", resource="old.md", agent="ann")
    assert (moved["status"], moved["moved_to"]) == ("claimed", "new.md")
    assert "release for this one first, then holdlog_claim" in moved["hint"]
    of_ben = asyncio.create_task(agent("claim", resource="old.md", agent="ben", wait_seconds=30))
    await in_line(agent)
    assert (await agent("claim", resource="new.md", agent="ann", wait_seconds=30))["status"] == "deadlock"
    assert (await agent("release", resource="old.md", agent="ann"))["granted_to"] == "ben"
    assert (await of_ben)["status"] == "claimed"
    of_ann = asyncio.create_task(agent("claim", resource="new.md", agent="ann", wait_seconds=30))
    await in_line(agent)
    await agent("release", agent="ben")
    assert (await of_ann)["status"] == "claimed"
