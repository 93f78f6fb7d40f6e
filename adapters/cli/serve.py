"""`holdlog serve`: MCP over standard input and output, or over HTTP."""

import sys
from importlib import import_module

from holdlog import __version__
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.settings import REPEATABLE, RULES, Settings, name_option, read_settings
from holdlog.adapters.operating_system.location import mask_password

EXAMPLES = (
    "serve --tools claims,state",
    "serve --transport http --port 8420",
    "serve --db 'postgresql://ann@db.example/team' --nats nats://127.0.0.1:4222",
)


def run(words: list[str]) -> int:
    parser = Parser(
        "serve",
        "Serve MCP over stdio, or MCP and the REST API over HTTP. holdlog without a command does the same.\n"
        "Each option is also an environment variable, for example HOLDLOG_TOOLS or HOLDLOG_DB.",
        EXAMPLES,
        has_json=False,
    )
    parser.add_argument("--version", action="version", version=f"holdlog {__version__}", help="print the version")
    defaults = Settings._field_defaults
    for setting, rule in RULES.items():
        default = defaults[setting]
        text = ",".join(default) if isinstance(default, tuple) else default
        shown = "" if text in ("", None) else f" (default: {text})"
        action = "append" if setting in REPEATABLE else "store"
        parser.add_argument(name_option(setting), metavar=rule.metavar, action=action, help=f"{rule.help}{shown}")
    settings = read_settings(vars(parser.parse_args(words)))
    if settings.transport == "stdio" and sys.stdin.isatty():
        _greet(settings.db)
    module = "mcp.stdio" if settings.transport == "stdio" else "http.server"
    return int(import_module(f"holdlog.adapters.{module}").serve(settings) or 0)


def _greet(place: str) -> None:
    """Help a user who typed `holdlog` in a terminal: what it does, and what they may have wanted."""
    print(
        f"holdlog serves MCP on this terminal, with the store {mask_password(place)}. Ctrl-C stops it.\n"
        "MCP hosts start this server themselves. In a terminal, try:\n"
        "  holdlog demo      see what it does, in ten seconds\n"
        "  holdlog claims    list claims and queues\n"
        "  holdlog --help    list all commands",
        file=sys.stderr,
        flush=True,
    )
