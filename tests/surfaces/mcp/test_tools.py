"""The answers that agents get, served in memory to clients of both protocol eras."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.stores.sqlite.memory import MemoryDatabase
from holdlog.adapters.stores.sqlite.rows import SqliteReader, SqliteTransaction
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.refusals import UnavailableError
from tests.support.agent import ALL, ERAS, Agent, connected, engine, listing, served
from tests.support.clock import Clock

DESTROY = {"set", "delete", "clear_namespace", "thread_set", "thread_delete"}
"""What these tools do their descriptions may tell."""
TELLS_TO_DESTROY = re.compile(r"\b(force|clear|delete|remove|erase|re-?create)\b", re.IGNORECASE)


@pytest.fixture(params=ERAS)
async def agent(request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with served(request.param) as agent:
        yield agent


class Gone(SqliteStore):
    """A store that cannot take any call at the moment."""

    @contextmanager
    def reader(self) -> Iterator[SqliteReader]:
        raise UnavailableError("the disk is full", retry_after=2.0)
        yield

    snapshot = reader

    @contextmanager
    def transaction(self, deadline: float, ahead: object = None) -> Iterator[SqliteTransaction]:
        raise UnavailableError("the disk is full", retry_after=2.0, in_doubt=True)
        yield


SAID = {"type": "text", "role": "user", "content": "STORED"}
FOUND = {"agent_name": "ann", "output": [SAID]}
EVERY_CALL: dict[str, dict[str, Any]] = {
    "claim": {"resource": "a.md", "agent": "ann"},
    "release": {"resource": "a.md", "agent": "ann"},
    "status": {"resource": "a.md"},
    "wait": {"resource": "a.md", "timeout_seconds": 0},
    "register": {"agent": "ann", "purpose": "STORED"},
    "get": {"namespace": "n", "key": "k"},
    "set": {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "expected_version": 0},
    "list": {"namespace": "n"},
    "history": {"namespace": "n", "key": "k"},
    "delete": {"namespace": "n", "key": "k", "deleted_by": "ann", "expected_version": 1},
    "clear_namespace": {"namespace": "n", "deleted_by": "ann"},
    "export": {"namespace": "n"},
    "watch": {"namespace": "n", "key": "k", "since_version": 0, "timeout_seconds": 0},
    "transact": {"operations": [{"op": "set", "namespace": "n", "key": "k", "value": "STORED"}], "updated_by": "ann"},
    "update": {"namespace": "n", "key": "k", "merge": {"secret": "STORED"}, "updated_by": "ann"},
    "events": {},
    "past": {"what": "values", "namespace": "n", "at_position": 1},
    "save_state": {"group": "n", "key": "k", "value": "STORED"},
    "read_state": {"group": "n", "key": "k"},
    "thread_start": {"agent": "ann"},
    "thread_append": {"thread_id": "t", "agent": "ann", "messages": [SAID]},
    "thread_read": {"thread_id": "t"},
    "thread_get": {"thread_id": "t", "key": "k"},
    "thread_has": {"thread_id": "t", "key": "k"},
    "thread_set": {"thread_id": "t", "key": "k", "value": "STORED", "agent": "ann", "force": True},
    "thread_delete": {"thread_id": "t", "key": "k", "agent": "ann", "force": True},
}


async def in_line(agent: Agent, length: int = 1) -> None:
    """Wait until so many stand in line, for whatever."""
    while sum(len(queue["line"]) for queue in (await agent("status"))["queues"]) != length:
        pass


async def every_answer(agent: Agent, clock: Clock) -> None:
    """Make every tool give every answer that it has."""
    guard = {"namespace": "n", "key": "k", "guard": [{"resource": "never.md", "version": 1}]}
    await agent("claim", resource="b.md", agent="ben", note="STORED")
    waiting = asyncio.create_task(agent("claim", resource="c.md", agent="ben", wait_seconds=30, note="STORED"))
    await agent("claim", resource="c.md", agent="cleo")
    await in_line(agent)
    await agent("claim", resource="b.md", agent="cleo", wait_seconds=30)
    await agent("release", agent="cleo", resource="c.md", outcome="modified", note="STORED")
    assert (await waiting)["status"] == "claimed"
    await agent("register", agent="ben", model="m-1", purpose="STORED")
    await agent("claim", resource="d.md", agent="dora", lease_seconds=1)
    clock.pass_by(1)
    await agent("release", resource="d.md", agent="dora")
    once = {"holdlog/request_id": "once"}
    await agent("claim", once, resource="e.md", agent="dora")
    await agent("release", resource="e.md", agent="dora")
    assert (await agent("claim", once, resource="e.md", agent="dora"))["status"] == "expired"
    await agent("set", **guard, value=1, updated_by="ann", expected_version=0)
    at, new = {"namespace": "n", "key": "k"}, {"namespace": "n", "key": "new"}
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
        ("delete", {**guard, "deleted_by": "ann", "expected_version": 2}),
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
        ("set", {**at, "value": "STORED", "updated_by": "ben", "expected_version": 0, "ttl_seconds": 3600}),
        ("delete", {**guard, "deleted_by": "ann", "expected_version": 2}),
        ("get", at),
        ("watch", {**at, "since_version": 0}),
        ("set", {**at, "value": "STORED", "updated_by": "ben", "force": True, "ttl_seconds": 0.000001}),
        ("get", at),
        ("watch", {**at, "since_version": 1}),
        ("delete", {**at, "deleted_by": "ann", "force": True}),
        ("set", {**at, "value": "STORED", "updated_by": "ben", "expected_version": 1}),
        ("transact", {"operations": [{"op": "set", **new, "value": "STORED"}], "updated_by": "ann"}),
        ("transact", {"operations": [{"op": "check", **new, "expected_version": 7}], "updated_by": "ann"}),
        ("transact", {"operations": [{"op": "delete", **new, "key": "none"}], "updated_by": "ann"}),
        ("transact", {"operations": [{"op": "set", **new, "value": 1}], "updated_by": "ann", "guard": guard["guard"]}),
        ("update", {**new, "merge": {"secret": "STORED"}, "updated_by": "ann"}),
        ("update", {**new, "merge": {}, "updated_by": "ann", "expected_version": 7}),
        ("update", {**new, "merge": {}, "updated_by": "ann", "guard": guard["guard"]}),
        ("update", {**new, "key": "none", "patch": [], "updated_by": "ann"}),
        ("events", {}),
        ("events", {"namespace": "n", "limit": 1}),
        ("past", {"what": "value", **at, "at_position": 20}),
        ("past", {"what": "value", **at, "at_position": 1}),
        ("past", {"what": "values", "namespace": "n", "at_position": 20}),
        ("past", {"what": "values", "at_position": 20}),
        ("past", {"what": "claim", "resource": "b.md", "at_position": 1}),
        ("past", {"what": "claim", "resource": "x.md", "at_position": 1}),
        ("past", {"what": "claims", "at_position": 2}),
        ("past", {"what": "thread", "thread_id": "t", "at_position": 1}),
        ("read_state", {"group": "n", "key": "saved"}),
        ("save_state", {"group": "n", "key": "saved", "value": "STORED"}),
        ("read_state", {"group": "n", "key": "saved"}),
        ("thread_start", {"agent": "ann", "parent": "t"}),
        ("thread_append", {"thread_id": "t", "agent": "ann", "messages": [SAID]}),
        ("thread_read", {"thread_id": "t"}),
        ("thread_get", {"thread_id": "t"}),
        ("thread_has", {"thread_id": "t", "key": "k"}),
        ("thread_set", {"thread_id": "t", "key": "k", "value": 1, "agent": "ann", "force": True}),
        ("thread_delete", {"thread_id": "t", "key": "k", "agent": "ann", "force": True}),
        ("thread_start", {"agent": "ann", "thread_id": "t", "data": {"k": "STORED"}}),
        ("thread_start", {"agent": "ben", "thread_id": "t"}),
        ("thread_append", {"thread_id": "t", "agent": "ann", "messages": [SAID], "results": [FOUND]}),
        ("thread_read", {"thread_id": "t"}),
        ("thread_read", {"thread_id": "t", "format": "model", "limit": 1}),
        ("thread_read", {"thread_id": "t", "after_version": 0, "wait_seconds": 1}),
        ("thread_start", {"agent": "ann", "parent": "t", "parent_version": 3}),
        ("thread_get", {"thread_id": "t"}),
        ("thread_get", {"thread_id": "t", "key": "k"}),
        ("thread_get", {"thread_id": "t", "key": "none"}),
        ("thread_has", {"thread_id": "t", "key": "k"}),
        ("thread_set", {"thread_id": "t", "key": "k", "value": "STORED", "agent": "ann", "expected_data_version": 2}),
        ("thread_set", {"thread_id": "t", "key": "k", "value": "STORED", "agent": "ben", "expected_data_version": 2}),
        ("thread_delete", {"thread_id": "t", "key": "k", "agent": "ben", "expected_data_version": 2}),
        ("thread_delete", {"thread_id": "t", "key": "k", "agent": "ben", "force": True}),
        ("thread_delete", {"thread_id": "t", "key": "k", "agent": "ben", "force": True}),
    ):
        await agent(tool, **arguments)


@pytest.mark.check
@pytest.mark.parametrize("mode", ERAS)
async def test_every_tool_gives_every_answer_that_its_schema_names(mode: str) -> None:
    clock = Clock()
    with engine(store=Gone(MemoryDatabase())) as gone:
        async with served(mode, clock=clock) as agent, connected(build_server(gone, ALL), mode=mode) as unlucky:
            await require_every_answer(agent, clock, unlucky)


async def require_every_answer(agent: Agent, clock: Clock, unlucky: Agent) -> None:
    await every_answer(agent, clock)
    for tool, arguments in EVERY_CALL.items():
        assert (await unlucky(tool, **arguments))["retry_after"] == 2.0
    seen = {(tool, answer["status"]) for tool, answer in agent.answers + unlucky.answers}
    for tool in await agent.client.list_tools():
        assert tool.output_schema is not None
        promised = tool.output_schema["properties"]["status"]["enum"]
        assert {status for name, status in seen if "holdlog_" + name == tool.name} == set(promised)


async def test_value_with_a_time_to_live_shows_its_expiry_and_then_its_end(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    await agent("set", **at, value=1, updated_by="ann", expected_version=0, ttl_seconds=3600)
    told = await agent("get", **at)
    assert 3500 < told["expires_in_seconds"] <= 3600
    await agent("set", **at, value=2, updated_by="ann", expected_version=1, ttl_seconds=0.000001)
    gone = await agent("get", **at)
    assert (gone["status"], gone["version"], gone["deleted_by"]) == ("not_found", 3, "ann")
    assert gone["expires_at"] == gone["deleted_at"]
    assert "ttl_seconds" in await agent.error("set", **at, value=1, updated_by="ann", force=True, ttl_seconds=-1)


async def test_a_write_needs_a_version_or_force(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    assert "expected_version" in await agent.error("set", **at, value=1, updated_by="ann")
    assert "expected_version" in await agent.error("delete", **at, deleted_by="ann")
    for _ in range(2):
        assert (await agent("set", **at, value=1, updated_by="ann", force=True))["status"] == "ok"
    assert (await agent("set", **at, value=1, updated_by="ann", force=True, expected_version=1))["version"] == 3
    assert (await agent("delete", **at, deleted_by="ann", force=True))["deleted_version"] == 3


async def test_tool_error_names_the_argument_as_the_tool_does(agent: Agent) -> None:
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


async def test_wait_beyond_the_cap_is_cut_and_reports_it() -> None:
    async with served(settings=Settings(max_wait=0.01)) as agent:
        await agent("claim", resource="a.md", agent="ann")
        assert (await agent("wait", resource="a.md", timeout_seconds=1e15))["capped_at_seconds"] == 0.01
        timeout = await agent("watch", namespace="n", key="k", since_version=0, timeout_seconds=3600)
        assert timeout["capped_at_seconds"] == 0.01


@pytest.mark.parametrize("mode", ERAS)
async def test_wait_sends_progress_on_request(mode: str) -> None:
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


async def test_cancelled_wait_leaves_the_server_working() -> None:
    async with served() as agent:
        await agent("claim", resource="a.md", agent="ann")
        with pytest.raises(Exception, match=r"[Tt]imed out"):
            await agent.client.call_tool_mcp("holdlog_wait", {"resource": "a.md"}, timeout=0.05)
        assert (await agent("release", resource="a.md", agent="ann"))["status"] == "released"


# --- what callers say of themselves


@pytest.mark.parametrize("mode", ERAS)
async def test_repeated_request_id_gets_the_same_answer_and_another_body_is_refused(mode: str) -> None:
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
async def test_session_of_a_call_is_recorded_in_the_log(mode: str) -> None:
    with engine() as store:
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
        named = (
            "holdlog/session s-1",
            "ai.opencode/sessionID s-2",
            "threadId s-3",
            "threadId 4",
            None,
            "holdlog/session s-6",
        )
        assert sessions == [store.identity.session("meta", it) if it else store.caller.session for it in named]


async def test_reason_of_a_call_is_recorded_in_the_history(agent: Agent) -> None:
    at = {"namespace": "n", "key": "k"}
    await agent("set", **at, value=1, updated_by="ann", expected_version=0, reason="because")
    await agent("delete", **at, deleted_by="ann", expected_version=1, reason="over")
    assert [past["reason"] for past in (await agent("history", **at))["history"]] == ["over", "because"]


@pytest.mark.parametrize("prefix", ["agenthold_", ""])
async def test_every_tool_name_and_hint_uses_the_prefix(prefix: str) -> None:
    tools, instructions = await listing(ALL, prefix)
    ours, our_instructions = await listing(ALL)
    assert json.dumps(tools) == json.dumps(ours).replace("holdlog_", prefix)
    assert instructions == our_instructions.replace("holdlog_", prefix)
    clock = Clock()
    async with served(prefix=prefix, clock=clock) as agent:
        await every_answer(agent, clock)
        hints = " ".join(answer["hint"] for _, answer in agent.answers if "hint" in answer)
        assert "holdlog" not in hints.replace("holdlog redact", "")  # a command, for a person
        assert f"{prefix}wait only notifies you" in hints
        assert "()" not in hints


async def test_tool_texts_suggest_nothing_destructive_and_hints_quote_no_stored_text() -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        await every_answer(agent, clock)
        at = {"namespace": "n", "key": "k"}
        await agent.error("set", **at, value="STORED", updated_by="ann")
        await agent.error("delete", **at, deleted_by="ann")
        await agent.error("set", **at, value="STORED", updated_by="ann", expected_version=-1)
        await agent.error("set", **at, value="STORED", updated_by="ann", expected_version=0, reason="STORED\n")
        await agent.error("claim", resource="../STORED", agent="ann")
        await agent.error("thread_append", thread_id="t", agent="ann", messages=[SAID | {"type": "STORED"}])
        await agent.error("thread_append", thread_id="t", agent="ann", messages=[SAID | {"role": "STORED"}])
        await agent.error("thread_append", thread_id="t", agent="ann", results=[FOUND | {"created_at": "STORED"}])
        await agent.error("nope")
        hints = [answer["hint"] for _, answer in agent.answers if "hint" in answer]
        with engine(store=Gone(MemoryDatabase())) as gone:
            async with connected(build_server(gone, ALL)) as unlucky:
                for tool, arguments in EVERY_CALL.items():
                    hints.append((await unlucky(tool, **arguments))["hint"])
        assert len(set(hints)) >= 14
        assert all(len(hint) <= 200 for hint in hints)
        for told in hints + agent.errors:
            assert not TELLS_TO_DESTROY.search(told), told
            assert "STORED" not in told
    tools, instructions = await listing(ALL)
    assert not TELLS_TO_DESTROY.search(instructions)
    for tool in tools:
        if tool["name"].removeprefix("holdlog_") not in DESTROY:
            assert not TELLS_TO_DESTROY.search(tool["description"]), tool["name"]
