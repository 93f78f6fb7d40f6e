"""MCP over stdio: each request is answered, whatever it contains, and each way to end a server is clean."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdlog
from tests.support.mcp import ENVELOPE, INITIALIZE, LEGACY, MODERN, Json, Stdio
from tests.support.programs import HOLDLOG, environment
from tests.support.waiting import PATIENCE, until

AT = {"namespace": "n", "key": "k"}
WRITE = {**AT, "value": "HOLE", "updated_by": "ann", "expected_version": 0}
HOLE = b'"HOLE"'
NOT_JSON, NO_REQUEST = -32700, -32600
pytestmark = pytest.mark.xdist_group("mcp stdio")  # one server, in one worker

MESSAGES: dict[bytes, tuple[Any, int | None]] = {
    # no JSON
    b"SECRET": (None, NOT_JSON),
    b"\xff\xfe{\x00}\x00": (None, NOT_JSON),
    b'{"jsonrpc":"2.0","id":1,"method":"ping"': (1, NOT_JSON),
    b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{': (5, NOT_JSON),
    b'{"jsonrpc":"2.0","id":5,"method":"ping"} {}': (5, NOT_JSON),
    b'{"id":1,"method":"tools/list","params":' + b"[" * 50_000: (1, NOT_JSON),
    # no request
    b"null": (None, NO_REQUEST),
    b"5": (None, NO_REQUEST),
    b'"SECRET"': (None, NO_REQUEST),
    b"[]": (None, NO_REQUEST),
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]': (None, NO_REQUEST),
    b"{}": (None, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":5}': (5, NO_REQUEST),
    b'{"id":5,"method":"ping"}': (5, NO_REQUEST),
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}': (1, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":5,"method":7}': (5, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}': (5, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":"1","method":"tools/list","params":[]}': ("1", NO_REQUEST),
    b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}': (None, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}': (None, NO_REQUEST),
    b'{"jsonrpc":"2.0","id":{"SECRET":1},"method":"tools/list"}': (None, NO_REQUEST),
    # requests that cannot be served
    b'{"jsonrpc":"2.0","id":5,"method":"nope"}': (5, None),
    b'{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}': (5, None),
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{}}': (5, None),
    b'{"jsonrpc":"2.0","id":"","method":"tools/call","params":{"name":5}}': ("", None),
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"holdlog_list","arguments":["SECRET"]}}': (
        5,
        None,
    ),
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"holdlog_list","arguments":"{}"}}': (5, None),
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"holdlog_list","_meta":5}}': (5, None),
    b'{"jsonrpc":"2.0","id":5,"method":"notifications/cancelled"}': (5, None),
}
"""A line, and the id and the code of the error that answers it (None: any code)."""

UNANSWERED = [
    *(b"", b"  \t\r"),
    b'{"jsonrpc":"2.0","method":"notifications/nope","params":[1]}',
    b'{"jsonrpc":"2.0","method":"notifications/nope","params":{',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"holdlog_set"}}',
    b'{"jsonrpc":"2.0","id":99,"result":{}}',
    b'{"jsonrpc":"2.0","id":99,"result":[]}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
]
"""Blank lines, notifications and responses."""

VALUES = {
    b"NaN": "finite",
    b"-Infinity": "finite",
    b"1e999": "finite",
    b'{"SECRET":[NaN]}': "finite",
    b'"SECRET \\ud800"': "surrogate",
    b'{"\\udfff":"SECRET"}': "surrogate",
    b'"SECRET \xff"': "UTF-8",
    b'"\xed\xa0\x80"': "UTF-8",
    b"9" * 5000: "",
    b"tru": "",
    b'"\t"': "",
    b"SECRET": "",
    b"[" * 101 + b"]" * 101: "100",
    b"[" * 300 + b"]" * 300: "nested|deep|levels",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000: "nested|deep|levels",
    b"[" * 20_000: "",
    b'"' + b"x" * 1_000_000 + b'"': "262144",
    b'"' + "é".encode() * 131_072 + b'"': "262144",
}
"""What a call of `set` may not have as a value, and a pattern of the reason."""


@pytest.fixture(scope="module")
def server() -> Iterator[Stdio]:
    """One for all tests that leave it as it was."""
    server = Stdio("--db", ":memory:", "--tools", "claims,state", "--max-wait", "0.05")
    yield server
    server.kill()


def line_of(server: Stdio) -> Json:
    """The next message, which reveals nothing."""
    message = server.read()
    assert not re.search(r"Traceback|pydantic|https?:|SECRET|File \\", json.dumps(message))
    assert len(json.dumps(message)) < 2000
    return message


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_both_eras_open_with_name_version_and_instructions(stdio, era):
    agent = stdio("--tools", "claims,state", era=era)
    info = (
        agent.opening["serverInfo"] if era == LEGACY else agent.opening["_meta"]["io.modelcontextprotocol/serverInfo"]
    )
    assert (info["name"], info["version"]) == ("holdlog", holdlog.__version__)
    assert "tools" in agent.opening["capabilities"]
    assert agent.opening["protocolVersion"] == LEGACY if era == LEGACY else MODERN in agent.opening["supportedVersions"]
    assert "holdlog_claim" in agent.opening["instructions"][:200]
    assert {*agent.tools()} >= {"claim", "release", "status", "wait"}
    assert agent.call("status", resource="custom://a") == {"status": "available", "resource": "custom://a"}
    assert agent.call("set", **WRITE)["version"] == 1
    assert agent.call("get", **AT)["value"] == WRITE["value"]
    assert agent.exchange(agent.message("nope"))["error"]["code"] == -32601


def test_malformed_line_gets_an_error_with_its_id(server):
    for line, (identity, code) in MESSAGES.items():
        server.send(line)
        message = line_of(server)
        assert message["id"] == identity, line[:80]
        assert message["error"]["message"], line[:80]
        assert code in (None, message["error"]["code"]), line[:80]
    server.send(b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}')
    message = line_of(server)
    assert (message["id"] in (None, 1.5), "error" in message) == (True, True)


def test_notifications_responses_and_blank_lines_get_no_response(server):
    for line in UNANSWERED:
        server.send(line)
        server.send(server.message("ping") | {"id": "next"})
        assert line_of(server) == {"jsonrpc": "2.0", "id": "next", "result": {}}, line[:80]


def refusal(server: Stdio, body: bytes, tool: str = "set", arguments: Json | None = None) -> str:
    """Why a call with these bytes in its hole is refused: as a result or as an error of the protocol."""
    call = json.dumps(server.calling(tool, arguments or WRITE) | {"id": "x"}).encode()
    server.send(call.replace(HOLE, body))
    message = line_of(server)
    assert message["id"] == "x", body[:80]
    if "error" in message:
        return str(message["error"]["message"])
    result = message["result"]
    assert (result["isError"], "structuredContent" in result) == (True, False), body[:80]
    return str(json.loads(result["content"][0]["text"])["message"])


def test_malformed_value_is_refused_and_stores_nothing(server):
    for body, pattern in VALUES.items():
        assert re.search(pattern, refusal(server, body)), body[:80]
    assert server.call("get", **AT)["status"] == "not_found"


@pytest.mark.rest
def test_line_of_forty_megabytes_is_refused_and_the_next_one_served(server):
    assert refusal(server, b'"' + b"x" * 40_000_000 + b'"')
    assert server.call("get", **AT)["status"] == "not_found"


def test_ids_are_returned_as_they_were_sent(server):
    for identity in (0, -1, 2**53, "", "é", "7", 7):
        assert server.exchange(server.calling("get", AT) | {"id": identity})["id"] == identity


def test_values_that_json_can_hold_are_read_as_they_were_sent(server):
    values = [
        *("\0", "😀 é", "x" * 200_000, None, False, 0, -0.5, 10**30, 1e300, [], {}, {"": None}, {"a": [1, {"b": ""}]}),
        json.loads("[" * 99 + "]" * 99),
    ]
    for number, value in enumerate(values):
        at = {"namespace": "values", "key": str(number)}
        assert server.call("set", **at, value=value, updated_by="ann", expected_version=0)["status"] == "ok"
        assert server.call("get", **at)["value"] == value


def piped(*lines: Json, db: Path, cwd: Path) -> tuple[int, list[Json], str]:
    """A server that reads these lines and then the end of its input: exit code, responses, stderr."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    command = [HOLDLOG, "--db", str(db), "--tools", "state"]
    done = subprocess.run(
        command, input=text, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("era", [LEGACY, pytest.param(MODERN, marks=pytest.mark.rest)])
def test_twenty_calls_piped_in_are_all_answered(db, tmp_path, era):
    meta = {"_meta": ENVELOPE} if era == MODERN else {}

    def request(number: int, method: str, **params: Any) -> Json:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params | meta}

    first = request(0, "server/discover") if era == MODERN else request(0, "initialize", **INITIALIZE)
    write = {"namespace": "n", "value": 1, "updated_by": "ann", "expected_version": 0}
    calls = [
        request(number, "tools/call", name="holdlog_set", arguments=write | {"key": f"{number}"})
        for number in range(1, 21)
    ]
    code, responses, errors = piped(first, *calls, db=db, cwd=tmp_path)
    assert (code, errors) == (0, "")
    assert {it["id"] for it in responses} == set(range(21))
    written = [it["result"]["structuredContent"]["status"] for it in responses if it["id"]]
    assert written == ["ok"] * 20
    with holdlog.StateStore(db) as store:
        assert len(store.list_keys("n")) == 20


def wait_in_flight(agent: Stdio, resource: str = "custom://a") -> Any:
    """The id of a call that waits, and would for a minute."""
    agent.call("claim", resource=resource, agent="ann", _meta={"holdlog/session": "s-1"})
    number = agent.start("claim", resource=resource, agent="ben", wait_seconds=45, _meta={"holdlog/session": "s-2"})
    until(lambda: agent.call("status", resource=resource)["queue_length"] == 1)
    return number


@pytest.mark.parametrize("end", ["SIGTERM", *(pytest.param(it, marks=pytest.mark.rest) for it in ("SIGINT", "SIGHUP"))])
def test_signal_ends_a_server_cleanly_although_a_call_waits(stdio, end):
    agent = stdio()
    number = wait_in_flight(agent)
    agent.process.send_signal(getattr(signal, end))
    assert agent.response(number)["id"] == number, "the call that waits is answered"
    assert agent.process.wait(PATIENCE) == 0
    assert agent.process.stderr is not None
    assert agent.process.stderr.read() == b""


@pytest.mark.rest
@pytest.mark.parametrize("waits", [True, False])
def test_closed_output_ends_a_server(stdio, waits):
    agent = stdio()
    if waits:
        wait_in_flight(agent)
    assert agent.process.stdout is not None
    agent.process.stdout.close()
    if not waits:
        agent.send(agent.calling("status", {}))
    assert agent.process.wait(PATIENCE) == 0


@pytest.mark.rest
def test_dead_host_ends_its_server_while_the_pipe_stays_open(db, tmp_path):
    program = """\
import subprocess, sys
server = subprocess.Popen(sys.argv[2:], stdin=int(sys.argv[1]), stdout=subprocess.PIPE, close_fds=False, text=True)
print(server.stdout.readline(), server.pid, flush=True)
sys.stdin.read()
"""
    reading, writing = os.pipe()
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    os.write(writing, json.dumps(first).encode() + b"\n")
    host = subprocess.Popen(
        [sys.executable, "-c", program, str(reading), HOLDLOG, "--db", str(db)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=tmp_path, pass_fds=[reading],
    )  # fmt: skip
    assert host.stdout is not None
    assert json.loads(host.stdout.readline())["id"] == 1
    server = int(host.stdout.readline())
    host.kill()
    host.communicate()
    until(
        lambda: not os.path.exists(f"/proc/{server}") or b"\nState:\tZ" in Path(f"/proc/{server}/status").read_bytes()
    )
    os.close(writing)
    os.close(reading)


@pytest.mark.rest
def test_stray_prints_never_reach_the_client(stdio, tmp_path):
    """Of Python code and of child processes, while the server serves."""
    (tmp_path / "sitecustomize.py").write_text("""\
import os, pathlib, sys, threading, time
def stray():
    while not (signal := pathlib.Path(os.environ["STRAY"])).exists():
        time.sleep(0.01)
    print("a stray print", flush=True)
    os.system("echo a stray child")
    signal.unlink()
if "serve" in sys.argv:
    threading.Thread(target=stray, daemon=True).start()
""")
    signal_file = tmp_path / "now"
    agent = stdio(env={"PYTHONPATH": str(tmp_path), "STRAY": str(signal_file)})
    signal_file.touch()
    until(lambda: not signal_file.exists())
    assert agent.call("status", resource="custom://a")["status"] == "available"
    code, errors = agent.close()
    assert (code, errors.count("stray")) == (0, 2)
    assert agent.notifications == []


def test_many_calls_that_wait_block_no_others_can_be_cancelled_and_end_with_the_input(stdio):
    agent = stdio("--tools", "claims,state")
    agent.call("claim", resource="custom://a", agent="ann")
    waits = [agent.start("wait", resource="custom://a", timeout_seconds=45) for _ in range(100)]
    assert agent.call("get", **AT)["status"] == "not_found"
    for number in waits[1:]:
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert agent.call("status", resource="custom://a")["held_by"] == "ann"
    agent.send(agent.calling("release", {"resource": "custom://a", "agent": "ann"}))
    assert agent.finish(waits[0])["status"] == "available"
    wait_in_flight(agent)
    assert agent.close() == (0, "")


@pytest.mark.rest
def test_wait_sends_progress_to_a_client_that_asks_for_it(stdio):
    agent = stdio()
    agent.call("claim", resource="custom://a", agent="ann")
    number = agent.start("wait", resource="custom://a", timeout_seconds=45, _meta={"progressToken": "p"})
    progress = agent.read()
    assert (progress["method"], progress["params"]["progressToken"]) == ("notifications/progress", "p")
    agent.send(agent.calling("release", {"resource": "custom://a", "agent": "ann"}))
    assert agent.finish(number)["status"] == "available"


def test_longest_wait_is_capped_and_says_so(server):
    server.call("claim", resource="custom://capped", agent="ann", _meta={"holdlog/session": "s-1"})
    for tool, arguments in (
        ("wait", {"resource": "custom://capped", "timeout_seconds": 30}),
        ("watch", {**AT, "since_version": 0, "timeout_seconds": 30}),
        ("claim", {"resource": "custom://capped", "agent": "ben", "wait_seconds": 30}),
    ):
        assert server.call(tool, **arguments, _meta={"holdlog/session": "s-2"})["capped_at_seconds"] == 0.05
    assert "capped_at_seconds" not in server.call("watch", **AT, since_version=0, timeout_seconds=0.01)
