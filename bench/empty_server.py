"""A FastMCP server whose tools do nothing: what a tool call costs before any work. `python -m bench.empty_server`
over stdio, `python -m bench.empty_server PORT` over HTTP, as FastMCP serves it."""

import json
import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import ToolResult
from mcp_types import TextContent

ANSWER = {"status": "ok", "namespace": "bench", "key": "key-1", "version": 1, "previous_version": None, "position": 1}

server: FastMCP[Any] = FastMCP(name="empty", version="1")


@server.tool(output_schema={"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]})
async def nothing(namespace: str, key: str, value: Any = None, updated_by: str = "") -> ToolResult:
    """Answers at once."""
    text = json.dumps(ANSWER, separators=(",", ":"))
    return ToolResult(content=[TextContent(type="text", text=text)], structured_content=ANSWER)


def serve_http(port: int) -> None:
    import uvicorn

    uvicorn.run(server.http_app(), port=port, log_config=None, access_log=False, server_header=False)


if __name__ == "__main__":
    if sys.argv[1:]:
        serve_http(int(sys.argv[1]))
    else:
        server.run(transport="stdio", show_banner=False, log_level="ERROR")
