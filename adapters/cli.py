"""The command line. Imports what a command needs inside that command: `holdlog serve` must start fast."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdlog.domain.refusals import HoldlogError

EXIT_USAGE = 2

EXAMPLES = """\
examples:
  holdlog                                 serve MCP over stdio on the store of this repository
  holdlog --tools claims,state            with the tools for shared values, too
  holdlog demo                            two agents, one budget, one minute
  holdlog doctor                          is the store sound, and who is connected?
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 when it found something wrong, 2 for bad settings."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser()
    if not any(word in _COMMANDS for word in given) and not {"-h", "--help", "--version"} & set(given):
        given.insert(0, "serve")
    options = parser.parse_args(given)
    try:
        code: int = options.run(options)
    except (HoldlogError, ValueError) as error:
        print(f"holdlog: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdlog",
        description="Shared, versioned state and claims for agents that work side by side.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        "--db", metavar="PATH", help="the store's file, or :memory: (default: that of the git repository; HOLDLOG_DB)"
    )
    _add_serve(commands, store)
    return parser


def place_of(db: str | None) -> Path | str:
    """What `--db`, the environment and the working folder name. Raises LocationError."""
    from holdlog.adapters.location import find_store

    explicit = db or os.environ.get("HOLDLOG_DB")
    if explicit is not None and (explicit == ":memory:" or "://" in explicit):
        return explicit
    return find_store(db, os.environ, Path.cwd())


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", store: argparse.ArgumentParser) -> None:
    serve = commands.add_parser("serve", parents=[store], help="serve MCP over stdio (the default)")
    serve.add_argument("--tools", default=_default("TOOLS", "claims"), metavar="GROUPS", help="claims, state, all …")
    serve.add_argument("--tool-prefix", default=_default("TOOL_PREFIX", "holdlog_"), metavar="TEXT")
    serve.add_argument("--max-wait", type=float, default=float(_default("MAX_WAIT", "50")), metavar="SECONDS")
    serve.add_argument(
        "--max-value-bytes", type=int, default=int(_default("MAX_VALUE_BYTES", str(256 * 1024))), metavar="N"
    )
    serve.add_argument(
        "--log-level",
        default=_default("LOG_LEVEL", "warning"),
        choices=("debug", "info", "warning", "error"),
    )
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    os.environ.setdefault("FASTMCP_LOG_ENABLED", "false")
    from holdlog.adapters.calls import Settings
    from holdlog.adapters.compose import open_holdlog
    from holdlog.adapters.mcp import build_server, chosen_groups, local_session
    from holdlog.adapters.stdio import run_stdio

    groups = chosen_groups(options.tools)
    settings = Settings(max_value_bytes=options.max_value_bytes, max_wait=options.max_wait)
    opened = open_holdlog(place_of(options.db), settings, session=local_session())

    async def end() -> None:
        opened.close()

    run_stdio(build_server(opened, groups, options.tool_prefix), end)


def _default(name: str, fallback: str) -> str:
    return os.environ.get(f"HOLDLOG_{name}") or fallback


_COMMANDS = frozenset({"serve"})
