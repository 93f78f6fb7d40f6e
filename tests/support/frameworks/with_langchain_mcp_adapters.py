"""The recipe of docs/frameworks.md for LangChain, called without a model."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from langchain_core.tools import BaseTool
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession
from story import run


class Tools:
    def __init__(self, tools: list[BaseTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def tools(self) -> list[str]:
        return list(self._tools)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        (content,) = await self._tools[tool].ainvoke(arguments)
        result: dict[str, Any] = json.loads(content["text"])
        return result


@asynccontextmanager
async def connect(opening: AbstractAsyncContextManager[ClientSession]) -> AsyncIterator[Tools]:
    async with opening as session:
        yield Tools(await load_mcp_tools(session))


run(connect)
