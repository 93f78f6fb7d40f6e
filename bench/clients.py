"""Light clients over raw sockets, so that what is measured is the server, and the servers that they call."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.bench import ROOT

ERAS = ("2025-11-25", "2026-07-28")
FIRST = 10_000_000
_ids = count(FIRST)
_ACCEPT = {"Accept": "application/json, text/event-stream"}
_HOLDLOG = str(Path(sys.executable).parent / "holdlog")
_UNBOUNDED = ("--max-requests", "--max-upload", "--max-in-flight")
"""Limits of one principal, which all clients here are."""


@dataclass(frozen=True)
class Server:
    """A server that listens."""

    port: int
    pid: int

    def once(self, request: bytes) -> bytes:
        """One answer, on a connection of its own."""
        with crowd(self.port, 1) as (client,):
            client.sendall(request)
            got = bytearray()
            while not complete(got):
                got += received(client)
            return bytes(got)

    def metric(self, name: str) -> float:
        """One that holdlog tells at /metrics."""
        lines = self.once(request("GET", "/metrics")).decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def cpu(self) -> float:
        """Seconds of all its threads since it began."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MiB that it has in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1024**2

    def descriptors(self) -> int:
        """Of all but files: each of its threads may keep the store open."""
        found = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):
                found += not os.readlink(link).startswith("/")
        return found


def call(era: str, tool: str, arguments: object, headers: dict[str, str] | None = None) -> bytes:
    """A request that calls a tool; `fresh` gives it an id."""
    params: dict[str, object] = {"name": tool, "arguments": arguments}
    told = {"MCP-Protocol-Version": era} | _ACCEPT | (headers or {})
    if era == ERAS[1]:
        names = ("protocolVersion", "clientCapabilities")
        params["_meta"] = {f"io.modelcontextprotocol/{name}": it for name, it in zip(names, (era, {}), strict=True)}
        told |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    body = json.dumps({"jsonrpc": "2.0", "id": FIRST, "method": "tools/call", "params": params})
    return request("POST", "/mcp", body, told)


def request(method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> bytes:
    data = body.encode()
    told = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(data))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (told | (headers or {})).items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


def session(server: Server, era: str) -> dict[str, str]:
    """The headers that a client of that version sends with every call."""
    if era != ERAS[0]:
        return {}
    about = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    got = server.once(request("POST", "/mcp", body, _ACCEPT))
    line = next(line for line in got.split(b"\r\n") if line.lower().startswith(b"mcp-session-id"))
    headers = {"Mcp-Session-Id": line.partition(b": ")[2].decode()}
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    server.once(request("POST", "/mcp", body, _ACCEPT | headers))
    return headers


def fresh(request: bytes) -> bytes:
    """With an id of its own: the SDK mixes up calls of one session that share theirs."""
    return request.replace(b'"id": %d' % FIRST, b'"id": %d' % next(_ids), 1)


def complete(got: bytearray) -> bool:
    head = got.find(b"\r\n\r\n")
    if head < 0:
        return False
    at = got.lower().find(b"content-length: ", 0, head)
    if at < 0:
        return got.endswith(b"0\r\n\r\n")
    return len(got) >= head + 4 + int(got[at + 16 : got.index(b"\r", at)])


def received(client: socket.socket) -> bytes:
    data = client.recv(1 << 16)
    if not data:
        raise RuntimeError("the server closed the connection")
    return data


@contextmanager
def crowd(port: int, clients: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(clients)]
        for client in crowd:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.settimeout(60)
        yield crowd


@contextmanager
def holdlog(store: str | Path, program: Sequence[str] = (_HOLDLOG,)) -> Iterator[Server]:
    """`holdlog serve` with all tools and without limits."""
    unbounded = [part for option in _UNBOUNDED for part in (option, "0")]
    command = [*program, "--db", str(store), "serve", "--transport", "http", "--tools", "all"]
    with serving([*command, *unbounded, "--port"]) as server:
        yield server


@contextmanager
def serving(command: list[str]) -> Iterator[Server]:
    """A server on a free port, which is put at the end of its command."""
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
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(30)
