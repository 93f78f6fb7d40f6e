"""LlamaIndex's adapter: each call starts a server."""

import asyncio
import os
from typing import Any

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from story import SERVER, tell


async def main() -> None:
    client = BasicMCPClient(SERVER["command"], SERVER["args"], dict(os.environ))
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}

    async def call(tool: str, arguments: dict[str, Any]) -> str:
        output = await tools[tool].acall(**arguments)
        return str(output.raw_output.content[0].text)

    await tell(call)


asyncio.run(main())
