"""Calls over HTTP against a FastMCP tool that does nothing, served by FastMCP itself, at 1, 16 and 64 clients."""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from bench.bench import ROOT, Bench
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, Rounds, interleaved

GROUP = "http"
CLIENTS = (1, 16, 64)
AT_MOST = 1.3
REST_AT_LEAST = 5.0
ERAS = ("2025-11-25", "2026-07-28")

PLACE = {"namespace": NAMESPACE, "key": "key-1"}
WRITE = PLACE | {"value": VALUE, "updated_by": AGENT}
_UNBOUNDED = ("--max-requests", "--max-upload")
"""Options that would slow down whoever calls this much."""


def run(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.memory) as folder, ExitStack() as stack:
        empty = stack.enter_context(_serving([sys.executable, "-m", "bench.empty_server"]))
        holdlog = str(Path(sys.executable).parent / "holdlog")
        command = [holdlog, "--db", str(folder / "state.db"), "serve", "--transport", "http", "--tools", "all"]
        ours = stack.enter_context(_serving([*command, *_unbounded(holdlog), "--port"]))
        for era in ERAS:
            nothing = _call(era, "nothing", PLACE, _session(empty, era))
            session = _session(ours, era)
            tools = {
                "get": _call(era, "holdlog_get", PLACE, session),
                "set": _call(era, "holdlog_set", WRITE | {"force": True}, session),
            }
            _once(ours, tools["set"])
            for clients in CLIENTS:
                contestants = {"empty": (empty, nothing)} | {tool: (ours, call) for tool, call in tools.items()}
                measured = _compare(bench, f"{era}, {clients} clients", contestants, clients)
                for tool in tools:
                    what = f"{tool} over MCP {era}, {clients} client{'s' if clients > 1 else ''}"
                    ratio = measured.ratio(tool, "empty")
                    yield Figure(GROUP, what, ratio, "x empty", AT_MOST, beside=measured.told(" µs"))
        yield from _rest(bench, ours)


def _rest(bench: Bench, ours: int) -> Iterator[Figure]:
    put, get = (_request(method, f"/kv/{NAMESPACE}/key-1", json.dumps(VALUE)) for method in ("PUT", "GET"))
    if not _once(ours, put).startswith(b"HTTP/1.1 2"):
        return
    mcp = _call(ERAS[1], "holdlog_get", PLACE, {})
    for clients in CLIENTS:
        contestants = {"get over MCP": (ours, mcp), "GET": (ours, get), "PUT": (ours, put)}
        measured = _compare(bench, f"REST, {clients} clients", contestants, clients)
        for method, target in (("GET", REST_AT_LEAST), ("PUT", None)):
            what = f"REST {method}, {clients} client{'s' if clients > 1 else ''}"
            ratio = measured.ratio("get over MCP", method)
            yield Figure(GROUP, what, ratio, "x the rate of MCP", target, True, beside=measured.told(" µs"))


def _compare(bench: Bench, what: str, contestants: dict[str, tuple[int, bytes]], clients: int) -> Rounds:
    """Microseconds per call: of one client its wait, of many the time of all by their number."""
    calls = bench.pick(100, 40) if clients == 1 else bench.pick(400, 200)

    def measure(name: str) -> list[float]:
        bench.progress(f"{what}: {name}")
        port, request = contestants[name]
        with _crowd(port, clients) as crowd:
            _time(crowd, request, clients)
            return [_time(crowd, request, calls)]

    for name in contestants:
        measure(name)
    return interleaved(tuple(contestants), bench.pick(15, 5), measure, lambda turn: None)


def _time(crowd: list[socket.socket], request: bytes, calls: int) -> float:
    """Each client sends its next call as soon as it has the answer to the last."""
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        left = calls
        for client in crowd[:calls]:
            client.sendall(_fresh(request))
            left -= 1
            selector.register(client, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                client, got = key.fileobj, key.data
                assert isinstance(client, socket.socket)
                got += _received(client)
                if not _complete(got):
                    continue
                assert b'"status":"ok"' in got or b'\\"status\\":\\"ok\\"' in got or _PLAIN in got, bytes(got)
                got.clear()
                if left:
                    client.sendall(_fresh(request))
                    left -= 1
                else:
                    selector.unregister(client)
    return (time.perf_counter() - started) / calls * 1e6


FIRST = 10_000_000
_ids = count(FIRST)
_PLAIN = json.dumps(VALUE, separators=(",", ":")).encode()[:20]


def _fresh(request: bytes) -> bytes:
    """With an id of its own: the SDK mixes up calls of one session that share theirs."""
    return request.replace(b'"id": %d' % FIRST, b'"id": %d' % next(_ids), 1)


def _complete(got: bytearray) -> bool:
    head = got.find(b"\r\n\r\n")
    if head < 0:
        return False
    at = got.lower().find(b"content-length: ", 0, head)
    if at < 0:
        return got.endswith(b"0\r\n\r\n")
    return len(got) >= head + 4 + int(got[at + 16 : got.index(b"\r", at)])


def _call(era: str, tool: str, arguments: object, headers: dict[str, str]) -> bytes:
    params: dict[str, object] = {"name": tool, "arguments": arguments}
    told = {"MCP-Protocol-Version": era, "Accept": "application/json, text/event-stream"} | headers
    if era == ERAS[1]:
        names = ("protocolVersion", "clientCapabilities")
        params["_meta"] = {f"io.modelcontextprotocol/{name}": it for name, it in zip(names, (era, {}), strict=True)}
        told |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    body = json.dumps({"jsonrpc": "2.0", "id": FIRST, "method": "tools/call", "params": params})
    return _request("POST", "/mcp", body, told)


def _request(method: str, path: str, body: str, headers: dict[str, str] | None = None) -> bytes:
    data = body.encode() if method != "GET" else b""
    told = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(data))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (told | (headers or {})).items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


def _session(port: int, era: str) -> dict[str, str]:
    """What a client of that version sends with every call."""
    if era != ERAS[0]:
        return {}
    about = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    got = _once(port, _request("POST", "/mcp", body, {"Accept": "application/json, text/event-stream"}))
    line = next(line for line in got.split(b"\r\n") if line.lower().startswith(b"mcp-session-id"))
    session = {"Mcp-Session-Id": line.partition(b": ")[2].decode()}
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    accept = {"Accept": "application/json, text/event-stream"}
    _once(port, _request("POST", "/mcp", body, accept | session))
    return session


def _once(port: int, request: bytes) -> bytes:
    with _crowd(port, 1) as (client,):
        client.sendall(request)
        got = bytearray()
        while not _complete(got):
            got += _received(client)
        return bytes(got)


def _received(client: socket.socket) -> bytes:
    data = client.recv(1 << 16)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data


@contextmanager
def _crowd(port: int, clients: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(clients)]
        for client in crowd:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.settimeout(30)
        yield crowd


def _unbounded(holdlog: str) -> list[str]:
    told = subprocess.run([holdlog, "serve", "--help"], capture_output=True, text=True).stdout
    return [part for option in _UNBOUNDED if option in told for part in (option, "0")]


@contextmanager
def _serving(command: list[str]) -> Iterator[int]:
    """A server on a free port, which stands at the end of its command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    env = os.environ | {"FASTMCP_LOG_ENABLED": "false"}
    process = subprocess.Popen([*command, str(port)], cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(30)
