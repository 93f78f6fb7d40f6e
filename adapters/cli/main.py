"""The command line: parsers, and `serve`. Imports what a command needs inside it: `holdlog serve` must start fast."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from holdlog.adapters.cli.commands import Parsers, add_calls
from holdlog.adapters.cli.nats import add_nats_options, add_relay, add_subscribe, nats_options_of
from holdlog.adapters.cli.store import add_doctor, add_rebuild
from holdlog.adapters.demo.command import add_demo
from holdlog.adapters.machine.location import LocationError, find_store, without_password
from holdlog.domain.refusals import HoldlogError

if TYPE_CHECKING:
    from holdlog.adapters.machine.workspaces import Workspaces

BAD_SETTINGS: Final = 2
INTERRUPTED: Final = 130
LONGEST_WAIT: Final = 3600.0
"""Seconds; a host gives up long before."""
LONGEST_LEASE: Final = 86_400.0
"""Seconds; a day."""
MOST_CLAIMS: Final = 1_000_000
LARGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes; every reader of a key gets the whole value."""

_LEVELS: Final = ("debug", "info", "warning", "error")

_ANSWERED_AT_ONCE: Final = frozenset({"-h", "--help", "--version"})
"""The only options before a command that take no value."""

_EXAMPLES: Final = """\
examples:
  holdlog                                       serve MCP over stdio, on the store of this repository
  holdlog --tools claims,state                  the same with the tools for shared values
  holdlog demo                                  two agents, one budget, ten seconds
  holdlog claims                                who holds what
  holdlog set order-1 status '"paid"' --version 0
  holdlog history order-1 status
  holdlog doctor                                is the store sound, and who is connected?

Each option of serve can stand in the environment: HOLDLOG_DB, HOLDLOG_TOOLS, HOLDLOG_TOOL_PREFIX …
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: it found something wrong or was refused; 2: bad settings, told in one line."""
    try:
        try:
            options = parsed(sys.argv[1:] if arguments is None else arguments)
            code: int = options.run(options)
        finally:
            print(end="", flush=True)  # a full disk shows here, not when the interpreter ends
    except (HoldlogError, LocationError) as error:
        _complain(error)
        return BAD_SETTINGS
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        _complain(error)
        return 1
    return code


def _complain(error: Exception) -> None:
    from holdlog.adapters.cli.texts import tell

    tell(str(error))


def _discard_output() -> None:
    """What is still buffered would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command, `serve` where none is named. Ends the process when there is nothing to run."""
    parser, commands = build_parser()
    given = list(arguments)
    command = _command(given)
    if command is not None and command not in commands:
        parser.error(f"there is no command {command!r}")
    misplaced = _options_before(command, given)
    if misplaced:
        parser.error(f"{misplaced[0]}: only --db may stand before a command")
    if command is None and not _ANSWERED_AT_ONCE.intersection(given):
        given.insert(0, "serve")
    return parser.parse_args(given)


def _command(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor the value of one, which may well be a command's name."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if "=" not in word and word not in _ANSWERED_AT_ONCE:
            next(rest, None)
    return None


def _options_before(command: str | None, words: Sequence[str]) -> list[str]:
    """What stands before the command and is no option there."""
    before = words[: words.index(command)] if command is not None else ()
    named = [word.partition("=")[0] for word in before if word.startswith("-")]
    return [name for name in named if name != "--db" and name not in _ANSWERED_AT_ONCE]


def build_parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """The parser of everything, and the names of its commands."""
    parser = _Parser(
        prog="holdlog",
        description="Shared, versioned state and claims for agents that work side by side.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    where = "the store's file, or :memory: (default: that of the git repository; see docs/store.md)"
    parser.add_argument("--db", metavar="PATH", help=where)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--db", default=argparse.SUPPRESS, metavar="PATH", help=where)
    places = argparse.ArgumentParser(add_help=False)
    places.add_argument(
        "--workspace",
        action="append",
        default=_environment("WORKSPACE", "").split(",") if _environment("WORKSPACE", "") else [],
        metavar="NAME=PATH",
        help="a folder whose paths are file://NAME/…; repeatable (default: the worktrees of the git repository)",
    )
    places.add_argument(
        "--claims-across-worktrees",
        action="store_true",
        default=_environment("CLAIMS_ACROSS_WORKTREES", "").lower() in ("1", "true", "yes"),
        help="one path is one claim in all worktrees of the repository",
    )
    commands: Parsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    _add_serve(commands, store, places)
    add_calls(commands, store, places)
    add_rebuild(commands, store)
    add_doctor(commands, store)
    add_relay(commands, store)
    add_subscribe(commands, store)
    add_demo(commands)
    return parser, frozenset(commands.choices)


def place_of(db: str | None) -> Path | str:
    """What `--db`, else the environment, else the working folder names. Raises LocationError."""
    explicit = db if db is not None else os.environ.get("HOLDLOG_DB")
    if explicit is not None and (explicit == ":memory:" or "://" in explicit):
        return explicit
    return find_store(db, os.environ, Path.cwd())


def workspaces_of(options: argparse.Namespace) -> "Workspaces":
    """Raises LocationError, InvalidError."""
    from holdlog.adapters.machine.workspaces import find_workspaces

    return find_workspaces(os.environ, Path.cwd(), options.workspace, options.claims_across_worktrees)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line; the usage is a `--help` away."""
        self.exit(BAD_SETTINGS, f"{self.prog}: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"holdlog {version('holdlog')}")
        parser.exit()


def _add_serve(commands: Parsers, store: argparse.ArgumentParser, places: argparse.ArgumentParser) -> None:
    serve = commands.add_parser(
        "serve", parents=[store, places], help="serve MCP over stdio (what holdlog does without a command)"
    )
    serve.add_argument(
        "--tools",
        default=_environment("TOOLS", "claims"),
        metavar="GROUPS",
        help="groups with commas: claims (= standard), state (= advanced), admin, all (default: claims)",
    )
    serve.add_argument(
        "--tool-prefix",
        default=os.environ.get("HOLDLOG_TOOL_PREFIX", "holdlog_"),
        metavar="TEXT",
        help="start of every tool's name (default: holdlog_)",
    )
    serve.add_argument(
        "--lease-seconds",
        default=_environment("LEASE_SECONDS", "300"),
        type=lease_seconds,
        metavar="SECONDS",
        help="how long a claim lasts without a word from its agent (default: 300)",
    )
    serve.add_argument(
        "--grace-seconds",
        default=_environment("GRACE_SECONDS", "60"),
        type=seconds,
        metavar="SECONDS",
        help="what is left of its claims when an agent's server has ended (default: 60)",
    )
    serve.add_argument(
        "--idle-limit",
        default=_environment("IDLE_LIMIT", "1800"),
        type=lease_seconds,
        metavar="SECONDS",
        help="how long after an agent's last call its claims are still renewed (default: 1800)",
    )
    serve.add_argument(
        "--max-claims",
        default=_environment("MAX_CLAIMS", "64"),
        type=whole_number,
        metavar="N",
        help="claims that one agent may hold (default: 64)",
    )
    serve.add_argument(
        "--max-wait",
        default=_environment("MAX_WAIT", "50"),
        type=seconds,
        metavar="SECONDS",
        help="longest wait of one call (default: 50; many hosts cut calls at 60)",
    )
    serve.add_argument(
        "--max-value-bytes",
        default=_environment("MAX_VALUE_BYTES", "262144"),
        type=whole_bytes,
        metavar="N",
        help="largest value, as JSON (default: 262144)",
    )
    serve.add_argument(
        "--log-level",
        default=_environment("LOG_LEVEL", "warning"),
        type=log_level,
        metavar="LEVEL",
        help=f"what is logged on stderr: {', '.join(_LEVELS)} (default: warning)",
    )
    add_nats_options(serve)
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    os.environ.setdefault("FASTMCP_LOG_ENABLED", "false")
    place = place_of(options.db)
    if sys.stdin.isatty():
        _greet(place)
    from holdlog.adapters.call import Settings
    from holdlog.adapters.cli.texts import tell
    from holdlog.adapters.compose import open_holdlog, tell_nats
    from holdlog.adapters.mcp.server import build_server, chosen_groups, local_session
    from holdlog.adapters.mcp.stdio import run_stdio

    groups = chosen_groups(options.tools)
    settings = Settings(
        max_value_bytes=options.max_value_bytes,
        max_wait=options.max_wait,
        lease=options.lease_seconds,
        grace=options.grace_seconds,
        idle_limit=options.idle_limit,
        max_claims=options.max_claims,
        workspaces=workspaces_of(options),
    )
    nats = nats_options_of(options) if options.nats else None
    opened = open_holdlog(place, settings, session=local_session(), what="mcp stdio", tell=tell)
    opened.keep_sessions()
    beside = tell_nats(opened, place, nats) if nats is not None else None

    async def end() -> None:
        if beside is not None:
            beside.stop()
        opened.close()

    run_stdio(build_server(opened, groups, options.tool_prefix), end)


def _greet(place: Path | str) -> None:
    """Somebody typed `holdlog` in a terminal: say what it is doing and what they may have wanted."""
    from holdlog.adapters.machine.presence import connected

    others = connected(place) if isinstance(place, Path) else []
    print(
        f"holdlog serves MCP on this terminal for the store {without_password(place)}; Ctrl-C ends it.\n"
        f"Connected besides: {', '.join(f'{it.what} (process {it.pid})' for it in others) or 'nobody'}.\n"
        "An MCP host starts it by itself. You may have wanted:\n"
        "  holdlog demo      see what it does, in ten seconds\n"
        "  holdlog claims    who holds what now\n"
        "  holdlog --help    everything else",
        file=sys.stderr,
    )


def seconds(text: str) -> float:
    return _read(text, float, lambda it: 0 < it <= LONGEST_WAIT, f"more than 0 and at most {LONGEST_WAIT:.0f} seconds")


def lease_seconds(text: str) -> float:
    return _read(text, float, lambda it: 1 <= it <= LONGEST_LEASE, f"from 1 to {LONGEST_LEASE:.0f} seconds")


def whole_number(text: str) -> int:
    return _read(text, int, lambda it: 0 < it <= MOST_CLAIMS, f"a whole number from 1 to {MOST_CLAIMS}")


def whole_bytes(text: str) -> int:
    return _read(text, int, lambda it: 0 < it <= LARGEST_VALUE, f"a whole number of bytes from 1 to {LARGEST_VALUE}")


def log_level(text: str) -> str:
    return _read(text, str.lower, _LEVELS.__contains__, f"one of {', '.join(_LEVELS)}")


class _FromEnvironment(str):
    """The text of a setting, with the variable that it stands in."""

    __slots__ = ("variable",)
    variable: str


def _environment(name: str, fallback: str) -> str:
    text = os.environ.get(f"HOLDLOG_{name}")
    if not text:
        return fallback
    setting = _FromEnvironment(text)
    setting.variable = f"HOLDLOG_{name}"
    return setting


Read = TypeVar("Read")


def _read(text: str, read: Callable[[str], Read], is_good: Callable[[Read], bool], rule: str) -> Read:
    with suppress(ValueError):
        if is_good(given := read(text)):
            return given
    where = f" (in {text.variable})" if isinstance(text, _FromEnvironment) else ""
    raise argparse.ArgumentTypeError(f"must be {rule}{where}")
