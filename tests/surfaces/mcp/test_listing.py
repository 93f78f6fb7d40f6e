"""What hosts are told of the server and its tools: short, complete, and the same whatever is stored."""

import json
import re
from importlib.metadata import version

import pytest
from fastmcp import Client, FastMCP

from holdlog.adapters.mcp.server import FixedTools, build_server, chosen_groups
from holdlog.adapters.mcp.tools import TOOLS
from holdlog.domain.refusals import InvalidError
from tests.support.agent import ALL, engine, listing


def test_tool_groups_are_selected_by_their_names_and_those_of_the_seed() -> None:
    assert chosen_groups("claims") == chosen_groups("standard") == ("claims",)
    assert chosen_groups("state") == chosen_groups("advanced") == ("state",)
    assert chosen_groups("all") == ALL
    assert chosen_groups(" state , claims,state") == ("state", "claims")
    for wrong in ("", ",", "power-tools", "claims,stat"):
        with pytest.raises(InvalidError, match="claims"):
            chosen_groups(wrong)


@pytest.mark.parametrize("groups", [("claims",), ("state",), ("power",), ("threads",), ALL])
async def test_tool_group_lists_its_tools_and_mentions_no_others(groups: tuple[str, ...]) -> None:
    tools, instructions = await listing(groups)
    names = {tool["name"] for tool in tools}
    assert names == {f"holdlog_{kind.name}" for group in groups for kind in TOOLS[group].kinds()}
    told = instructions + "".join(tool["description"] for tool in tools)
    assert set(re.findall(r"holdlog_\w+", told)) <= names
    assert "()" not in told


@pytest.mark.parametrize("prefix", ["a b", "x" * 33, "é_", "a/"])
def test_tool_prefix_that_hosts_would_refuse_is_refused(prefix: str) -> None:
    with engine() as store, pytest.raises(InvalidError, match="tool-prefix"):
        build_server(store, ALL, prefix)


async def test_every_tool_declares_its_side_effects() -> None:
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
        "events",
        "past",
        "read_state",
        "thread_read",
        "thread_get",
        "thread_has",
    }
    assert {name for name, annotations in told.items() if annotations["destructiveHint"]} == {
        "set",
        "delete",
        "clear_namespace",
        "transact",
        "update",
        "save_state",
        "thread_set",
        "thread_delete",
    }
    assert {name for name, annotations in told.items() if not annotations["idempotentHint"]} == {
        "set",
        "delete",
        "transact",
        "update",
        "save_state",
        "thread_start",
        "thread_append",
        "thread_set",
        "thread_delete",
    }
    assert all(tool["title"] for tool in tools)


async def test_tools_for_claims_are_marked_as_always_loaded() -> None:
    tools, _ = await listing(ALL)
    loaded = {tool["name"] for tool in tools if tool.get("_meta") == {"anthropic/alwaysLoad": True}}
    assert loaded == {f"holdlog_{kind.name}" for kind in TOOLS["claims"].kinds()}
    assert all("_meta" not in tool for tool in tools if tool["name"] not in loaded)


@pytest.mark.parametrize(
    ("groups", "most"),
    [(("claims",), 6_000), (("claims", "state"), 14_000), (("power",), 7_000), (("threads",), 9_000)],
)
async def test_tool_list_stays_within_its_size_limit(groups: tuple[str, ...], most: int) -> None:
    tools, _ = await listing(groups)
    size = len(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")).encode())
    assert size <= most


@pytest.mark.parametrize(
    ("groups", "first"),
    [
        (("claims",), "claim"),
        (("state",), "get"),
        (("power",), "transact"),
        (("kv",), "save_state"),
        (("threads",), "thread_start"),
        (ALL, "claim"),
    ],
)
async def test_tool_descriptions_are_short_and_begin_with_when_to_use_them(groups: tuple[str, ...], first: str) -> None:
    tools, instructions = await listing(groups)
    assert len(instructions.encode()) <= 2048
    assert f"holdlog_{first}" in instructions[:200]
    for tool in tools:
        assert 40 <= len(tool["description"].encode()) <= 1024
        said = [argument.get("description") for argument in tool["inputSchema"]["properties"].values()]
        assert all(len(text) <= 100 for text in said if text)


ANY_JSON = {("holdlog_set", "value"), ("holdlog_thread_set", "value"), ("holdlog_update", "append")}


async def test_tool_arguments_are_described_once_and_unknown_ones_refused() -> None:
    tools, _ = await listing(ALL)
    said = [
        text
        for tool in tools
        for name, argument in tool["inputSchema"]["properties"].items()
        if (text := argument.get("description")) and "next_after" not in text and name not in ("namespace", "key")
    ]
    assert len(said) == len(set(said))
    assert all(tool["inputSchema"]["additionalProperties"] is False for tool in tools)
    for tool in tools:
        for name, argument in tool["inputSchema"]["properties"].items():
            # Only what may be any JSON has alternatives, and what has none says its type: hosts ask for it.
            any_json = (tool["name"], name) in ANY_JSON
            assert ("anyOf" in argument) == any_json, name
            assert any_json or argument.keys() & {"type", "enum"}, name


async def test_server_reports_its_name_and_version() -> None:
    with engine() as store:
        async with Client(build_server(store, ALL), mode="legacy") as client:
            assert client.initialize_result is not None
            told = client.initialize_result.server_info
    assert (told.name, told.version) == ("holdlog", version("holdlog"))


async def test_tool_list_equals_that_of_fastmcp_itself() -> None:
    with engine() as store:
        server = build_server(store, ALL)
        assert isinstance(server, FixedTools)
        ours, theirs = await server.list_tools(), await FastMCP.list_tools(server, run_middleware=False)
        assert [tool.to_mcp_tool() for tool in ours] == [tool.to_mcp_tool() for tool in theirs]
        for tool in theirs:
            assert await server.get_tool(tool.name) == await FastMCP.get_tool(server, tool.name)
        assert await server.get_tool("holdlog_nope") is None
