"""A real server process behind real pipes: every request is answered, and every end is clean and prompt."""

import asyncio
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from holdlog.adapters.mcp.salvage import MAX_LINE
from holdlog.adapters.mcp.stdio import traffic
from tests.support.slow import check, slow
from tests.support.wire import PATIENCE, Wire, text_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and poll of POSIX")

SERVER = """
import asyncio, os, sys, time
from contextlib import asynccontextmanager
from typing import Any
from fastmcp import FastMCP
from holdlog.adapters.mcp.stdio.serving import run_stdio, serve_stdio

def say(word):
    print(word, file=sys.stderr, flush=True)

@asynccontextmanager
async def lifespan(server):
    say("entered")
    try:
        yield {}
    finally:
        await asyncio.sleep(0)
        say("left")

server = FastMCP("tiny", lifespan=lifespan)

@server.tool(output_schema=None)
async def echo(value: Any) -> str:
    return repr(value)

@server.tool(output_schema=None)
async def give(what: str) -> Any:
    return {"surrogate": "\\ud800", "nan": [float("nan")], "large": "x" * 5_000_000}[what]

@server.tool
async def block() -> str:
    print("blocked", flush=True)  # stray: fd 1 is stderr meanwhile
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("cancelled")
        raise
    return ""

@server.tool
def stuck() -> str:
    say("stuck")
    time.sleep(1000)
    return ""

@server.tool
async def child() -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(repr(input()))", stderr=-3)
    return str(await process.wait())

async def on_end():
    say("told of the end")

if "--threads" in sys.argv:
    asyncio.run(serve_stdio(server, on_end, threads=True))
    say("returned")
else:
    run_stdio(server, on_end)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stdio") / "server.py"
    path.write_text(SERVER)
    return path


ERAS = [pytest.param(era, marks=pytest.mark.xdist_group(f"stdio-{era}")) for era in ("handshake", "stateless")]
"""One server for each era, in one worker."""


@pytest.fixture(scope="module", params=ERAS)
def wire(script: Path, request: pytest.FixtureRequest) -> Iterator[Wire]:
    wire = Wire(script, modern=request.param == "stateless").open()
    yield wire
    wire.close()


@pytest.fixture
def fresh(script: Path) -> Iterator[Wire]:
    wire = Wire(script).open()
    yield wire
    wire.close()


HOLE = b'"HOLE"'


@pytest.mark.check
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (b"NaN", "nan"),
        (b"Infinity", "inf"),
        (b"-Infinity", "-inf"),
        (b"1e999", "inf"),
        (b"9" * 30, "9" * 30),
        (b'"\\u0000"', r"'\x00'"),
        (b'"\\ud83d\\ude00"', "'😀'"),
        (b"[" * 190 + b"]" * 190, "[" * 190 + "]" * 190),
    ],
)
def test_every_value_that_json_can_hold_reaches_the_tool_over_stdio(wire: Wire, value: bytes, seen: str) -> None:
    wire.send(wire.call("echo", value="HOLE").replace(HOLE, value))
    assert text_of(wire.answer()) == seen


@pytest.mark.check
def test_request_ids_are_returned_as_they_were_sent(wire: Wire) -> None:
    for identity in (0, -1, 10**30, "", "é", "7", 7):
        assert wire.ask("tools/call", {"name": "echo", "arguments": {"value": 1}}, identity)["result"]
    wire.send(wire.call("echo", "HOLE", value=1).replace(HOLE, b'"\\ud800"'))
    assert wire.line().startswith(b'{"jsonrpc":"2.0","id":"\\ud800","result"')


@pytest.mark.check
def test_two_concurrent_requests_with_one_id_are_both_answered(wire: Wire) -> None:
    wire.send(wire.call("echo", value="a"), wire.call("echo", value="b"))
    assert {text_of(wire.answer()), text_of(wire.answer())} == {"'a'", "'b'"}


def test_result_that_cannot_be_encoded_is_an_error_and_the_server_continues(wire: Wire) -> None:
    assert wire.ask("tools/call", {"name": "give", "arguments": {"what": "surrogate"}}, 3)["error"]["message"]
    assert "result" in wire.ask("tools/call", {"name": "give", "arguments": {"what": "nan"}}, 4)


def test_large_requests_and_responses_pass_complete(wire: Wire) -> None:
    assert len(text_of(wire.ask("tools/call", {"name": "give", "arguments": {"what": "large"}}))) == 5_000_000
    assert len(text_of(wire.ask("tools/call", {"name": "echo", "arguments": {"value": "y" * 5_000_000}}))) == 5_000_002


def test_child_processes_and_stray_prints_cannot_touch_the_protocol_stream(wire: Wire) -> None:
    assert text_of(wire.ask("tools/call", {"name": "child", "arguments": {}})) == "1"


@pytest.mark.check
def test_overlong_line_is_answered_and_skipped(fresh: Wire) -> None:
    fresh.send(b'{"method":"tools/call","params":{"v":"' + b"x" * MAX_LINE + b'"},"jsonrpc":"2.0","id":9}')
    answer = fresh.answer()
    assert answer["id"] == 9
    assert f"at most {MAX_LINE} bytes" in text_of(answer)
    assert "result" in fresh.ask("ping")


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("place", ["first", "last"])
def test_line_of_forty_megabytes_uses_little_memory(fresh: Wire, place: str) -> None:
    assert "result" in fresh.ask("tools/call", {"name": "echo", "arguments": {"value": 1}})
    before = peak_memory(fresh.process.pid)
    filling = b'"method":"tools/call","params":{"name":"echo","arguments":{"value":"' + b"x" * 40_000_000 + b'"}}'
    fields = (b'"jsonrpc":"2.0","id":9', filling)
    fresh.send(b"{" + b",".join(fields if place == "first" else reversed(fields)) + b"}")
    answer = fresh.answer()
    assert answer["id"] == 9
    assert "message too long" in text_of(answer)
    assert peak_memory(fresh.process.pid) - before < 60_000_000
    assert "result" in fresh.ask("ping")


def peak_memory(pid: int) -> int:
    """Bytes that the process had resident at most."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.check
def test_server_for_large_values_accepts_lines_that_hold_one(tmp_path: Path) -> None:
    value = "\u0001" * 2_000_000  # six bytes each, as JSON writes them
    with closing(
        Wire("-m", "holdlog", "--db", tmp_path / "state.db", "--tools", "state", "--max-value-bytes", "12000002")
    ) as wire:
        wire.open()
        done = wire.ask(
            "tools/call",
            {
                "name": "holdlog_set",
                "arguments": {"namespace": "n", "key": "k", "value": value, "updated_by": "ann", "expected_version": 0},
            },
        )
    assert json.loads(text_of(done))["version"] == 1


@pytest.mark.check
def test_many_waiting_calls_do_not_block_other_requests(fresh: Wire) -> None:
    many = 2 * traffic.IN_FLIGHT + 10
    fresh.send(*(fresh.call("block", number) for number in range(many)))
    assert "result" in fresh.ask("ping", identity="through")
    for number in range(many):
        fresh.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % number)
    assert "result" in fresh.ask("ping", identity="still")
    fresh.process.send_signal(signal.SIGTERM)
    code, said, left = fresh.ended()
    assert (code, left) == (0, [])  # cancelled calls are not answered, and nothing in flight holds up the end
    assert said.count("cancelled") == many


@pytest.mark.check
def test_requests_beyond_the_concurrency_limit_are_refused(script: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.py"
    small.write_text("import holdlog.adapters.mcp.stdio.traffic as s\ns.IN_FLIGHT_MOST = 3\n" + SERVER)
    wire = Wire(small, modern=True).open()
    wire.send(*(wire.call("block", number) for number in range(3)), wire.call("echo", "fourth", value=1))
    answer = wire.answer()
    assert answer["id"] == "fourth"
    assert answer["result"]["resultType"] == "complete"
    assert "requests in flight" in json.loads(text_of(answer))["message"]
    wire.close()


@pytest.mark.check
def test_server_stops_reading_from_a_client_that_does_not_read(fresh: Wire) -> None:
    assert fresh.process.stdin is not None
    os.set_blocking(fresh.process.stdin.fileno(), False)
    call = fresh.call("give", what="large") + b"\n"
    with selectors.DefaultSelector() as selector:
        selector.register(fresh.process.stdin, selectors.EVENT_WRITE)
        sent = 0
        while selector.select(1.0):  # until the pipe stays full
            sent += os.write(fresh.process.stdin.fileno(), call * 100)
            assert sent < 64_000_000
    os.set_blocking(fresh.process.stdin.fileno(), True)
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.process.wait(PATIENCE) == 0


@pytest.mark.check
@pytest.mark.parametrize(
    ("end", "doing"),
    [
        ("end of input", "block"),
        ("SIGTERM", "block"),
        *check(
            ("end of input", "nothing"),
            ("end of input", "stuck"),
            ("SIGTERM", "stuck"),
            ("SIGINT", "block"),
            ("SIGHUP", "nothing"),
        ),
        *slow(
            ("SIGTERM", "nothing"),
            ("SIGINT", "nothing"),
            ("SIGINT", "stuck"),
            ("SIGHUP", "block"),
            ("SIGHUP", "stuck"),
        ),
    ],
)
def test_every_way_to_end_a_stdio_server_is_clean_and_prompt(fresh: Wire, end: str, doing: str) -> None:
    if doing != "nothing":
        fresh.send(fresh.call(doing, "open"))
        fresh.until("blocked" if doing == "block" else "stuck")
    if end == "end of input":
        assert fresh.process.stdin is not None
        fresh.process.stdin.close()
    else:
        fresh.process.send_signal(getattr(signal, end))
    code, said, left = fresh.ended()
    assert code == 0  # within PATIENCE, though both calls would go on for longer
    assert said[-2:] == ["told of the end", "left"]
    if doing == "block":
        assert "cancelled" in said
        if end == "end of input":
            assert left == []  # clients of mcp 1.x break on what comes after they closed their session
        else:
            assert json.loads(left[0])["error"]["message"] == "Connection closed"


@pytest.mark.check
def test_stdio_server_waits_at_its_end_for_calls_that_finish_soon(script: Path) -> None:
    wire = Wire(script, modern=True)
    wire.send(*(wire.call("echo", number, value=number) for number in range(400)))
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    code, _, left = wire.ended()
    assert code == 0
    assert {json.loads(line)["id"] for line in left} == set(range(400))
    wire.close()


@pytest.mark.check
@pytest.mark.parametrize("modern", [False, True])
def test_calls_in_flight_at_the_end_of_input_are_dropped_and_finished_ones_sent(script: Path, modern: bool) -> None:
    wire = Wire(script, modern=modern).open()
    wire.send(wire.call("block", "waits"))
    wire.until("blocked")
    wire.send(wire.call("echo", "soon", value=1), wire.message("no/such/method", {}, "wrong"), b"no JSON")
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    code, said, left = wire.ended()
    assert (code, "cancelled" in said) == (0, True)
    assert {json.loads(line)["id"] for line in left} == {"soon", "wrong", None}
    wire.close()


@pytest.mark.check
def test_closed_stdout_ends_the_stdio_server(fresh: Wire) -> None:
    assert fresh.process.stdout is not None
    fresh.process.stdout.close()
    fresh.send(fresh.call("echo", value=1))
    assert fresh.process.wait(PATIENCE) == 0
    fresh.until("left")


@pytest.mark.check
def test_closed_stdout_is_noticed_without_a_write(fresh: Wire) -> None:
    assert fresh.process.stdout is not None
    fresh.send(fresh.call("block"))
    fresh.until("blocked")
    fresh.process.stdout.close()
    assert fresh.process.wait(PATIENCE) == 0


@pytest.mark.check
def test_dead_parent_ends_the_stdio_server_while_the_pipe_stays_open(script: Path, tmp_path: Path) -> None:
    asked, ask = os.pipe()
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, {str(script)!r}], stdin={asked}, close_fds=False)\n"
        "sys.stdin.readline()\n"
    )
    wire = Wire(parent, pass_fds=[asked])
    os.write(ask, wire.message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}) + b"\n")
    assert wire.line()  # the grandchild serves, on the pipe that its parent was given
    wire.process.kill()
    wire.process.wait()
    wire.until("left")
    assert wire.line() == b""
    os.close(ask)
    os.close(asked)
    wire.close()


@pytest.mark.check
@pytest.mark.parametrize(
    ("kind", "threads"), [("file", []), ("pipe", ["--threads"]), *slow(("file", ["--threads"]), ("pipe", []))]
)
def test_files_work_as_stdin_and_stdout(script: Path, tmp_path: Path, kind: str, threads: list[str]) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    wire = Wire(script, modern=True, stdin=subprocess.DEVNULL)
    calls = [wire.call("echo", number, value=number) for number in range(300)]
    assert wire.ended()[0] == 0  # the null device is an empty file
    wire.close()
    asked.write_bytes(b"\n".join(calls))
    if kind == "file":
        with asked.open() as stdin, answered.open("wb") as stdout:
            wire = Wire(script, *threads, stdin=stdin, stdout=stdout)
            assert wire.process.wait(PATIENCE) == 0
        left = answered.read_bytes().splitlines()
    else:
        wire = Wire(script, *threads)
        wire.send(*calls)
        assert wire.process.stdin is not None
        wire.process.stdin.close()
        code, said, left = wire.ended()
        assert code == 0
        assert (said[-1] == "returned") == bool(threads)
    assert {json.loads(line)["id"] for line in left} == set(range(300))
    wire.close()


@pytest.mark.check
def test_shared_file_descriptor_keeps_its_blocking_mode(script: Path) -> None:
    asked, ask = os.pipe()
    answered, answer = os.pipe()
    wire = Wire(script, stdin=asked, stdout=answer)
    os.write(ask, wire.message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}) + b"\n")
    assert os.read(answered, 1000)
    assert not any(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in (asked, answer))
    for fd in (asked, ask, answered, answer):
        os.close(fd)
    wire.close()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_fastmcp_client_is_served_over_stdio_in_both_eras(script: Path, mode: Any) -> None:
    transport = StdioTransport(sys.executable, [str(script)], env={**os.environ}, keep_alive=False)
    async with Client(transport, mode=mode) as client:
        assert {tool.name for tool in await client.list_tools()} >= {"echo", "block"}
        answers = await asyncio.gather(*(client.call_tool("echo", {"value": number}) for number in range(50)))
        assert [getattr(answer.content[0], "text", "") for answer in answers] == [str(number) for number in range(50)]
        with pytest.raises(Exception, match=r"[Tt]imed out"):
            await client.call_tool("block", timeout=0.2)
        assert (await client.call_tool("echo", {"value": "after"})).content
