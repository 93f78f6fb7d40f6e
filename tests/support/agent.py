"""An agent at an MCP client that checks every answer against the promises that hold for all of them."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from jsonschema import Draft202012Validator

from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.groups import GROUPS
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.message import Caller
from tests.support.clock import Clock

IDENTITY = Identity("salt")

ALL = tuple(GROUPS)
ERAS = ("legacy", "auto")
WRITTEN = frozenset({"value", "actual_value", "message", "messages", "result", "data"})
"""What agents wrote is theirs."""
MAY_BE_NULL = frozenset({"value", "previous_version", "actual_value"})


class Agent:
    """Calls tools by their short names. `answers` and `errors` keep all that was said to it."""

    def __init__(self, client: "Client[Any]", schemas: Mapping[str, Mapping[str, Any]], prefix: str) -> None:
        self.client = client
        self.answers: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[str] = []
        self._schemas = schemas
        self._prefix = prefix

    async def __call__(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
        """The answer; it has the form that the tool's output schema promises, as text and as structured content."""
        result = await self.client.call_tool_mcp(self._prefix + tool, arguments, meta=meta)
        text = _text(result)
        assert not result.is_error, text
        answer = result.structured_content
        assert answer is not None
        assert text == json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        schema = self._schemas[self._prefix + tool]
        Draft202012Validator(schema).validate(answer)  # oneOf: exactly one
        assert "result" not in answer
        _no_nulls(answer)
        self.answers.append((tool, answer))
        return dict(answer)

    async def error(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> str:
        """The message of a refused call: an error in one line, without structured content."""
        result = await self.client.call_tool_mcp(self._prefix + tool, arguments, meta=meta)
        assert result.is_error, result
        assert result.structured_content is None
        message = message_of(_text(result))
        self.errors.append(message)
        return message


def message_of(text: str) -> str:
    """The message of an error's text, which has nothing else, no line break and no address of pydantic's."""
    error = json.loads(text)
    assert list(error) in (["status", "message"], ["status", "message", "operation"])
    assert error["status"] == "error"
    assert error["message"]
    assert "\n" not in error["message"]
    assert "http" not in error["message"]
    return str(error["message"])


@asynccontextmanager
async def connected(server: Any, prefix: str = "holdlog_", **options: Any) -> AsyncIterator[Agent]:
    """An agent at a server: a FastMCP server in memory, or a transport to a process."""
    async with Client(server, **options) as client:
        tools = await client.list_tools()
        schemas = {tool.name: tool.output_schema or {} for tool in tools}
        for schema in schemas.values():
            Draft202012Validator.check_schema(schema)
        yield Agent(client, schemas, prefix)


@contextmanager
def engine(
    settings: Settings | None = None, clock: Clock | None = None, store: SqliteStore | None = None
) -> Iterator[Engine]:
    """In memory. `clock`: the time that a test moves by hand; `store`: one that fails."""
    if clock is None and store is None:
        holdlog = open_holdlog(":memory:", settings)
    else:
        settings, server, clock = settings or Settings(), Liveness(), clock or Clock()
        store = store or open_memory(clock, clock.steady)
        calls = Requests(RequestRules(settings, clock, clock.steady, server.connected, IDENTITY))
        holdlog = Engine(store, ProcessNotifier(), Caller(session="here"), calls, server)
    yield holdlog
    holdlog.close()


@asynccontextmanager
async def served(
    mode: Any = "auto",
    prefix: str = "holdlog_",
    settings: Settings | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[Agent]:
    with engine(settings, clock) as store:
        async with connected(build_server(store, ALL, prefix, **options), prefix, mode=mode) as agent:
            yield agent


async def listing(groups: tuple[str, ...], prefix: str = "holdlog_") -> tuple[list[dict[str, Any]], str]:
    """The tools and the instructions that a host gets."""
    with engine() as store:
        async with Client(build_server(store, groups, prefix), mode="legacy") as client:
            tools = (await client.list_tools_mcp()).tools
            assert client.initialize_result is not None
            instructions = client.initialize_result.instructions or ""
    return [json.loads(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools], instructions


def process(*arguments: str, env: dict[str, str] | None = None) -> StdioTransport:
    """A holdlog server process of its own, by the Python that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if name != "CLAUDE_CODE_SESSION_ID"}
    return StdioTransport(sys.executable, ["-m", "holdlog", *arguments], env={**kept, **(env or {})}, keep_alive=False)


def _text(result: Any) -> str:
    assert [block.type for block in result.content] == ["text"]
    return str(result.content[0].text)


def _no_nulls(answer: Any, name: str = "") -> None:
    match answer:
        case dict():
            for field, inner in answer.items():
                if field not in WRITTEN:
                    _no_nulls(inner, field)
        case list():
            for inner in answer:
                _no_nulls(inner, name)
        case None:
            assert name in MAY_BE_NULL, f"{name} is null"
