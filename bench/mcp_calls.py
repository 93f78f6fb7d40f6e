"""Tool calls over stdio, one at a time, against a FastMCP tool that does nothing; and how fast a server starts."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.bench import ROOT, Bench
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, Rounds, number

GROUP = "mcp"
CALLS = 20
AT_MOST = 1.3
START_MS = 100.0


def run(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.memory) as folder:
        yield from asyncio.run(_calls(bench, folder))
        yield _starts(bench, folder)


def _commands(bench: Bench, folder: Path) -> dict[str, list[str]]:
    """agenthold has no server with all tools."""
    commands = {
        "empty": [sys.executable, "-m", "bench.empty_server"],
        "holdlog": [
            str(Path(sys.executable).parent / "holdlog"),
            *("--db", str(folder / "holdlog.db"), "--tools", "all"),
        ],
    }
    if bench.peer:
        for tools in ("standard", "advanced"):
            database = str(folder / "agenthold.db")
            commands[f"agenthold {tools}"] = [str(bench.peer / "agenthold"), "--db", database, "--tools", tools]
    return commands


async def _calls(bench: Bench, folder: Path) -> list[Figure]:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with AsyncExitStack() as stack:
        clients: dict[str, Any] = {}
        for name, command in _commands(bench, folder).items():
            transport = StdioTransport(
                command[0], command[1:], cwd=str(ROOT), env=dict(os.environ), log_file=Path(os.devnull)
            )
            clients[name] = await stack.enter_async_context(Client(transport))
        tools = await _tools(clients)
        figures = []
        for tool, contestants in tools.items():
            medians: dict[str, list[float]] = {name: [] for name in contestants}
            for turn in range(bench.pick(30, 8)):
                bench.progress(f"{tool} {turn}")
                for name, call in contestants.items():
                    medians[name].append(await _time(call))
            figures.append(_figure(tool, Rounds(medians)))
        return figures


async def _tools(clients: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Tool -> contestant -> a coroutine function that makes one call and checks its status."""
    place = {"namespace": NAMESPACE, "key": "key-1"}
    write = place | {"value": VALUE, "updated_by": AGENT}
    claimed: dict[str, int] = {}

    def caller(client: Any, tool: str, arguments: dict[str, Any], status: str) -> Any:
        async def call() -> None:
            answer = await client.call_tool(tool, arguments)
            assert json.loads(answer.content[0].text)["status"] == status, answer

        return call

    def claimer(client: Any, tool: str, who: dict[str, str], release: str = "") -> Any:
        """The n-th call claims the n-th resource. With `release`, all are released occasionally: a session may hold 64
        claims. That is rare enough to leave the median alone."""

        async def call() -> None:
            claimed[tool] = number = claimed.get(tool, 0) + 1
            if release and number % 50 == 0:
                await client.call_tool(release, who)
            answer = await client.call_tool(tool, {"resource": f"file-{number}.py"} | who)
            assert json.loads(answer.content[0].text)["status"] == "claimed", answer

        return call

    empty, ours = clients["empty"], clients["holdlog"]
    nothing = caller(empty, "nothing", write, "ok")
    tools = {
        "set": {"empty": nothing, "holdlog": caller(ours, "holdlog_set", write | {"force": True}, "ok")},
        "get": {"empty": caller(empty, "nothing", place, "ok"), "holdlog": caller(ours, "holdlog_get", place, "ok")},
        "claim": {"empty": nothing, "holdlog": claimer(ours, "holdlog_claim", {"agent": AGENT}, "holdlog_release")},
    }
    if "agenthold advanced" in clients:
        theirs = clients["agenthold advanced"]
        tools["set"]["agenthold"] = caller(
            theirs, "agenthold_set", write | {"expected_version": 0, "force": True}, "ok"
        )
        tools["get"]["agenthold"] = caller(theirs, "agenthold_get", place, "ok")
        theirs = clients["agenthold standard"]
        answer = await theirs.call_tool("agenthold_register", {"name": "bench"})
        agent = {"agent_id": json.loads(answer.content[0].text)["agent_id"]}
        tools["claim"]["agenthold"] = claimer(theirs, "agenthold_claim", agent)
    return tools


async def _time(call: Any) -> float:
    """Median microseconds of a few calls."""
    await call()
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await call()
        times.append((time.perf_counter() - started) * 1e6)
    return median(times)


def _figure(tool: str, measured: Rounds) -> Figure:
    peer = f"; agenthold {number(measured.ratio('agenthold', 'empty'))}x" if "agenthold" in measured else ""
    return Figure(
        GROUP,
        f"{tool} over stdio, tmpfs",
        measured.ratio("holdlog", "empty"),
        "x empty",
        AT_MOST,
        beside=measured.described(" µs") + peer,
    )


def _starts(bench: Bench, folder: Path) -> Figure:
    commands = {name: command for name, command in _commands(bench, folder).items() if name != "agenthold advanced"}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(bench.pick(9, 3)):
        bench.progress(f"start {turn}")
        for name, command in commands.items():
            times[name].append(_start(command))
    later = median(ours - empty for ours, empty in zip(times["holdlog"], times["empty"], strict=True))
    told = ", ".join(f"{name} {number(median(it))}" for name, it in times.items())
    return Figure(GROUP, "spawn to tools/list, later than empty", later, " ms", START_MS, beside=f"{told} ms")


def _start(command: list[str]) -> float:
    """Milliseconds from spawning to the answer to tools/list."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ):
        print(json.dumps(message), file=process.stdin, flush=True)
        while "id" in message:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") == message["id"]:
                assert "result" in answer, answer
                break
    took = (time.perf_counter() - started) * 1000
    process.stdin.close()
    process.wait(10)
    process.stdout.close()
    return took
