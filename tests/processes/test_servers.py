"""Real server processes that share one file, each with a client of its own over stdio."""

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport

from holdlog import StateStore
from holdlog.adapters.auth.identity import Identity
from tests.support.agent import Agent, connected, process
from tests.support.processes.soundness import Place
from tests.support.slow import slow
from tests.support.wire import PATIENCE, Wire

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

EAGER = """
import sys
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.mcp.stdio.serving import run_stdio

opened = open_holdlog(sys.argv[1])

async def end():
    opened.close()
    if "--modules" in sys.argv:
        print(*sorted(sys.modules), sep="\\n", file=sys.stderr)

run_stdio(build_server(opened, ("claims", "state"), progress_every=0.02), end)
"""
"""A server that tells of its waits so soon that a test can tell when one has begun."""

AT = {"namespace": "n", "key": "k"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def eager(path: Path) -> StdioTransport:
    return StdioTransport(sys.executable, ["-c", EAGER, str(path)], keep_alive=False)


@asynccontextmanager
async def agents(count: int, start: Callable[[], StdioTransport], mode: Any = "auto") -> AsyncIterator[list[Agent]]:
    """So many agents, each with a server process, started side by side."""
    async with AsyncExitStack() as stack:
        entered = [stack.enter_async_context(connected(start(), mode=mode)) for _ in range(count)]
        yield list(await asyncio.gather(*entered))


async def begun(agent: Agent, tool: str, /, **arguments: Any) -> "asyncio.Task[dict[str, Any]]":
    """A call that waits by now, in its server."""
    waits = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        waits.set()

    async def call() -> dict[str, Any]:
        result = await agent.client.call_tool_mcp(f"holdlog_{tool}", arguments, progress_handler=hear)
        assert result.structured_content is not None, result
        return dict(result.structured_content)

    task = asyncio.create_task(call())
    await asyncio.wait_for(waits.wait(), PATIENCE)
    return task


@pytest.mark.check
@pytest.mark.parametrize(
    ("count", "rounds", "place"),
    [(4, 25, "sqlite"), *slow((2, 25, "sqlite"), (4, 100, "postgres"))],
    indirect=["place"],
)
async def test_servers_of_one_store_lose_no_update(place: Place, count: int, rounds: int) -> None:

    async def spend(agent: Agent, name: str) -> None:
        for _ in range(rounds):
            read = await agent("get", **AT)
            value, version = read["value"], read["version"]
            write = {**AT, "updated_by": name}
            while (said := await agent("set", **write, value=value - 1, expected_version=version))["status"] != "ok":
                value, version = said["actual_value"], said["actual_version"]

    async with agents(count, lambda: process("--db", str(place), "--tools", "state")) as team:
        stale = await team[0]("set", **AT, value=1000, updated_by="start", expected_version=0)
        await team[1]("set", **AT, value=999, updated_by="w-1", expected_version=stale["version"])
        conflict = await team[0]("set", **AT, value=0, updated_by="w-0", expected_version=stale["version"])
        assert (conflict["status"], conflict["actual_value"], conflict["actual_updated_by"]) == ("conflict", 999, "w-1")
        await asyncio.gather(*(spend(agent, f"w-{number}") for number, agent in enumerate(team)))
        for agent in team:
            final = await agent("get", **AT)
            assert (final["value"], final["version"]) == (999 - count * rounds, 2 + count * rounds)
        history = await team[0]("history", **AT, limit=1000)
        assert [past["version"] for past in history["history"]] == list(range(final["version"], 0, -1))
        assert [past["value"] for past in history["history"]] == list(range(final["value"], 1001))


@pytest.mark.check
@pytest.mark.parametrize("mode", ["auto", *slow("legacy")])
async def test_claim_is_refused_and_a_wait_woken_by_other_servers(path: Path, mode: str) -> None:
    async with agents(2, lambda: eager(path), mode) as (ann, ben):
        await ann("claim", resource="src/main.py", agent="ann")
        busy = await ben("claim", resource="./src//main.py", agent="ben")
        assert (busy["status"], busy["held_by"], busy["resource"]) == ("busy", "ann", "src/main.py")
        assert (await ben("release", resource="src/main.py", agent="ben"))["status"] == "not_holder"

        waiting = await begun(ben, "wait", resource="src/main.py")
        assert (await ann("release", resource="src/main.py", agent="ann"))["version"] == 2
        woken = await waiting
        assert (woken["status"], woken["previous_holder"]) == ("available", "ann")
        assert woken["elapsed_seconds"] < 30
        assert (await ben("claim", resource="src/main.py", agent="ben"))["version"] == 3

        watching = await begun(ben, "watch", **AT, since_version=0, timeout_seconds=30)
        await ann("set", **AT, value=None, updated_by="ann", expected_version=0)
        assert (await watching)["version"] == 1
        watching = await begun(ben, "watch", **AT, since_version=1, timeout_seconds=30)
        await ann("delete", **AT, deleted_by="ann", expected_version=1)
        gone = await watching
        assert (gone["status"], gone["version"], gone["deleted_by"]) == ("deleted", 2, "ann")
        watching = await begun(ben, "watch", **AT, since_version=2, timeout_seconds=30)
        await ann("set", **AT, value="again", updated_by="ann", expected_version=0)
        back = await watching
        assert (back["status"], back["version"], back["value"]) == ("ok", 3, "again")


@pytest.mark.check
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "end of input"])
def test_server_over_stdio_ends_at_once_while_calls_wait(path: Path, end: str) -> None:
    with StateStore(path) as library:
        library.claim("a.md", agent="ann")
        wire = Wire("-c", EAGER, path).open()
        wait = {"name": "holdlog_wait", "arguments": {"resource": "a.md"}, "_meta": {"progressToken": "p"}}
        wire.send(wire.message("tools/call", wait, "waits"))
        assert wire.answer()["method"] == "notifications/progress"
        if end == "end of input":
            assert wire.process.stdin is not None
            wire.process.stdin.close()
        else:
            wire.process.send_signal(getattr(signal, end))
        code, said, left = wire.ended()
        wire.close()
        assert (code, said) == (0, [])
        lines = [json.loads(line) for line in left]
        answers = [line for line in lines if line.get("method") != "notifications/progress"]
        if end == "end of input":
            assert answers == []  # its client has left
        else:
            assert [line["id"] for line in answers] == ["waits"]
            assert answers[0]["error"]["message"] == "Connection closed"
        assert library.release("a.md", agent="ann").status == "released"


@pytest.mark.check
def test_tool_list_is_identical_whatever_is_stored(path: Path, tmp_path: Path) -> None:
    with StateStore(path) as library:
        library.set("n", "SECRET", "SECRET", updated_by="SECRET")
        library.claim("SECRET.md", agent="SECRET")
    listed = []
    for db in (path, tmp_path / "other" / "empty.db"):
        db.parent.mkdir(exist_ok=True)
        wire = Wire("-m", "holdlog", "--db", db, "--tools", "all", env={"CLAUDE_CODE_SESSION_ID": db.name}).open()
        for _ in range(2):
            wire.send(wire.message("tools/list"))
            listed.append(wire.line())
        wire.close()
    assert len(set(listed)) == 1


@pytest.mark.check
@pytest.mark.parametrize(
    ("settings", "why"),
    [(["--tools", "claims,nope"], "nope"), (["--tool-prefix", "a b"], "tool-prefix")],
)
def test_bad_server_settings_end_with_one_line(path: Path, settings: list[str], why: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "holdlog", "--db", path, *settings], input=b"", capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert len(ended.stderr.splitlines()) == 1
    assert why in ended.stderr.decode()


@pytest.mark.check
async def test_host_session_is_recorded_in_the_log(path: Path) -> None:
    host = process("--db", str(path), "--tools", "all", env={"CLAUDE_CODE_SESSION_ID": "conversation-1"})
    async with connected(host) as agent:
        await agent("claim", resource="a.md", agent="ann")
        await agent("claim", {"holdlog/session": "task-7"}, resource="b.md", agent="ann")
        again = {"holdlog/request_id": "r-1"}
        first = await agent("set", again, **AT, value=1, updated_by="ann", expected_version=0)
        assert await agent("set", again, **AT, value=1, updated_by="ann", expected_version=0) == first
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT session, request_id FROM stored_events ORDER BY rowid").fetchall()
    ((salt,),) = connection.execute("SELECT value FROM meta WHERE name = 'session_salt'").fetchall()
    host_session = Identity(salt).session("process", "conversation-1")
    task = Identity(salt).session("meta", "holdlog/session task-7")
    assert rows == [(host_session, None), (task, None), (host_session, "r-1")]


@pytest.mark.check
@pytest.mark.parametrize(
    "session",
    [
        "",
        "a\x1b[2Jb",
        *slow(" ", " a", "a ", "x" * 129, "a\nb", "a\u202eb", "\udcff"),
    ],
)
async def test_invalid_host_session_is_ignored(path: Path, session: str) -> None:
    host = process("--db", str(path), env={"CLAUDE_CODE_SESSION_ID": session})
    async with connected(host) as agent:
        await agent("claim", resource="a.md", agent="ann")
    ((told,),) = sqlite3.connect(path).execute("SELECT session FROM stored_events").fetchall()
    assert told.startswith("process-")


@pytest.mark.check
def test_serving_imports_little_beyond_fastmcp(path: Path) -> None:
    bare = subprocess.run(
        [sys.executable, "-c", "import sys\nfrom fastmcp import FastMCP\nFastMCP('')\nprint(*sys.modules)"],
        capture_output=True,
        check=True,
    )
    wire = Wire("-c", EAGER, path, "--modules").open()
    wire.ask("tools/list")
    wire.ask("tools/call", {"name": "holdlog_set", "arguments": {**AT, "value": 1, "updated_by": "a", "force": True}})
    wire.ask("tools/call", {"name": "holdlog_list", "arguments": {"namespace": "n"}})
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    _, said, _ = wire.ended()
    wire.close()
    added = {name.partition(".")[0] for name in set(said) - set(bare.stdout.decode().split())}
    assert "holdlog" in added
    assert not added & {"nats", "uvicorn", "rich", "key_value", "email_validator", "httpx", "typer", "cryptography"}
    assert "fastmcp.client" not in said


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.slow
def test_serving_makes_no_network_lookup(path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ("strace", "-f", "-qq", "-e", "trace=execve,connect,sendto", "-o", trace)
    wire = Wire("-m", "holdlog", "--db", path, "--tools", "all", before=strace).open()
    wire.ask("tools/list")
    wire.ask("tools/call", {"name": "holdlog_set", "arguments": {**AT, "value": 1, "updated_by": "a", "force": True}})
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    assert wire.ended() == (0, [], [])
    wire.close()
    calls = trace.read_text().splitlines()
    assert "execve" in calls[0]
    assert not [call for call in calls if "AF_INET" in call and "127.0.0.1" not in call]
