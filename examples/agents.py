"""Two agents of LangGraph add a section each to one file. Each has a holdlog server of its own, as in a host, and
claims the file before it edits it. Their model is a script, so they need no API key: put a chat model in its place.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from mcp.types import Tool

from holdlog import AsyncStateStore

FILE = "report.md"


class Script(BaseChatModel):
    """Decides, as a model would, from what the last call returned."""

    agent: str

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        last = messages[-1]
        tool, result = (str(last.name), json.loads(last.text)) if isinstance(last, ToolMessage) else ("", {})
        if tool:
            print(f"{self.agent}  {tool.removeprefix('holdlog_'):<8} {_pick(result)}", flush=True)
        calls = [call | {"id": f"call-{len(messages)}"} for call in self._decide(tool, result)]
        message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _decide(self, tool: str, result: Any) -> list[Any]:
        claim = {"resource": FILE, "agent": self.agent}
        match tool, result:
            case "", _:
                return [{"name": "holdlog_claim", "args": claim}]
            case "holdlog_claim", {"status": "busy"}:
                return [{"name": "holdlog_claim", "args": claim | {"wait_seconds": 30}}]
            case "holdlog_claim", {"status": "claimed"}:
                return [{"name": "edit", "args": {"text": f"## By {self.agent}"}}]
            case "edit", _:
                ending = {"outcome": "modified", "note": f"a section by {self.agent}"}
                return [{"name": "holdlog_release", "args": claim | ending}]
            case _:
                return []


def _pick(result: dict[str, Any]) -> str:
    names = ("status", "held_by", "previous_holder", "previous_note", "granted_to")
    return ", ".join(f"{name}: {result[name]}" for name in names if name in result)


def _adapt(client: Client[Any], tool: Tool) -> StructuredTool:
    """A tool of the server for LangGraph, as langchain-mcp-adapters makes it."""

    async def call(**arguments: Any) -> str:
        return json.dumps((await client.call_tool(tool.name, arguments)).structured_content)

    return StructuredTool(
        name=tool.name, description=tool.description or "", args_schema=tool.input_schema, coroutine=call
    )


async def run(agent: str, folder: Path, before_edit: Callable[[], Awaitable[None]]) -> None:
    """One agent. `before_edit` is awaited while it holds the claim, where a model thinks."""

    async def edit(text: str) -> str:
        """Add a section to the file."""
        await before_edit()
        path = folder / FILE
        path.write_text(f"{path.read_text()}{text}\n")
        return json.dumps({"status": "done"})

    server = StdioTransport(
        sys.executable, ["-m", "holdlog", "--db", str(folder / "state.db")], cwd=str(folder), keep_alive=False
    )
    async with Client(server) as client:
        tools = [_adapt(client, tool) for tool in await client.list_tools()]
        tools.append(StructuredTool.from_function(coroutine=edit))
        model = Script(agent=agent)  # or ChatAnthropic(model=…).bind_tools(tools), or another
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        task = f"You are {agent}. Add your section to {FILE}. Claim the file before you edit it."
        await graph.compile().ainvoke({"messages": [HumanMessage(task)]})


async def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_text("# Report\n")
        async with AsyncStateStore(folder / "state.db") as store:

            async def until(is_true: Callable[[Any], bool]) -> None:
                while not is_true(await store.status(FILE)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

            # So that both want the file at once, whichever process is faster.
            async with asyncio.timeout(60), asyncio.TaskGroup() as agents:
                agents.create_task(run("ann", folder, lambda: until(lambda status: status.queue_length > 0)))
                await until(lambda status: status.status == "claimed")
                agents.create_task(run("bob", folder, lambda: asyncio.sleep(0)))
        text = (folder / FILE).read_text()
    print(f"\n{text}")
    return 0 if text == "# Report\n## By ann\n## By bob\n" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
