"""The MCP server: which tools, in which groups, and what hosts see of them, whatever is stored."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version as version_of
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.exceptions import NotFoundError as UnknownToolError
from fastmcp.exceptions import ValidationError as ArgumentError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import FunctionTool, Tool, ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp_types import CallToolRequestParams, InitializeRequest, InitializeResult, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from holdlog.adapters.api.validation import MAX_SHOWN, first_finding
from holdlog.adapters.api.values.presenter import named
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.mcp.calling import context_of
from holdlog.adapters.mcp.groups import ALIASES, GROUPS, INSTRUCTIONS
from holdlog.adapters.mcp.resources.announced import serve_resources
from holdlog.adapters.mcp.resources.subscriptions import Subscriptions
from holdlog.adapters.mcp.schemas import input_schema, output_schema
from holdlog.adapters.mcp.tools import TOOLS
from holdlog.adapters.mcp.tools.group import PROGRESS_EVERY, ToolKind, current_context, failed
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.names import closest, label
from holdlog.domain.refusals import InvalidError

DEFAULT_PREFIX: Final = "holdlog_"
PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,32}")
"""Tool names that hosts accept; some hosts add a prefix and allow 64 characters in all."""

MAX_CLIENT: Final = 40

_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._+-]")


class RequestMiddleware(Middleware):
    """Passes the caller to tools, and turns FastMCP's refusals into our form: one line, no value, no URL.

    `local`: context of every call that does not come over HTTP; None: there are none. `groups`: the server offers their
    tools. `prefix`: of the names of all tools.
    """

    def __init__(self, local: Engine | None, groups: Sequence[str], prefix: str) -> None:
        self._local = local
        self._groups = groups
        self._prefix = prefix

    async def on_initialize(
        self,
        context: MiddlewareContext[InitializeRequest],
        call_next: CallNext[InitializeRequest, InitializeResult | None],
    ) -> InitializeResult | None:
        if self._local is not None:
            client = context.message.params.client_info
            self._local.liveness.describe(f"mcp stdio, {_plain(client.name)} {_plain(client.version)}")
        return await call_next(context)

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        try:
            request = context.fastmcp_context.request_context if context.fastmcp_context else None
            current_context.set(context_of(request, self._local))
            return await call_next(context)
        except InvalidError as error:
            return failed(str(error))
        except UnknownToolError:
            tools = await context.fastmcp_context.fastmcp.list_tools() if context.fastmcp_context else ()
            return failed(
                _unknown_tool(context.message.name, [tool.name for tool in tools], self._groups, self._prefix)
            )
        except ArgumentError as error:
            cause = error.__cause__
            if not isinstance(cause, ValidationError):
                return failed("the arguments are not valid; compare them with the tool's input schema")
            return failed(first_finding(cause, known=await _arguments_of(context)))


def _plain(text: str) -> str:
    """What a client says about itself, for lists of processes."""
    return _NOT_PLAIN.sub("", text)[:MAX_CLIENT]


def _unknown_tool(name: str, known: Sequence[str], groups: Sequence[str], prefix: str) -> str:
    """The error for a tool that does not exist, or that is in a group that the server does not offer. The prefix of all
    names makes no two of them similar."""
    bare = name[:MAX_SHOWN].removeprefix(prefix)
    for group, tools in TOOLS.items():
        if group not in groups and any(kind.name == bare for kind in tools.kinds()):
            offered = ",".join([*groups, group])
            return (
                f"{prefix}{bare} is in the group {group}, which this server does not offer; ask the person you work for"
                f" to add it (--tools {offered})"
            )
    near = closest(bare, (tool.removeprefix(prefix) for tool in known))
    return f"unknown tool; did you mean {prefix}{near}?" if near else "unknown tool; tools/list lists all tools"


async def _arguments_of(context: MiddlewareContext[CallToolRequestParams]) -> list[str]:
    """The arguments of the tool that was called."""
    server = context.fastmcp_context.fastmcp if context.fastmcp_context else None
    tool = await server.get_tool(context.message.name) if server else None
    return list(tool.parameters["properties"]) if tool else []


class PlainTool(FunctionTool):
    """A tool that hides FastMCP's own bookkeeping from hosts."""

    def to_mcp_tool(self, **overrides: Any) -> ListedTool:
        return super().to_mcp_tool(**{"_meta": self.meta} | overrides)


class FixedTools(FastMCP[Any]):
    """A server with the same tools for everybody, always.

    Before each call and listing, FastMCP reads which tools the session has hidden; ours hides none. The skipped read
    would take 0.1 s for the first listing, and some time of each call.
    """

    subscriptions: Subscriptions | None = None
    """The subscriptions of clients; close them before the connections."""

    async def list_tools(self, *, run_middleware: bool = True) -> Sequence[Tool]:
        return await self.local_provider.list_tools()

    async def get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        return await self.local_provider.get_tool(name, version)


def build_server(
    local: Engine | None, groups: Sequence[str], prefix: str = DEFAULT_PREFIX, progress_every: float = PROGRESS_EVERY
) -> FixedTools:
    """A FastMCP server with the tools and resources of these groups (names of `GROUPS`). Opens and starts nothing.

    `local`: the store of calls over stdio; None: each call comes over HTTP and brings its `RequestContext`.
    `progress_every`: seconds between the progress notifications of a waiting call, if the client asks for them. Raises
    InvalidError for a prefix that hosts would not accept.
    """
    if not PREFIX.fullmatch(prefix):
        raise InvalidError("tool-prefix: must have at most 32 characters: letters, digits, '_' and '-'")
    server = FixedTools(
        name="holdlog",
        version=version_of("holdlog"),
        instructions=named("\n\n".join(filter(None, (INSTRUCTIONS[group] for group in groups))), prefix),
        middleware=[RequestMiddleware(local, groups, prefix)],
        mask_error_details=True,
        strict_input_validation=True,
    )
    for group in groups:
        tools = TOOLS[group](prefix, progress_every)
        for kind in tools.kinds():
            server.add_tool(_tool(kind, group, getattr(tools, kind.name), prefix))
    server.subscriptions = serve_resources(server._mcp_server, local, groups, prefix)
    return server


def chosen_groups(text: str) -> tuple[str, ...]:
    """Expand `claims,state`, `standard`, `advanced` or `all` to names of groups. Raises InvalidError."""
    chosen: dict[str, None] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word not in GROUPS and word not in ALIASES:
            raise InvalidError(f"tools: unknown group {word!r}; known groups: {', '.join([*GROUPS, *ALIASES])}")
        chosen.update(dict.fromkeys(ALIASES.get(word, (word,))))
    if not chosen:
        raise InvalidError(f"tools: name at least one of {', '.join([*GROUPS, *ALIASES])}")
    return tuple(chosen)


def _tool(kind: ToolKind, group: str, body: Callable[..., Any], prefix: str) -> Tool:
    tool = PlainTool.from_function(
        body,
        name=prefix + kind.name,
        title=kind.title,
        description=named(" ".join((body.__doc__ or "").split()), prefix),
        output_schema=output_schema(*kind.answers),
        annotations=ToolAnnotations(
            read_only_hint=kind.read_only,
            destructive_hint=kind.destructive,
            idempotent_hint=kind.idempotent or kind.read_only,
            open_world_hint=False,
        ),
        meta={"anthropic/alwaysLoad": True} if group == "claims" else None,
    )
    tool.parameters = input_schema(tool.parameters)
    return tool


def quiet_framework() -> None:
    """Silence FastMCP's debug log, which contains arguments: what agents write must not be logged. Its warnings are
    about refused arguments: the agent saw the refusal, and nobody else has to act."""
    wanted = logging.getLogger().isEnabledFor(logging.INFO)
    logging.getLogger("fastmcp").setLevel(logging.INFO if wanted else logging.ERROR)


def local_session(environ: Mapping[str, str] = os.environ) -> SessionId | None:
    """The conversation that started this server, if its host names it."""
    try:
        return SessionId("process", label(environ.get("CLAUDE_CODE_SESSION_ID", "")))
    except ValueError:
        return None
