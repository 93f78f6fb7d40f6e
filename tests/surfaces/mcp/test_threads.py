"""The tools for threads: what one agent appends another reads, and nobody's change of data is lost."""

import asyncio
from typing import Any

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.threads.conversation import AgentResult, new_result
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from holdlog.domain.threads.commands import ReplaceResults
from tests.support.agent import ALL, ERAS, Agent, connected, engine, served
from tests.support.clock import Clock
from tests.support.endpoint import until
from tests.support.wire import PATIENCE

LONG_WAIT = 3600
LONG = "x" * 300_000
HELLO = {"type": "text", "role": "user", "content": "hello"}
DONE = {"type": "text", "role": "assistant", "content": "done", "stop_reason": "stop"}
CALL = {"type": "tool", "id": "c-1", "name": "read", "input": {"path": "a.py", "line": None}}
ANSWERED = {"type": "tool_result", "role": "tool_result", "tool": CALL, "content": [1, None], "stop_reason": "tool"}
AT = "2026-11-21T12:00:00+00:00"
FOUND: dict[str, Any] = {"agent_name": "writer", "output": [DONE], "tool_calls": [ANSWERED], "created_at": AT}


def text(content: str) -> dict[str, Any]:
    return HELLO | {"content": content}


def result(number: int) -> dict[str, Any]:
    return {"agent_name": "writer", "output": [text(f"r-{number}")], "created_at": f"2026-11-21T12:00:{number:02}Z"}


def said(page: dict[str, Any]) -> list[str]:
    """Of the items of a page, what they say."""
    items = [it.get("message") or it["result"]["output"][0] for it in page["items"]]
    return [it["content"] for it in items]


def replace_results(store: Engine, thread: str, *found: dict[str, Any]) -> None:
    new = tuple(new_result(AgentResult.model_validate(it)) for it in found)
    store.writer.run(ReplaceResults(thread=thread, results=new, by="ann"), NOBODY)


# --- what one does another sees


@pytest.mark.parametrize("era", ERAS)
async def test_agents_share_messages_results_and_data(era: str) -> None:
    async with served(era) as agent:
        started = await agent("thread_start", agent="planner", thread_id="run 1", data={"plan": "draft"})
        assert started == {
            "status": "started",
            "thread_id": "run 1",
            "version": 2,
            "data_version": 2,
            "created": True,
            "messages": 0,
            "results": 0,
            "position": 2,
        }
        appended = await agent("thread_append", thread_id="run 1", agent="writer", messages=[HELLO], results=[FOUND])
        assert appended | {"version": 4, "appended": 2, "already": 0, "position": 4} == appended
        resumed = await agent("thread_start", agent="critic", thread_id="run 1", data={"plan": "other"})
        assert (resumed["status"], resumed["messages"], resumed["results"], resumed["data_version"]) == (
            "resumed",
            1,
            1,
            2,
        )
        page = await agent("thread_read", thread_id="run 1")
        assert (page["version"], page["cleared"]) == (4, 0)
        message, found = page["items"]
        assert (message["version"], message["kind"], message["by"], message["message"]) == (
            3,
            "message",
            "writer",
            HELLO,
        )
        assert found["kind"] == "result"
        kept = FOUND | {"created_at": "2026-11-21T12:00:00.000000+00:00", "checksum": appended["checksums"][0]}
        assert found["result"] == kept
        for_model = await agent("thread_read", thread_id="run 1", format="model")
        assert for_model["messages"] == [HELLO, DONE, ANSWERED]
        assert await agent("thread_get", thread_id="run 1", key="plan") == {
            "status": "ok",
            "thread_id": "run 1",
            "key": "plan",
            "value": "draft",
            "data_version": 2,
        }
        assert (await agent("thread_has", thread_id="run 1", key="plan"))["has"] is True
        assert (await agent("thread_has", thread_id="run 1", key="none"))["has"] is False


async def test_agentkit_spelling_is_accepted_and_read_items_can_be_appended_elsewhere() -> None:
    async with served() as agent:
        for name in ("a", "b"):
            await agent("thread_start", agent="ann", thread_id=name)
        told = {"agentName": "writer", "output": [], "toolCalls": [ANSWERED], "createdAt": AT, "raw": "…", "id": "r"}
        first = await agent("thread_append", thread_id="a", agent="ann", results=[told])
        (item,) = (await agent("thread_read", thread_id="a"))["items"]
        again = await agent("thread_append", thread_id="b", agent="ann", results=[item["result"]])
        assert again["checksums"] == first["checksums"]


async def test_fork_over_mcp_begins_with_its_parent_at_that_version() -> None:
    async with served() as agent:
        await agent("thread_start", agent="ann", thread_id="t", data={"k": 1})
        await agent("thread_append", thread_id="t", agent="ann", messages=[text("early")])
        await agent("thread_append", thread_id="t", agent="ann", messages=[text("late")])
        await agent("thread_set", thread_id="t", key="k", value=2, agent="ann", expected_data_version=2)
        fork = await agent("thread_start", agent="ben", parent="t", parent_version=3)
        assert (fork["status"], fork["parent"], fork["parent_version"], fork["messages"]) == ("started", "t", 3, 1)
        assert said(await agent("thread_read", thread_id=fork["thread_id"])) == ["early"]
        assert (await agent("thread_get", thread_id=fork["thread_id"]))["data"] == {"k": 1}
        assert (await agent.error("thread_start", agent="ben", thread_id="t", parent="t")).startswith("thread_id: ")
        assert (await agent("thread_start", agent="ben", parent="nowhere"))["thread_id"] == "nowhere"
        for named, wrong in (
            ("parent_version", {"parent_version": 1}),
            ("data", {"parent": "t", "data": {}}),
            ("parent_version", {"parent": "t", "parent_version": 99}),
        ):
            assert (await agent.error("thread_start", agent="ben", **wrong)).startswith(f"{named}: ")


# --- again


async def test_repeated_result_is_counted_and_not_stored_twice() -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        at = {"thread_id": "t", "agent": "ann"}
        first = await agent("thread_append", **at, results=[FOUND, FOUND])
        again = await agent("thread_append", **at, results=[FOUND])
        assert [(it["appended"], it["already"], it["version"]) for it in (first, again)] == [(1, 1, 2), (0, 1, 2)]
        assert first["checksums"] == again["checksums"] * 2
        untimed = {"agent_name": "writer", "output": [DONE]}
        for _ in range(2):
            assert (await agent("thread_append", **at, results=[untimed]))["appended"] == 1
            clock.pass_by(1)
        times = [it["result"]["created_at"] for it in (await agent("thread_read", thread_id="t"))["items"]]
        assert len(set(times)) == 3


async def test_repeated_thread_call_is_done_once_despite_generated_names_and_times() -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        begin = {"holdlog/request_id": "r-1"}
        started = await agent("thread_start", begin, agent="ann", data={"k": 1})
        assert await agent("thread_start", begin, agent="ann", data={"k": 1}) == started
        assert "request_id" in await agent.error("thread_start", begin, agent="ann", data={"k": 2})
        append = {"holdlog/request_id": "r-2"}
        at = {"thread_id": started["thread_id"], "agent": "ann"}
        untimed = {"agent_name": "writer", "output": [DONE]}
        first = await agent("thread_append", append, **at, messages=[HELLO], results=[untimed])
        clock.pass_by(5)
        assert await agent("thread_append", append, **at, messages=[HELLO], results=[untimed]) == first
        assert "request_id" in await agent.error("thread_append", append, **at, messages=[HELLO])
        assert (await agent("thread_read", thread_id=at["thread_id"]))["version"] == 4


# --- what is refused


@pytest.mark.check
@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([HELLO, {}], "messages[1].type: must be text, tool_call or tool_result"),
        ([{"type": "SECRET"}], "messages[0].type: must be text, tool_call or tool_result"),
        ([HELLO | {"role": "SECRET"}], "messages[0].role: must be 'system', 'user' or 'assistant'"),
        ([HELLO | {"content": 5}], "messages[0].content: must be a string"),
        ([HELLO | {"content": [{"type": "text"}]}], "messages[0].content[0].text: is required"),
        ([{"type": "tool_call", "tools": [{"id": "1"}]}], "messages[0].tools[0].name: is required"),
        ([HELLO | {"stopReason": "SECRET"}], "messages[0].stop_reason: must be 'tool' or 'stop'"),
        ([HELLO | {"colour": "SECRET"}], "messages[0].colour: unknown field"),
        ([HELLO | {"toolCalls": []}], "messages[0].toolCalls: unknown field"),
        ([HELLO | {"SECRET thing": 1}], "messages[0].?: unknown field"),
        ([], "messages and results: must have 1 to 1000 entries together"),
        ([HELLO] * 1001, "messages and results: must have 1 to 1000 entries together"),
        ([text(LONG)], "messages[0]: must have at most 262144 bytes as JSON; split it, or store a reference to it"),
    ],
)
async def test_invalid_message_is_refused_by_its_index(messages: list[Any], place: str) -> None:
    async with served() as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        told = await agent.error("thread_append", thread_id="t", agent="ann", messages=messages)
        assert told == place
        assert (await agent("thread_read", thread_id="t"))["items"] == []


@pytest.mark.check
@pytest.mark.parametrize(
    ("found", "place"),
    [
        ({}, "results[1].agent_name: is required"),
        (FOUND | {"agent_name": "a//b"}, "results[1].agent_name: must have a name on both sides"),
        (FOUND | {"output": [{"type": "tool"}]}, "results[1].output[0].type: must be text, tool_call"),
        (FOUND | {"output": [HELLO | {"role": "SECRET"}]}, "results[1].output[0].role: must be 'system'"),
        (FOUND | {"output": "SECRET"}, "results[1].output: must be a list"),
        (FOUND | {"tool_calls": [HELLO]}, "results[1].tool_calls[0].type: must be 'tool_result'"),
        (FOUND | {"created_at": "SECRET"}, "results[1].created_at: must be a valid datetime"),
        (FOUND | {"created_at": "0001-01-01T00:00:00+10:00"}, "results[1].created_at: must be in the years"),
        (FOUND | {"created_at": None}, "results[1].created_at: must be a valid datetime"),
    ],
)
async def test_invalid_result_is_refused_by_its_index_and_nothing_is_stored(found: dict[str, Any], place: str) -> None:
    async with served() as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        told = await agent.error("thread_append", thread_id="t", agent="ann", messages=[HELLO], results=[FOUND, found])
        assert told.startswith(place)
        assert "SECRET" not in told
        assert (await agent("thread_read", thread_id="t"))["items"] == []


async def test_invalid_argument_of_a_thread_tool_is_reported_by_name() -> None:
    async with served() as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        for tool, arguments, name in (
            ("thread_start", {"agent": " "}, "agent"),
            ("thread_start", {"agent": "ann", "thread_id": ""}, "thread_id"),
            ("thread_start", {"agent": "ann", "data": {" ": 1}}, "data"),
            ("thread_append", {"thread_id": "t", "agent": "\n", "messages": [HELLO]}, "agent"),
            ("thread_read", {"thread_id": "t", "limit": 0}, "limit"),
            ("thread_read", {"thread_id": "t", "format": "xml"}, "format"),
            ("thread_read", {"thread_id": "t", "after_version": 2}, "after_version"),
            ("thread_read", {"thread_id": "t", "wait_seconds": 1}, "wait_seconds"),
            ("thread_read", {"thread_id": "t", "wait_seconds": -1, "after_version": 0}, "wait_seconds"),
            ("thread_get", {"thread_id": "t", "key": ""}, "key"),
            ("thread_get", {"thread_id": "t", "key": "k", "after_key": "a"}, "after_key"),
            ("thread_set", {"thread_id": "t", "key": "k", "value": 1, "agent": "ann"}, "expected_data_version"),
            (
                "thread_set",
                {"thread_id": "t", "key": "k", "value": "x" * 300_000, "agent": "a", "force": True},
                "value",
            ),
            ("thread_delete", {"thread_id": "t", "key": "k", "agent": "ann"}, "expected_data_version"),
        ):
            assert (await agent.error(tool, **arguments)).startswith(f"{name}: "), (tool, arguments)


async def test_unknown_thread_is_not_found_with_how_to_start_it() -> None:
    async with served() as agent:
        missing = await agent("thread_read", thread_id="t")
        assert (missing["status"], missing["thread_id"]) == ("not_found", "t")
        assert "holdlog_thread_start" in missing["hint"]
        await agent("thread_start", agent="ann", thread_id="t")
        missing = await agent("thread_get", thread_id="t", key="k")
        assert (missing["status"], missing["key"]) == ("not_found", "k")


# --- data


async def test_concurrent_data_changes_conflict_and_appends_never_do() -> None:
    async with served() as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        at: dict[str, Any] = {"thread_id": "t", "expected_data_version": 0}
        first = await agent("thread_set", **at, key="plan", value={"secret": 1}, agent="ann")
        assert first | {"status": "ok", "data_version": 2, "written": ["plan"], "deleted": []} == first
        await agent("thread_append", thread_id="t", agent="ben", messages=[HELLO])
        for tool, more in (("thread_set", {"value": 1}), ("thread_delete", {})):
            told = await agent(tool, **at, key="other", agent="ben", **more)
            hint = told.pop("hint")
            assert told == {
                "status": "conflict",
                "thread_id": "t",
                "expected_data_version": 0,
                "actual_data_version": 2,
                "changed_keys": ["plan"],
            }
            assert "thread_get" in hint
        assert (await agent("thread_set", **at | {"expected_data_version": 2}, key="b", value=1, agent="ben"))["status"]
        gone = await agent("thread_delete", thread_id="t", key="plan", agent="ben", expected_data_version=4)
        assert (gone["deleted"], gone["data_version"]) == (["plan"], 5)
        told = await agent("thread_get", thread_id="t")
        assert (told["data"], told["data_version"]) == ({"b": 1}, 5)


async def test_thread_data_larger_than_a_page_comes_in_several() -> None:
    async with served() as agent:
        value = "x" * 200_000
        await agent("thread_start", agent="ann", thread_id="t", data={f"k{number}": value for number in range(7)})
        keys: list[str] = []
        after: dict[str, str] = {}
        for _ in range(2):
            page = await agent("thread_get", thread_id="t", **after)
            keys += page["data"]
            after = {"after_key": page.get("next_after", "")}
        assert keys == [f"k{number}" for number in range(7)]
        assert "next_after" not in page


# --- pages


async def filled(agent: Agent, store: Engine) -> None:
    """Messages m-0 to m-5 with results r-0 to r-5 in turn, of which the first four were replaced by r-9."""
    await agent("thread_start", agent="ann", thread_id="t")
    for number in range(4):
        await agent(
            "thread_append", thread_id="t", agent="ann", messages=[text(f"m-{number}")], results=[result(number)]
        )
    replace_results(store, "t", result(9))
    await agent("thread_append", thread_id="t", agent="ann", messages=[text("m-4")], results=[result(4)])
    await agent("thread_set", thread_id="t", key="k", value=1, agent="ann", force=True)


STANDING = ["m-0", "m-1", "m-2", "m-3", "r-9", "m-4", "r-4"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_thread_pages_in_either_direction_are_complete_and_in_order(limit: int) -> None:
    with engine() as store:
        async with connected(build_server(store, ALL)) as agent:
            await filled(agent, store)
            forward, after = [], 0
            while True:
                page = await agent("thread_read", thread_id="t", after_version=after, limit=limit)
                forward += said(page)
                after = page["version"]
                assert page["cleared"] == 10
                assert page.get("next_after", after) == after
                if "next_after" not in page:
                    break
            assert forward == STANDING
            assert after == 14  # where nothing is missing: also the change of data was passed
            backward, before = [], {}
            while True:
                page = await agent("thread_read", thread_id="t", limit=limit, **before)
                backward = said(page) + backward
                if "next_before" not in page:
                    break
                before = {"before_version": page["next_before"]}
            assert backward == STANDING
            between = await agent("thread_read", thread_id="t", after_version=4, before_version=12)
            assert said(between) == ["m-2", "m-3", "r-9"]


async def test_thread_page_ends_by_bytes_and_has_at_least_one_item() -> None:
    async with served(settings=Settings(max_value_bytes=2_000_000)) as agent:
        await agent("thread_start", agent="ann", thread_id="t")
        sizes = [1_500_000, 600_000, 300_000, 300_000]
        for size in sizes:
            await agent("thread_append", thread_id="t", agent="ann", messages=[text("x" * size)])
        for form, name in (("items", "items"), ("model", "messages")):
            told, after = [], 0
            while after is not None:
                page = await agent("thread_read", thread_id="t", after_version=after, format=form)
                told.append(len(page[name]))
                after = page.get("next_after")
            assert told == [1, 2, 1]
        newest = await agent("thread_read", thread_id="t")
        assert ([it["version"] for it in newest["items"]], newest["next_before"]) == ([4, 5], 4)


async def test_reader_of_a_thread_misses_nothing_while_others_append_and_clear() -> None:
    with engine() as store:
        async with connected(build_server(store, ALL)) as agent, connected(build_server(store, ALL)) as other:
            await agent("thread_start", agent="ann", thread_id="t")

            async def write(name: str) -> None:
                for number in range(40):
                    await other("thread_append", thread_id="t", agent=name, messages=[text(f"{name}-{number}")])
                    if number % 10 == 9:
                        await asyncio.to_thread(replace_results, store, "t", result(number))

            writing = asyncio.gather(write("b"), write("c"))
            told: list[str] = []
            versions: list[int] = []
            after = 0
            while len([it for it in told if not it.startswith("r-")]) < 80:
                page = await agent("thread_read", thread_id="t", after_version=after, limit=7, wait_seconds=30)
                told += said(page)
                versions += [it["version"] for it in page["items"]]
                after = page["version"]
            await writing
        assert versions == sorted(set(versions))
        for name in ("b", "c"):
            assert [it for it in told if it.startswith(name)] == [f"{name}-{number}" for number in range(40)]


# --- waiting


async def test_waiter_of_a_thread_gets_new_items_and_ignores_data_changes() -> None:
    with engine(Settings(max_wait=LONG_WAIT)) as store:
        async with connected(build_server(store, ALL)) as agent, connected(build_server(store, ALL)) as other:
            await other("thread_start", agent="ann", thread_id="t")
            known = {"thread_id": "t", "after_version": 1, "wait_seconds": LONG_WAIT}
            waiting = asyncio.create_task(agent("thread_read", **known))
            await until(lambda: store.lease_maintenance._waiters)
            await other("thread_set", thread_id="t", key="k", value=1, agent="ben", expected_data_version=0)
            await other("thread_append", thread_id="t", agent="ben", messages=[HELLO])
            async with asyncio.timeout(PATIENCE):
                page = await waiting
            assert ([it["version"] for it in page["items"]], page["version"]) == ([3], 3)
            nothing = await agent("thread_read", **known | {"after_version": 3, "wait_seconds": 0.01})
            assert (nothing["items"], nothing["version"]) == ([], 3)


async def test_waiter_of_a_thread_learns_that_results_were_cleared() -> None:
    with engine(Settings(max_wait=LONG_WAIT)) as store:
        async with connected(build_server(store, ALL)) as agent:
            await agent("thread_start", agent="ann", thread_id="t")
            await agent("thread_append", thread_id="t", agent="ann", results=[FOUND])
            known = {"thread_id": "t", "after_version": 2, "wait_seconds": LONG_WAIT}
            waiting = asyncio.create_task(agent("thread_read", **known))
            await until(lambda: store.lease_maintenance._waiters)
            await asyncio.to_thread(replace_results, store, "t")
            async with asyncio.timeout(PATIENCE):
                page = await waiting
            assert (page["items"], page["cleared"], page["version"]) == ([], 3, 3)
            assert (await agent("thread_read", thread_id="t"))["items"] == []
