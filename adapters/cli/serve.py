"""`holdlog serve`: MCP over standard input and output, or over HTTP. It must start fast: it imports when it runs."""

import argparse
import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdlog.adapters.api.settings import LEASE_OVER_HTTP, Settings
from holdlog.adapters.cli.http import add_http_options, serve_http
from holdlog.adapters.cli.nats import add_nats_options, nats_options_of
from holdlog.adapters.cli.parsers import Commands, did_you_mean
from holdlog.adapters.cli.settings import add_options, given_options, location_of, read_options, workspaces_of
from holdlog.adapters.operating_system.extras import missing
from holdlog.adapters.operating_system.location import without_password
from holdlog.adapters.operating_system.options import one_of, option, text
from holdlog.domain.refusals import InvalidError

_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_TRANSPORTS: Final = ("stdio", "http")
_FIRST_REQUEST: Final = 1024 * 1024
"""Bytes of the longest first request that is read to refuse it."""


@dataclass(frozen=True)
class ServeOptions:
    """What is served, and over what."""

    tools: str = option(
        "groups of tools, separated by commas: claims (= standard), state (= advanced), power, kv, threads, admin, all",
        text("GROUPS"),
        default="claims",
    )
    tool_prefix: str = option("the first part of all tool names", text("TEXT"), may_be_empty=True, default="holdlog_")
    log_level: str = option(
        f"the least level that is logged on stderr: {', '.join(_LOG_LEVELS)}",
        one_of("LEVEL", *_LOG_LEVELS),
        default="warning",
    )
    transport: str = option(
        "stdio: one client, on standard input and output; http: many clients",
        one_of("KIND", *_TRANSPORTS),
        choices=_TRANSPORTS,
        default="stdio",
    )


_EXAMPLES: Final = """\
examples:
  holdlog serve --tools claims,state
  holdlog serve --transport http --port 8420
  holdlog serve --db 'postgresql://ann@db.example/team?schema=project' --nats nats://127.0.0.1:4222

Each option is also an environment variable, for example HOLDLOG_TOOLS or HOLDLOG_DB.
"""


def add_serve(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    serve = commands.add_parser(
        "serve",
        parents=[store, locations],
        help="serve MCP over stdio, or MCP and REST over HTTP (the default command)",
        description="Serve MCP over stdio, or MCP and the REST API over HTTP. holdlog without a command does the same.",
        epilog=_EXAMPLES,
    )
    add_options(serve, ServeOptions)
    add_options(serve, Settings)
    add_nats_options(serve)
    add_http_options(serve)
    serve.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    serving = read_options(ServeOptions, options)
    logging.basicConfig(
        stream=sys.stderr, level=serving.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    os.environ.setdefault("FASTMCP_LOG_ENABLED", "false")
    location = location_of(options.db)
    over_http = serving.transport == "http"
    if sys.stdin.isatty() and not over_http:
        _greet(location)
    if not _has_fastmcp():
        if not over_http:
            _refuse_initialize()
        raise ModuleNotFoundError(name="uvicorn" if over_http else "fastmcp")
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, publish_to_nats
    from holdlog.adapters.hooks.service import HookService
    from holdlog.adapters.mcp.salvage import longest_line
    from holdlog.adapters.mcp.server import build_server, chosen_groups, local_session
    from holdlog.adapters.mcp.stdio.serving import run_stdio

    _require_known_groups(serving.tools)
    groups = chosen_groups(serving.tools)
    given = ({"lease": LEASE_OVER_HTTP} if over_http else {}) | given_options(Settings, options)
    settings = Settings(**given, keeps=not over_http, workspaces=workspaces_of(options))
    nats = nats_options_of(options) if options.nats else None
    if over_http:
        return serve_http(options, location, settings, groups, serving.tool_prefix, nats)
    engine = open_holdlog(location, settings, session=local_session(), what="mcp stdio", report=print_note)
    engine.keep_sessions()
    engine.lease_maintenance.apply_retention()
    hooks = HookService(engine)
    background = publish_to_nats(engine, location, nats) if nats is not None else None

    async def end() -> None:
        if background is not None:
            background.stop()
        hooks.close()
        engine.close()

    run_stdio(build_server(engine, groups, serving.tool_prefix), end, longest_line(settings.max_value_bytes))
    return 0


def _has_fastmcp() -> bool:
    """Whether FastMCP is installed with its server, which fastmcp-slim leaves out."""
    try:
        from fastmcp import FastMCP  # noqa: F401
    except ImportError:
        return False
    return True


def _refuse_initialize() -> None:
    """Respond to the host's first request that the extra `mcp` is missing: hosts show this error, but few show standard
    error."""
    try:
        request = json.loads(sys.stdin.buffer.readline(_FIRST_REQUEST))["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    error = {"code": -32603, "message": f"holdlog: {missing('fastmcp')}"}  # JSON-RPC 2.0: internal error
    print(json.dumps({"jsonrpc": "2.0", "id": request, "error": error}), flush=True)


def _require_known_groups(tools: str) -> None:
    """Raise InvalidError for an unknown group; the message suggests the most similar one."""
    from holdlog.adapters.mcp.groups import ALIASES, GROUPS

    known = (*GROUPS, *ALIASES)
    for word in filter(None, (word.strip() for word in tools.split(","))):
        if word not in known:
            raise InvalidError(f"--tools: {word!r} is not one of {', '.join(known)}{did_you_mean(word, known)}")


def _greet(location: Path | str) -> None:
    """Print help for a user who typed `holdlog` in a terminal: what it is doing and what they may have wanted."""
    from holdlog.adapters.operating_system.presence import connected

    others = connected(location) if isinstance(location, Path) else []
    print(
        f"holdlog serves MCP on this terminal, with the store {without_password(location)}. Ctrl-C stops it.\n"
        f"Other connections: {', '.join(f'{it.what} (process {it.pid})' for it in others) or 'none'}.\n"
        "MCP hosts start this server themselves. In a terminal, try:\n"
        "  holdlog demo      see what it does, in ten seconds\n"
        "  holdlog claims    list claims and queues\n"
        "  holdlog --help    list all commands",
        file=sys.stderr,
    )
