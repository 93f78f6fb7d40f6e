"""Our MCP endpoint behind uvicorn in the test's own loop, and what speaks HTTP to it: every byte is a test's choice."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.types import Receive, Scope, Send

from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.mcp.calling import OPEN_REQUEST
from holdlog.adapters.mcp.http.endpoint import Endpoint
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from tests.support.agent import ALL
from tests.support.wire import ENVELOPE, PATIENCE

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ERAS = (LEGACY, MODERN)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The messages of a stream."""
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: ")]

    @property
    def result(self) -> Any:
        """Of the JSON-RPC response, in whichever form it came."""
        return (self.events[-1] if "event-stream" in self.headers["content-type"] else self.json)["result"]

    @property
    def content(self) -> Any:
        return self.result["structuredContent"]


class Connection:
    """One TCP connection, HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._come: list[Any] = []

    async def send(self, method: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        told = {"host": "127.0.0.1", "content-length": str(len(body))} | (headers or {})
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self.writer.write(f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(PATIENCE):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:] if line)

    async def chunk(self) -> bytes:
        """The next piece of a stream; empty at its end."""
        async with asyncio.timeout(PATIENCE):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self) -> Any:
        """The next message of a stream; comments are passed over."""
        while not self._come:
            chunk = await self.chunk()
            assert chunk, "the stream ended"
            self._come += [json.loads(line[6:]) for line in chunk.split(b"\n") if line.startswith(b"data: ")]
        return self._come.pop(0)

    async def answer(self) -> Answer:
        status, headers = await self.head()
        body = b""
        if "content-length" in headers:
            async with asyncio.timeout(PATIENCE):
                body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            while chunk := await self.chunk():
                body += chunk
        return Answer(status, headers, body)

    def drop(self) -> None:
        """Vanish, without a goodbye."""
        self.writer.transport.abort()


class Place(NamedTuple):
    """A replica."""

    endpoint: Endpoint
    port: int
    engine: Engine

    @property
    def waiters(self) -> int:
        return self.engine.lease_maintenance._waiters

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22))
        try:
            yield connection
        finally:
            connection.drop()

    async def raw(self, body: bytes, headers: dict[str, str], method: str = "POST") -> Answer:
        async with self.connect() as connection:
            await connection.send(method, body, headers)
            return await connection.answer()

    async def ask(self, era: str, method: str, params: dict[str, Any] | None = None, **headers: str) -> Answer:
        return await self.raw(*request(era, method, params, **headers))

    async def call(self, era: str, tool: str, arguments: dict[str, Any], meta: Any = None, **headers: str) -> Answer:
        return await self.raw(*call(era, tool, arguments, meta, **headers))


def call(era: str, tool: str, arguments: dict[str, Any], meta: Any = None, **headers: str) -> tuple[bytes, Any]:
    params = {"name": f"holdlog_{tool}", "arguments": arguments, "_meta": meta or {}}
    return request(era, "tools/call", params, **headers)


def request(era: str, method: str, params: dict[str, Any] | None = None, **headers: str) -> tuple[bytes, Any]:
    """Body and headers, as a client of that version sends them."""
    told = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    params = dict(params or {})
    if era == MODERN:
        params["_meta"] = {**params.get("_meta", {}), **ENVELOPE}
        told["mcp-method"] = method
        if name := params.get("name") or params.get("uri"):
            told["mcp-name"] = name
    if method != "initialize":
        told["mcp-protocol-version"] = era
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return body, told | {name.replace("_", "-"): value for name, value in headers.items()}


INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@asynccontextmanager
async def replica(store: Engine, groups: Sequence[str] = ALL, progress_every: float = 5) -> AsyncIterator[Place]:
    """The header `x-principal` says who was authenticated."""
    endpoint = Endpoint(build_server(None, groups, progress_every=progress_every))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        who = store.caller.model_copy(
            update={
                "principal": told.get("x-principal"),
                "session": None,
                "server": "",
                "request_id": told.get("idempotency-key"),
            }
        )
        with ExitStack() as during:
            scope.setdefault("state", {}).update({"served": RequestContext(store, who), OPEN_REQUEST: during})
            await endpoint(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    async with endpoint.running():
        serving = asyncio.create_task(server._serve())
        await until(lambda: server.started)
        yield Place(endpoint, server.servers[0].sockets[0].getsockname()[1], store)
        server.should_exit = server.force_exit = True
        await serving


@asynccontextmanager
async def one_replica(path: Path | str = MEMORY, **options: Any) -> AsyncIterator[Place]:
    store = open_holdlog(path)
    store.keeps = False
    async with replica(store, **options) as place:
        yield place
    store.close()


async def until(condition: Any) -> None:
    """Return when it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  others change it, and have no event for a test
            await asyncio.sleep(0.005)
