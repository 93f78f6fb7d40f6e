"""One server for 16 clients over HTTP: holdlog, and a Starlette application that responds with a constant."""

import json
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount

from bench.contestants import PLACES, Row, Samples, alternate, compare
from bench.worker import NAMESPACE, VALUE
from tests.support.programs import environment

KINDS = ("raw", "holdlog")
META = "io.modelcontextprotocol"
ERAS = ("2025-11-25", "2026-07-28")
CLIENTS = 16
CALLS = 320
KV = f"/kv/{NAMESPACE}/key-1"
PATHS = {"POST /kv": KV, "GET /kv": KV, "MCP get, 2025": "/mcp", "MCP get, 2026": "/mcp"}
RAW = ["-m", "uvicorn", "bench.http:app", "--no-access-log"]


def measure_http() -> Iterator[Row]:
    """Calls per second, and the CPU time of the server per call."""
    with TemporaryDirectory(prefix="holdlog-bench-", dir=PLACES["tmpfs"]) as folder, ExitStack() as stack:
        servers = {kind: stack.enter_context(closing(Server(kind, f"{folder}/{kind}.db"))) for kind in KINDS}
        for what, path in PATHS.items():
            message = write_request(what, path)
            times: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}

            def measure(kind: str, message: bytes = message, times: Any = times) -> list[float]:
                rate, cpu = servers[kind].time(message)
                times[kind].append([cpu])
                return [rate]

            rates, cpu = alternate(what, KINDS, 40, 25, measure), Samples(times)
            row: Row = {"what": f"{what}, {CLIENTS} clients"} | {f"{kind} /s": rates.median(kind) for kind in KINDS}
            row |= compare(rates, KINDS) | {f"{kind} µs of CPU": cpu.median(kind) for kind in KINDS}
            yield row | {f"CPU {name}": ratio for name, ratio in compare(cpu, KINDS).items()}


def write_request(what: str, path: str) -> bytes:
    method, body, headers = what.split()[0], b"", {"Host": "127.0.0.1", "Content-Type": "application/json"}
    if method == "POST":
        body = json.dumps(VALUE).encode()
    elif method == "MCP":
        era = next(era for era in ERAS if era[:4] in what)
        params: Any = {"name": "holdlog_get", "arguments": {"namespace": NAMESPACE, "key": "key-1"}}
        headers |= {"MCP-Protocol-Version": era, "Accept": "application/json, text/event-stream"}
        if era == ERAS[0]:
            headers["Mcp-Session-Id"] = "a-session"
        else:
            headers |= {"Mcp-Method": "tools/call", "Mcp-Name": params["name"]}
            params["_meta"] = {f"{META}/protocolVersion": era, f"{META}/clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        method, body = "POST", json.dumps(message).encode()
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Server:
    def __init__(self, kind: str, path: str) -> None:
        words = ["-m", "holdlog", "--db", path, "serve", "--transport", "http", "--tools", "all"]
        command = [sys.executable, *(RAW if kind == "raw" else words), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
        assert self._process.stderr is not None
        ports = (re.search(r"http://[^\s/]+:(\d+)", line) for line in self._process.stderr)
        self._address = "127.0.0.1", next(int(port[1]) for port in ports if port)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def time(self, message: bytes) -> tuple[float, float]:
        """Calls per second of clients that call again once they have a response; µs of CPU time of a call."""
        with ExitStack() as stack, selectors.DefaultSelector() as selector:
            for _ in range(CLIENTS):
                client = stack.enter_context(socket.create_connection(self._address))
                selector.register(client, selectors.EVENT_READ, bytearray())
            began, cpu, called = time.perf_counter(), self._read_cpu(), CLIENTS
            for key in selector.get_map().values():
                key.fileobj.sendall(message)  # type: ignore[union-attr]
            while selector.get_map():
                for key, _ in selector.select():
                    client, response = key.fileobj, key.data  # type: ignore[assignment]
                    response += client.recv(1 << 16)
                    if is_complete(response):
                        assert b"HTTP/1.1 200" in response, response
                        assert b'"isError":true' not in response, response
                        response.clear()
                        called += 1
                        client.sendall(message) if called <= CALLS else selector.unregister(client)
            return CALLS / (time.perf_counter() - began), (self._read_cpu() - cpu) / CALLS

    def _read_cpu(self) -> float:
        """µs of all threads."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in threads) / 1000


def is_complete(response: bytearray) -> bool:
    head, _, body = response.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return len(body) >= int(length[1]) if length else response.endswith(b"0\r\n\r\n")


app = Starlette(routes=[Mount("/", JSONResponse({"jsonrpc": "2.0", "id": 1, "result": VALUE}))])
