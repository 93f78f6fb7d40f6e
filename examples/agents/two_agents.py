# /// script
# requires-python = ">=3.11"
# dependencies = ["holdlog[mcp]", "pydantic-ai-slim[mcp]>=2.60,<3"]
#
# [tool.uv.sources]
# holdlog = { path = "../.." }
# ///
"""Two agents of PydanticAI add a section each to one file. Each has a holdlog server of its own, as in a host, and
claims the file before it edits it. Their model is a script without a network: it decides, as a model would, from what
the calls returned.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdlog import AsyncStateStore

FILE = "report.md"
Results = list[tuple[str, Any]]
"""The calls so far with what they returned, oldest first."""


def results_of(messages: list[ModelMessage]) -> Results:
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [(part.tool_name, part.content) for part in parts]


class Script:
    """The model of one agent: from what the calls returned to the next call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = results_of(messages)
        if done:
            print(f"{self.name}  {self.describe(*done[-1])}")
        return ModelResponse(parts=[self.next(done)])

    def next(self, done: Results) -> ToolCallPart | TextPart:
        match done[-1] if done else ("", {}):
            case "", _:
                return self.claim()
            case "holdlog_claim", {"status": "busy"}:
                return self.claim(wait_seconds=50)
            case "holdlog_claim", _:
                return ToolCallPart("read", {})
            case "read", text:
                return ToolCallPart("write", {"text": f"{text}## By {self.name}\n"})
            case "write", _:
                arguments = {"outcome": "modified", "note": f"a section by {self.name}"}
                return ToolCallPart("holdlog_release", {"resource": FILE, "agent": self.name} | arguments)
            case _:
                return TextPart("done")

    def claim(self, **arguments: Any) -> ToolCallPart:
        return ToolCallPart("holdlog_claim", {"resource": FILE, "agent": self.name} | arguments)

    def describe(self, tool: str, result: Any) -> str:
        if not tool.startswith("holdlog_"):
            return f"{tool}s the file"
        shown = {key: result[key] for key in ("status", "held_by", "previous_note", "granted_to") if key in result}
        return f"{tool.removeprefix('holdlog_')}: {json.dumps(shown)}"


async def run(name: str, folder: Path, before_write: Callable[[], Awaitable[None]]) -> None:
    """One agent with a holdlog server and two tools of its own. `before_write`: awaited before the file is written."""
    server = StdioTransport(sys.executable, ["-m", "holdlog", "--db", str(folder / "state.db")], keep_alive=False)
    toolset = MCPToolset(server, init_timeout=30, read_timeout=60)  # docs/frameworks.md says why
    agent = Agent(FunctionModel(Script(name)), toolsets=[toolset])

    @agent.tool_plain
    def read() -> str:
        return (folder / FILE).read_text()

    @agent.tool_plain
    async def write(text: str) -> str:
        await before_write()
        (folder / FILE).write_text(text)
        return "written"

    await agent.run(f"You are {name}. Add your section to {FILE}. Claim the file before you edit it.")


async def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_text("# Report\n")
        async with AsyncStateStore(folder / "state.db") as store:

            async def until(ready: Callable[[Any], bool]) -> None:
                while not ready(await store.status(FILE)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

            def held() -> Awaitable[None]:
                return until(lambda it: it.status == "claimed")

            def wanted() -> Awaitable[None]:  # so that both want the file at once, whichever process is faster
                return until(lambda it: it.queue_length > 0)

            ann = asyncio.create_task(run("ann", folder, wanted))
            await held()
            await asyncio.gather(ann, run("bob", folder, held))
        text = (folder / FILE).read_text()
    print(f"\n{text}")
    return 0 if text == "# Report\n## By ann\n## By bob\n" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
