"""The surface that agents see, served in memory to clients of both protocol eras."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any

import pytest
from fastmcp import Client, FastMCP

from holdlog.adapters.calls import Calls, Settings
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.host import now
from holdlog.adapters.mcp import GROUPS, FixedTools, build_server, chosen_groups
from holdlog.adapters.memory import MemoryReader, MemoryStore, MemoryTransaction
from holdlog.adapters.opened import Opened
from holdlog.domain.refusals import InvalidError, UnavailableError
from tests.agent import Agent, connected

ALL = tuple(GROUPS)
ERAS = ("legacy", "auto")
TELLS_TO_DESTROY = re.compile(r"\b(force|clear|delete|remove|erase|re-?create)\b", re.IGNORECASE)


@contextmanager
def opened(settings: Settings | None = None) -> Iterator[Opened]:
    store = open_holdlog(":memory:", settings)
    yield store
    store.close()


@asynccontextmanager
async def served(
    mode: Any = "auto", prefix: str = "holdlog_", settings: Settings | None = None, **options: Any
) -> AsyncIterator[Agent]:
    with opened(settings) as store:
        async with connected(build_server(store, ALL, prefix, **options), prefix, mode=mode) as agent:
            yield agent


@pytest.fixture(params=ERAS)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with served(request.param) as agent:
        yield agent


class Gone(MemoryStore):
    """A store that cannot take any call at the moment."""

    @contextmanager
    def reader(self) -> Iterator[MemoryReader]:
        raise UnavailableError("the disk is full", retry_after=2.0)
        yield

    snapshot = reader

    @contextmanager
    def transaction(self, deadline: float) -> Iterator[MemoryTransaction]:
        raise UnavailableError("the disk is full", retry_after=2.0, in_doubt=True)
        yield


EVERY_CALL: dict[str, dict[str, Any]] = {
    "claim": {"resource": "a.md", "agent": "ann"},
    "release": {"resource": "a.md", "agent": "ann"},
    "status": {"resource": "a.md"},
    "wait": {"resource": "a.md", "timeout_seconds": 0},
    "get": {"namespace": "n", "key": "k"},
    "set": {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "expected_version": 0},
    "list": {"namespace": "n"},
    "history": {"namespace": "n", "key": "k"},
    "delete": {"namespace": "n", "key": "k", "deleted_by": "ann", "expected_version": 1},
    "clear_namespace": {"namespace": "n", "deleted_by": "ann"},
    "export": {"namespace": "n"},
    "watch": {"namespace": "n", "key": "k", "since_version": 0, "timeout_seconds": 0},
}


async def every_answer(agent: Agent) -> None:
    """Make every tool give every answer that it has."""
    at = {"namespace": "n", "key": "k"}
    ann, ben = {"resource": "a.md", "agent": "ann"}, {"resource": "a.md", "agent": "ben"}
    soon = {"timeout_seconds": 0}
    for tool, arguments in (
        ("release", ann),
        ("status", {"resource": "a.md"}),
        ("wait", {"resource": "a.md"}),
        ("claim", ann),
        ("claim", ann),
        ("claim", ben),
        ("release", ben),
        ("status", {"resource": "a.md"}),
        ("status", {}),
        ("wait", {"resource": "a.md"} | soon),
        ("release", ann),
        ("release", ann),
        ("status", {"resource": "a.md"}),
        ("get", at),
        ("list", {"namespace": "n"}),
        ("history", at),
        ("export", {"namespace": "n"}),
        ("watch", {**at, "since_version": 0} | soon),
        ("delete", {**at, "deleted_by": "ann", "expected_version": 1}),
        ("set", {**at, "value": None, "updated_by": "ann", "expected_version": 0, "reason": "STORED"}),
        ("set", {**at, "value": {"secret": "STORED"}, "updated_by": "ann", "expected_version": 1}),
        ("set", {**at, "value": 1, "updated_by": "ben", "expected_version": 1}),
        ("get", at),
        ("watch", {**at, "since_version": 0}),
        ("list", {"namespace": "n"}),
        ("list", {}),
        ("list", {"namespace": "n", "deleted": True}),
        ("history", at),
        ("history", {**at, "limit": 1}),
        ("export", {"namespace": "n", "include_deleted": True}),
        ("delete", {**at, "deleted_by": "ben", "expected_version": 1}),
        ("delete", {**at, "deleted_by": "ann", "expected_version": 2}),
        ("get", at),
        ("watch", {**at, "since_version": 2}),
        ("set", {**at, "value": 1, "updated_by": "ben", "expected_version": 2}),
        ("set", {**at, "value": "STORED", "updated_by": "ben", "force": True}),
        ("clear_namespace", {"namespace": "n", "deleted_by": "ann"}),
    ):
        await agent(tool, **arguments)


@pytest.mark.parametrize("mode", ERAS)
async def test_every_tool_gives_every_answer_that_its_schema_names(mode: str) -> None:
    gone = Opened(Gone(), open_holdlog(":memory:").bell, open_holdlog(":memory:").caller, Calls(Settings(), now))
    async with served(mode) as agent, connected(build_server(gone, ALL), mode=mode) as unlucky:
        await every_answer(agent)
        for tool, arguments in EVERY_CALL.items():
            assert (await unlucky(tool, **arguments))["retry_after"] == 2.0
        seen = {(tool, answer["status"]) for tool, answer in agent.answers + unlucky.answers}
        for tool in await agent.client.list_tools():
            assert tool.output_schema is not None
            promised = tool.output_schema["properties"]["status"]["enum"]
            assert {status for name, status in seen if "holdlog_" + name == tool.name} == set(promised)


async def test_the_examples_of_the_seed_about_claims(agent: Agent) -> None:
    ann, ben = {"resource": "intro.md", "agent": "writer-1"}, {"resource": "intro.md", "agent": "writer-2"}
    assert await agent("status", resource="intro.md") == {"status": "available", "resource": "intro.md"}

    claimed = await agent("claim", **ann)
    assert claimed | {"status": "claimed", "resource": "intro.md", "version": 1} == claimed
    again = await agent("claim", **ann)
    assert again | {"status": "already_claimed", "resource": "intro.md", "version": 1} == again

    busy = await agent("claim", **ben)
    assert busy | {"status": "busy", "resource": "intro.md", "held_by": "writer-1"} == busy
    assert busy["claimed_at"] == claimed["claimed_at"]
    assert "holdlog_wait" in busy["hint"]

    held = await agent("status", resource="intro.md")
    assert held | {"status": "claimed", "resource": "intro.md", "held_by": "writer-1", "version": 1} == held
    assert held["claimed_at"] == claimed["claimed_at"]

    timeout = await agent("wait", resource="intro.md", timeout_seconds=0.01)
    assert timeout | {"status": "timeout", "resource": "intro.md", "held_by": "writer-1"} == timeout
    assert timeout["elapsed_seconds"] >= 0.01
    assert "holdlog_wait" in timeout["hint"]

    waiting = asyncio.create_task(agent("wait", resource="intro.md", timeout_seconds=30))
    released = await agent("release", **ann)
    assert released == {"status": "released", "resource": "intro.md", "version": 2}
    available = await waiting
    assert available["status"] == "available"
    assert available["resource"] == "intro.md"
    assert available["elapsed_seconds"] < 30
    assert (await agent("claim", **ben))["version"] == 3


async def test_the_examples_of_the_seed_about_values(agent: Agent) -> None:
    at = {"namespace": "order-1234", "key": "status"}
    assert (await agent("get", **at))["status"] == "not_found"
    for known, (value, by) in enumerate([("received", "intake"), ("validated", "checks"), ("processing", "packing")]):
        assert (await agent("set", **at, value=value, updated_by=by, expected_version=known))["status"] == "ok"

    read = await agent("get", **at)
    assert read | {"status": "ok", **at, "value": "processing", "version": 3, "updated_by": "packing"} == read

    written = await agent("set", **at, value="shipped", updated_by="logistics", expected_version=3)
    assert written | {"status": "ok", **at, "version": 4, "previous_version": 3} == written

    conflict = await agent("set", **at, value="returned", updated_by="returns", expected_version=3)
    assert conflict["status"] == "conflict"
    assert (conflict["expected_version"], conflict["actual_version"]) == (3, 4)
    assert (conflict["actual_value"], conflict["actual_updated_by"]) == ("shipped", "logistics")
    assert _time(conflict["actual_updated_at"]) >= _time(read["updated_at"])
    assert "holdlog_get" in conflict["hint"]
    assert (await agent("set", **at, value=0, updated_by="returns", expected_version=0))["status"] == "conflict"

    history = await agent("history", **at, limit=2)
    assert history["status"] == "ok"
    assert [(it["version"], it["value"], it["event_type"]) for it in history["history"]] == [
        (4, "shipped", "write"),
        (3, "processing", "write"),
    ]
    assert {"updated_by", "updated_at"} <= history["history"][0].keys()
    assert (await agent("history", namespace="order-1234", key="never"))["history"] == []

    deleted = await agent("delete", **at, deleted_by="cleanup", expected_version=4)
    assert deleted | {"status": "ok", **at, "deleted_by": "cleanup", "deleted_version": 4} == deleted
    tombstone = (await agent("history", **at))["history"][0]
    assert (tombstone["event_type"], tombstone["value"]) == ("delete", None)
    assert (await agent("get", **at))["status"] == "not_found"


async def test_the_examples_of_the_seed_about_namespaces(agent: Agent) -> None:
    for key, value in (("total", 80.99), ("items", [1, 2]), ("status", "new")):
        await agent("set", namespace="order-1234", key=key, value=value, updated_by="intake", expected_version=0)
    await agent("set", namespace="order-1234", key="status", value="old", updated_by="intake", expected_version=1)

    listed = await agent("list", namespace="order-1234")
    assert (listed["status"], listed["namespace"], listed["count"]) == ("ok", "order-1234", 3)
    assert [(it["key"], it["value"], it["version"]) for it in listed["records"]] == [
        ("items", [1, 2], 1),
        ("status", "old", 2),
        ("total", 80.99, 1),
    ]
    assert {"updated_by", "updated_at"} <= listed["records"][0].keys()
    assert (await agent("list", namespace="empty"))["count"] == 0

    exported = await agent("export", namespace="order-1234")
    assert exported["status"] == "ok"
    assert (exported["record_count"], exported["history_count"]) == (3, 4)
    assert _time(exported["exported_at"])
    assert [it["key"] for it in exported["records"]] == ["items", "status", "total"]
    status = exported["records"][1]
    assert (status["value"], status["version"], status["updated_by"]) == ("old", 2, "intake")
    assert [(it["version"], it["value"], it["event_type"]) for it in status["history"]] == [
        (2, "old", "write"),
        (1, "new", "write"),
    ]

    cleared = await agent("clear_namespace", namespace="order-1234", deleted_by="cleanup")
    assert cleared["status"] == "ok"
    assert (cleared["deleted_count"], cleared["deleted_keys"]) == (3, ["items", "status", "total"])
    assert (cleared["namespace"], cleared["deleted_by"]) == ("order-1234", "cleanup")
    assert (await agent("history", namespace="order-1234", key="total"))["history"][0]["event_type"] == "delete"
    assert (await agent("clear_namespace", namespace="order-1234", deleted_by="cleanup"))["deleted_count"] == 0


async def test_the_examples_of_the_seed_about_watching(agent: Agent) -> None:
    at = {"namespace": "pipeline", "key": "step_1_result"}
    watching = asyncio.create_task(agent("watch", **at, since_version=0, timeout_seconds=30))
    await agent("set", **at, value={"score": 0.92}, updated_by="agent-a", expected_version=0)
    changed = await watching
    assert changed | {"status": "ok", **at, "value": {"score": 0.92}, "version": 1, "updated_by": "agent-a"} == changed
    assert _time(changed["updated_at"])

    timeout = await agent("watch", **at, since_version=1, timeout_seconds=0.01)
    assert timeout | {"status": "timeout", **at, "since_version": 1} == timeout
    assert timeout["elapsed_seconds"] >= 0.01
    assert "holdlog_get" in timeout["hint"]


async def test_a_write_needs_a_version_or_force(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    assert "expected_version" in await agent.error("set", **at, value=1, updated_by="ann")
    assert "expected_version" in await agent.error("delete", **at, deleted_by="ann")
    for _ in range(2):
        assert (await agent("set", **at, value=1, updated_by="ann", force=True))["status"] == "ok"
    assert (await agent("set", **at, value=1, updated_by="ann", force=True, expected_version=1))["version"] == 3
    assert (await agent("delete", **at, deleted_by="ann", force=True))["deleted_version"] == 3


async def test_an_error_names_the_argument_as_the_tool_does(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    assert (await agent.error("set", **at, value=1, updated_by=" ", force=True)).startswith("updated_by: ")
    assert (await agent.error("delete", **at, deleted_by=" ", force=True)).startswith("deleted_by: ")
    assert (await agent.error("clear_namespace", namespace="n", deleted_by="\n")).startswith("deleted_by: ")
    assert (await agent.error("claim", resource="../x", agent="ann")).startswith("resource: ")
    assert (await agent.error("claim", resource="x", agent="")).startswith("agent: ")
    assert (await agent.error("list", namespace="n", limit=0)).startswith("limit: ")
    assert (await agent.error("get", **at, colour="red")).startswith("colour: ")
    assert (await agent.error("get", namespace="n")).startswith("key: ")
    assert (await agent.error("get", **at, **{"x" * 100: 1})).startswith("arguments: ")
    assert (await agent.error("get", **at, **{"\x1b[2J": 1})).startswith("arguments: ")


async def test_a_wait_beyond_the_cap_is_cut_and_says_so() -> None:
    async with served(settings=Settings(max_wait=0.01)) as agent:
        await agent("claim", resource="a.md", agent="ann")
        assert (await agent("wait", resource="a.md", timeout_seconds=1e15))["capped_at_seconds"] == 0.01
        timeout = await agent("watch", namespace="n", key="k", since_version=0, timeout_seconds=3600)
        assert timeout["capped_at_seconds"] == 0.01


@pytest.mark.parametrize("mode", ERAS)
async def test_a_wait_tells_its_progress_to_those_who_ask(mode: str) -> None:
    async with served(mode, progress_every=0.01) as agent:
        await agent("claim", resource="a.md", agent="ann")
        told: list[float] = []
        enough = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)
            if len(told) >= 3:
                enough.set()

        waiting = asyncio.create_task(
            agent.client.call_tool_mcp("holdlog_wait", {"resource": "a.md"}, progress_handler=hear)
        )
        await enough.wait()
        await agent("release", resource="a.md", agent="ann")
        assert (await waiting).structured_content["status"] == "available"  # type: ignore[index]
        assert told == sorted(set(told))


async def test_a_cancelled_wait_leaves_the_server_well() -> None:
    async with served() as agent:
        await agent("claim", resource="a.md", agent="ann")
        with pytest.raises(Exception, match=r"[Tt]imed out"):
            await agent.client.call_tool_mcp("holdlog_wait", {"resource": "a.md"}, timeout=0.05)
        assert (await agent("release", resource="a.md", agent="ann"))["status"] == "released"


# --- what callers say of themselves


@pytest.mark.parametrize("mode", ERAS)
async def test_a_repeated_request_id_gets_the_same_answer_and_another_body_is_refused(mode: str) -> None:
    async with served(mode) as agent:
        again = {"holdlog/request_id": "r-1"}
        body = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "expected_version": 0}
        first = await agent("set", again, **body)
        assert await agent("set", again, **body) == first
        assert "request_id" in await agent.error("set", again, **body | {"value": 2})
        assert (await agent("set", **body))["status"] == "conflict"
        assert (await agent("get", namespace="n", key="k"))["version"] == 1
        assert "request_id" in await agent.error("set", {"holdlog/request_id": 5}, **body)
        assert "request_id" in await agent.error("set", {"holdlog/request_id": "x" * 200}, **body)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_session_of_a_call_stands_in_the_log(mode: str) -> None:
    with opened() as store:
        async with connected(build_server(store, ALL), mode=mode) as agent:
            for number, meta in enumerate(
                [
                    {"holdlog/session": "s-1"},
                    {"ai.opencode/sessionID": "s-2"},
                    {"threadId": "s-3"},
                    {"threadId": 4},
                    None,
                ]
            ):
                await agent("set", meta, namespace="n", key=f"{number}", value=0, updated_by="a", expected_version=0)
            both = {"threadId": "s-5", "holdlog/session": "s-6"}
            await agent("claim", both, resource="a.md", agent="ann")
            assert "session" in await agent.error("claim", {"holdlog/session": " "}, resource="b.md", agent="ann")
        with store.store.snapshot() as reader:
            sessions = [recorded.envelope.caller.session for recorded in reader.log(0, -1)]
        assert sessions == ["s-1", "s-2", "s-3", store.caller.session, store.caller.session, "s-6"]


async def test_a_reason_stands_in_the_history(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    await agent("set", **at, value=1, updated_by="ann", expected_version=0, reason="because")
    await agent("delete", **at, deleted_by="ann", expected_version=1, reason="over")
    assert [past["reason"] for past in (await agent("history", **at))["history"]] == ["over", "because"]


# --- what hosts are told


def test_groups_go_by_their_names_and_by_those_of_the_seed() -> None:
    assert chosen_groups("claims") == chosen_groups("standard") == ("claims",)
    assert chosen_groups("state") == chosen_groups("advanced") == ("state",)
    assert chosen_groups("all") == ALL
    assert chosen_groups(" state , claims,state") == ("state", "claims")
    for wrong in ("", ",", "power-tools", "claims,stat"):
        with pytest.raises(InvalidError, match="claims"):
            chosen_groups(wrong)


async def listing(groups: tuple[str, ...], prefix: str = "holdlog_") -> tuple[list[dict[str, Any]], str]:
    """The tools and the instructions that a host gets."""
    with opened() as store:
        async with Client(build_server(store, groups, prefix), mode="legacy") as client:
            tools = (await client.list_tools_mcp()).tools
            assert client.initialize_result is not None
            instructions = client.initialize_result.instructions or ""
    return [json.loads(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools], instructions


@pytest.mark.parametrize("groups", [("claims",), ("state",), ALL])
async def test_a_group_brings_its_tools_and_speaks_of_no_others(groups: tuple[str, ...]) -> None:
    tools, instructions = await listing(groups)
    names = {tool["name"] for tool in tools}
    assert names == {f"holdlog_{kind.name}" for group in groups for kind in GROUPS[group]}
    told = instructions + "".join(tool["description"] for tool in tools)
    assert set(re.findall(r"holdlog_\w+", told)) <= names
    assert "()" not in told


@pytest.mark.parametrize("prefix", ["agenthold_", ""])
async def test_every_name_follows_the_prefix(prefix: str) -> None:
    tools, instructions = await listing(ALL, prefix)
    ours, our_instructions = await listing(ALL)
    assert json.dumps(tools) == json.dumps(ours).replace("holdlog_", prefix)
    assert instructions == our_instructions.replace("holdlog_", prefix)
    async with served(prefix=prefix) as agent:
        await every_answer(agent)
        hints = " ".join(answer["hint"] for _, answer in agent.answers if "hint" in answer)
        assert "holdlog" not in hints
        assert f"call {prefix}wait to be told" in hints
        assert "()" not in hints


@pytest.mark.parametrize("prefix", ["a b", "x" * 33, "é_", "a/"])
def test_a_prefix_that_hosts_would_refuse_is_refused(prefix: str) -> None:
    with opened() as store, pytest.raises(InvalidError, match="tool-prefix"):
        build_server(store, ALL, prefix)


async def test_every_tool_says_what_it_does_to_the_world() -> None:
    tools, _ = await listing(ALL)
    told = {tool["name"].removeprefix("holdlog_"): tool["annotations"] for tool in tools}
    hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert all(set(annotations) == hints for annotations in told.values())
    assert not any(annotations["openWorldHint"] for annotations in told.values())
    assert {name for name, annotations in told.items() if annotations["readOnlyHint"]} == {
        "status",
        "wait",
        "get",
        "list",
        "history",
        "export",
        "watch",
    }
    assert {name for name, annotations in told.items() if annotations["destructiveHint"]} == {
        "set",
        "delete",
        "clear_namespace",
    }
    assert {name for name, annotations in told.items() if not annotations["idempotentHint"]} == {"set", "delete"}
    assert all(tool["title"] for tool in tools)


async def test_hosts_keep_the_tools_for_claims_loaded() -> None:
    tools, _ = await listing(ALL)
    loaded = {tool["name"] for tool in tools if tool.get("_meta") == {"anthropic/alwaysLoad": True}}
    assert loaded == {f"holdlog_{kind.name}" for kind in GROUPS["claims"]}
    assert all("_meta" not in tool for tool in tools if tool["name"] not in loaded)


@pytest.mark.parametrize(("groups", "most"), [(("claims",), 5_000), (ALL, 14_000)])
async def test_the_list_of_tools_stays_in_its_budget(groups: tuple[str, ...], most: int) -> None:
    tools, _ = await listing(groups)
    size = len(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")).encode())
    assert size <= most


@pytest.mark.parametrize(("groups", "first"), [(("claims",), "claim"), (("state",), "get"), (ALL, "claim")])
async def test_texts_are_short_and_begin_with_when_to_use_them(groups: tuple[str, ...], first: str) -> None:
    tools, instructions = await listing(groups)
    assert len(instructions.encode()) <= 2048
    assert f"holdlog_{first}" in instructions[:200]
    for tool in tools:
        assert 40 <= len(tool["description"].encode()) <= 1024
        said = [argument.get("description") for argument in tool["inputSchema"]["properties"].values()]
        assert all(len(text) <= 100 for text in said if text)


async def test_arguments_are_described_once_and_unknown_ones_refused() -> None:
    tools, _ = await listing(ALL)
    said = [
        text
        for tool in tools
        for argument in tool["inputSchema"]["properties"].values()
        if (text := argument.get("description")) and "next_after" not in text
    ]
    assert len(said) == len(set(said))
    assert all(tool["inputSchema"]["additionalProperties"] is False for tool in tools)
    assert "anyOf" not in json.dumps(tools)


async def test_the_server_goes_by_its_own_name_and_version() -> None:
    with opened() as store:
        async with Client(build_server(store, ALL), mode="legacy") as client:
            assert client.initialize_result is not None
            told = client.initialize_result.server_info
    assert (told.name, told.version) == ("holdlog", version("holdlog"))


async def test_tools_are_those_that_fastmcp_itself_would_list() -> None:
    with opened() as store:
        server = build_server(store, ALL)
        assert isinstance(server, FixedTools)
        ours, theirs = await server.list_tools(), await FastMCP.list_tools(server, run_middleware=False)
        assert [tool.to_mcp_tool() for tool in ours] == [tool.to_mcp_tool() for tool in theirs]
        for tool in theirs:
            assert await server.get_tool(tool.name) == await FastMCP.get_tool(server, tool.name)
        assert await server.get_tool("holdlog_nope") is None


async def test_no_text_tells_to_destroy_and_no_hint_holds_what_agents_wrote() -> None:
    async with served() as agent:
        await every_answer(agent)
        at = {"namespace": "n", "key": "k"}
        await agent.error("set", **at, value="STORED", updated_by="ann")
        await agent.error("delete", **at, deleted_by="ann")
        await agent.error("set", **at, value="STORED", updated_by="ann", expected_version=-1)
        await agent.error("set", **at, value="STORED", updated_by="ann", expected_version=0, reason="STORED\n")
        await agent.error("claim", resource="../STORED", agent="ann")
        await agent.error("nope")
        hints = [answer["hint"] for _, answer in agent.answers if "hint" in answer]
        gone = Opened(Gone(), open_holdlog(":memory:").bell, open_holdlog(":memory:").caller, Calls(Settings(), now))
        async with connected(build_server(gone, ALL)) as unlucky:
            for tool, arguments in EVERY_CALL.items():
                hints.append((await unlucky(tool, **arguments))["hint"])
        assert len(set(hints)) >= 8
        assert all(len(hint) <= 200 for hint in hints)
        for told in hints + agent.errors:
            assert not TELLS_TO_DESTROY.search(told), told
            assert "STORED" not in told
    tools, instructions = await listing(ALL)
    assert not TELLS_TO_DESTROY.search(instructions)
    for tool in tools:
        if tool["name"].removeprefix("holdlog_") not in ("set", "delete", "clear_namespace"):
            assert not TELLS_TO_DESTROY.search(tool["description"]), tool["name"]


def _time(text: str) -> datetime:
    """RFC 3339 UTC with microseconds."""
    time = datetime.fromisoformat(text)
    assert time.utcoffset() == timedelta(0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", text)
    return time
