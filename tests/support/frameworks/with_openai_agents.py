"""The recipe of docs/frameworks.md for the OpenAI Agents SDK, called without a model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServer
from story import run


class Server:
    def __init__(self, server: MCPServer) -> None:
        self._server = server

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._server.list_tools()]

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        (content,) = (await self._server.call_tool(tool, arguments)).content
        result: dict[str, Any] = json.loads(content.text)
        return result


@asynccontextmanager
async def connect(server: MCPServer) -> AsyncIterator[Server]:
    async with server:
        yield Server(server)


run(connect)
