"""A server for the conformance suite: ours, with the few tools that its scenarios call by name, and with our resources
under the names that it reads. Transport, guard, resources, subscriptions and completions are what holdlog serves.

    python -m tests.conformance.fixtures PORT
"""

import asyncio
import json
import sys
from typing import Any

import uvicorn
from fastmcp import Context
from fastmcp.tools import ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from starlette.types import Message, Receive, Scope, Send

from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.mcp.groups import GROUPS
from holdlog.adapters.mcp.http.endpoint import Endpoint
from holdlog.adapters.mcp.server import FixedTools, build_server
from holdlog.adapters.runtime.request_context import RequestContext

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

RENAMED = {
    b"test://static-text": b"state://conformance/static-text",
    b"test://template/123/data": b"state://conformance/123",
    b"test://watched-resource": b"state://conformance/watched",
    b'"type":"ref/prompt","name":"test_prompt_with_arguments"': (
        b'"type":"ref/resource","uri":"state://{namespace}/{key}"'
    ),
    b'"name":"arg1","value":"test"': b'"name":"namespace","value":"conf"',
}
"""What the suite asks for, and what of ours it gets."""


async def test_simple_text() -> str:
    return "This is a simple text response for testing."


async def test_image_content() -> ToolResult:
    return _of(ImageContent(type="image", data=PIXEL, mime_type="image/png"))


async def test_audio_content() -> ToolResult:
    return _of(AudioContent(type="audio", data=SOUND, mime_type="audio/wav"))


async def test_embedded_resource() -> ToolResult:
    return _of(_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


async def test_multiple_content_types() -> ToolResult:
    return _of(
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        _embedded("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123})),
    )


async def test_tool_with_progress(ctx: Context) -> str:
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return "done"


async def test_tool_with_logging(ctx: Context) -> str:
    for text in ("started", "processing data", "completed"):
        await ctx.info(f"Tool execution {text}")
        await asyncio.sleep(0.05)
    return "done"


async def test_error_handling() -> str:
    raise RuntimeError("This tool intentionally returns an error for testing")


async def test_missing_capability(ctx: Context) -> str:
    declared = ctx.session.client_capabilities
    if declared is None or declared.sampling is None:
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return "done"


TOOLS = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_tool_with_progress,
    test_tool_with_logging,
    test_error_handling,
    test_missing_capability,
)


def fixture_server() -> FixedTools:
    server = build_server(None, tuple(GROUPS))
    for tool in TOOLS:
        server.tool(tool, description=tool.__name__.replace("_", " "))
    return server


async def serve(port: int) -> None:
    store = open_holdlog(MEMORY)
    store.keeps = False
    for key in ("static-text", "123", "watched"):
        await store.write_async(store.requests.values.set("conformance", key, {"key": key}, "suite", 0), store.caller)
    endpoint = Endpoint(fixture_server())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["served"] = RequestContext(store, store.caller.model_copy(update={"server": ""}))
        scope["headers"] = [(name, RENAMED.get(value, value)) for name, value in scope["headers"]]
        await endpoint(scope, renamed(receive), send)

    async with endpoint.running():
        await uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_level="error")).serve()


def renamed(receive: Receive) -> Receive:
    async def heard() -> Message:
        message = await receive()
        for name, ours in RENAMED.items():
            if name in message.get("body", b""):
                message["body"] = message["body"].replace(name, ours)
        return message

    return heard


def _of(*content: ContentBlock) -> ToolResult:
    return ToolResult(content=list(content))


def _embedded(uri: str, kind: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


def main(arguments: Any = sys.argv) -> None:
    asyncio.run(serve(int(arguments[1])))


if __name__ == "__main__":
    main()
