"""Counts of tool calls over HTTP, by tool and status."""

from collections.abc import Callable

from fastmcp.exceptions import NotFoundError as UnknownToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp_types import CallToolRequestParams

NO_TOOL = "none"


class ToolCounts(Middleware):
    """Calls `called` with the name of each called tool and the status of its response, or `error` if it has no
    status."""

    def __init__(self, called: Callable[[str, str], None]) -> None:
        self._called = called

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        name, status = context.message.name, "error"
        try:
            result = await call_next(context)
            status = str((result.structured_content or {}).get("status", status))
            return result
        except UnknownToolError:
            name = NO_TOOL  # the name may be any text
            raise
        finally:
            self._called(name, status)
