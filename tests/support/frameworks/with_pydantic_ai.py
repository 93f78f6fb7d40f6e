"""The recipe of docs/frameworks.md for PydanticAI, called without a model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.mcp import MCPToolset
from story import run


class Toolset:
    def __init__(self, toolset: MCPToolset) -> None:
        self._toolset = toolset

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = await self._toolset.direct_call_tool(tool, arguments)
        return result


@asynccontextmanager
async def connect(toolset: MCPToolset) -> AsyncIterator[Toolset]:
    async with toolset:
        yield Toolset(toolset)


run(connect)
