"""The demo's agents: each talks to its own holdlog server process over stdio, as MCP hosts do."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

START_WITHIN: Final = 20.0
ANSWER_WITHIN: Final = 15.0
"""Seconds to wait for a response before the step fails."""


class Wrong(Exception):
    """A step failed; the message is one line with the reason."""


def require(held: bool, otherwise: str) -> None:
    """Check a condition. Raises Wrong with the message if it does not hold."""
    if not held:
        raise Wrong(otherwise)


class Agent:
    """One agent with its connection. `call` returns the tool's response; raises Wrong."""

    def __init__(self, name: str, client: Client[StdioTransport], errors: Path) -> None:
        self.name = name
        self._client = client
        self._errors = errors

    @property
    def server(self) -> str:
        """The server's description of itself."""
        info = self._client.server_info
        return f"{info.name} {info.version}" if info else "unknown"

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = await self._client.call_tool_mcp(f"holdlog_{tool}", arguments, timeout=ANSWER_WITHIN)
        except Exception as error:
            raise Wrong(
                f"{self.name}'s {tool} got no answer ({_first_line(error)}){_last_words(self._errors)}"
            ) from error
        body = answer.structured_content
        if answer.is_error or body is None:
            raise Wrong(f"{self.name}'s {tool} failed: {answer.content}")
        return dict(body)


@asynccontextmanager
async def connected(names: Sequence[str], command: Sequence[str], folder: Path) -> AsyncIterator[list[Agent]]:
    """Start one server process per agent, all concurrently; end them all after the block. Raises Wrong.

    `command`: the program and its arguments. `folder`: the project in which they work, and where their stderr goes.
    """
    async with AsyncExitStack() as stack:
        yield list(await together(*(_connect(stack, name, command, folder) for name in names)))


async def together(*steps: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run the coroutines concurrently; the first failure ends the others, and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step) for step in steps]
    except (
        ExceptionGroup
    ) as errors:  # not `except*`: early 3.11 releases wrap an exception raised there in a group again
        raise _first(errors) from None
    return [task.result() for task in tasks]


async def _connect(stack: AsyncExitStack, name: str, command: Sequence[str], folder: Path) -> Agent:
    program, *arguments = command
    errors, project = folder / f"{name}.log", {"CLAUDE_PROJECT_DIR": str(folder)}
    transport = StdioTransport(program, arguments, env=project, keep_alive=False, log_file=errors)
    client = Client(transport, init_timeout=START_WITHIN, name=f"holdlog-demo-{name}")
    try:
        await stack.enter_async_context(client)
    except Exception as error:
        raise Wrong(f"{name}'s server did not start ({_first_line(error)}){_last_words(errors)}") from error
    return Agent(name, client, errors)


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _last_words(errors: Path) -> str:
    """The last line that a server wrote to its stderr."""
    try:
        lines = errors.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"; its last line: {last.strip()[:200]}" if last else ""
