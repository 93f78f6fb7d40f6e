"""LangChain's adapter: without a session of the program's own, each call starts a server."""

import asyncio
import os
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from story import SERVER, tell


async def main() -> None:
    client = MultiServerMCPClient({"holdlog": {**SERVER, "transport": "stdio", "env": dict(os.environ)}})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(tool: str, arguments: dict[str, Any]) -> str:
        (content,) = await tools[tool].ainvoke(arguments)
        return str(content["text"])

    await tell(call)


asyncio.run(main())
