"""`holdlog serve`: MCP over standard input and output, or over HTTP. It must start fast: it imports when it runs."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.http import add_http_options, serve_http
from holdlog.adapters.cli.nats import add_nats_options, nats_options_of
from holdlog.adapters.cli.parsers import Commands, did_you_mean
from holdlog.adapters.cli.settings import (
    LEVELS,
    environment,
    lease_seconds,
    location_of,
    log_level,
    seconds,
    whole_bytes,
    whole_number,
    workspaces_of,
)
from holdlog.adapters.operating_system.location import without_password
from holdlog.domain.refusals import InvalidError

LEASE: Final = 300.0
LEASE_OVER_HTTP: Final = 1800.0
"""Seconds: over HTTP only calls keep a lease alive."""

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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "--tools",
        default=environment("TOOLS", "claims"),
        metavar="GROUPS",
        help="groups of tools, separated by commas: claims (= standard), state (= advanced), kv, threads, admin, all"
        " (default: claims)",
    )
    serve.add_argument(
        "--tool-prefix",
        default=os.environ.get("HOLDLOG_TOOL_PREFIX", "holdlog_"),
        metavar="TEXT",
        help="the first part of all tool names (default: holdlog_)",
    )
    serve.add_argument(
        "--lease-seconds",
        default=environment("LEASE_SECONDS", "") or None,
        type=lease_seconds,
        metavar="SECONDS",
        help="a claim expires this long after its last renewal (default: 300; over HTTP 1800)",
    )
    serve.add_argument(
        "--grace-seconds",
        default=environment("GRACE_SECONDS", "60"),
        type=seconds,
        metavar="SECONDS",
        help="claims expire this long after the server of their agent ended (default: 60)",
    )
    serve.add_argument(
        "--idle-limit",
        default=environment("IDLE_LIMIT", "1800"),
        type=lease_seconds,
        metavar="SECONDS",
        help="the server renews claims for this long after their agent's last call (default: 1800)",
    )
    serve.add_argument(
        "--max-claims",
        default=environment("MAX_CLAIMS", "64"),
        type=whole_number,
        metavar="N",
        help="the most claims that one session may hold or wait for (default: 64)",
    )
    serve.add_argument(
        "--max-wait",
        default=environment("MAX_WAIT", "50"),
        type=seconds,
        metavar="SECONDS",
        help="the longest wait of one call (default: 50; many hosts cancel calls after 60)",
    )
    serve.add_argument(
        "--max-value-bytes",
        default=environment("MAX_VALUE_BYTES", "262144"),
        type=whole_bytes,
        metavar="N",
        help="the largest value, in bytes of JSON (default: 262144)",
    )
    serve.add_argument(
        "--log-level",
        default=environment("LOG_LEVEL", "warning"),
        type=log_level,
        metavar="LEVEL",
        help=f"the least level that is logged on stderr: {', '.join(LEVELS)} (default: warning)",
    )
    add_nats_options(serve)
    add_http_options(serve)
    serve.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    os.environ.setdefault("FASTMCP_LOG_ENABLED", "false")
    location = location_of(options.db)
    over_http = options.transport == "http"
    if sys.stdin.isatty() and not over_http:
        _greet(location)
    from holdlog.adapters.api.request import Settings
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, publish_to_nats
    from holdlog.adapters.mcp.salvage import longest_line
    from holdlog.adapters.mcp.server import build_server, chosen_groups, local_session
    from holdlog.adapters.mcp.stdio.serving import run_stdio

    _require_known_groups(options.tools)
    groups = chosen_groups(options.tools)
    settings = Settings(
        max_value_bytes=options.max_value_bytes,
        max_wait=options.max_wait,
        lease=options.lease_seconds or (LEASE_OVER_HTTP if over_http else LEASE),
        grace=options.grace_seconds,
        idle_limit=options.idle_limit,
        max_claims=options.max_claims,
        keeps=not over_http,
        workspaces=workspaces_of(options),
    )
    nats = nats_options_of(options) if options.nats else None
    if over_http:
        return serve_http(options, location, settings, groups, nats)
    engine = open_holdlog(location, settings, session=local_session(), what="mcp stdio", report=print_note)
    engine.keep_sessions()
    background = publish_to_nats(engine, location, nats) if nats is not None else None

    async def end() -> None:
        if background is not None:
            background.stop()
        engine.close()

    run_stdio(build_server(engine, groups, options.tool_prefix), end, longest_line(options.max_value_bytes))
    return 0


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
