"""`holdlog import`: an export of a log, or a file of agenthold, becomes a new store."""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.agenthold import run_import_agenthold
from holdlog.adapters.cli.copy import print_report
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import typed
from holdlog.adapters.cli.store import Bar, print_line, stored_location
from holdlog.adapters.operating_system.options import LEASE_SECONDS
from holdlog.domain.refusals import InvalidError

_EXAMPLES: Final = """\
examples:
  holdlog import log.jsonl --db state.db
  ssh host holdlog export --log --compress | holdlog import - --db state.db
  holdlog import --agenthold agenthold.db
  holdlog import --agenthold agenthold.db --claim-ttl 900 --db state.db
"""


def add_import(commands: Commands, store: argparse.ArgumentParser) -> None:
    """Add the command; `store` provides `--db`."""
    parser = commands.add_parser(
        "import",
        parents=[store],
        help="create a store from an exported log, or from a file of agenthold",
        description="Create a new store from what holdlog export --log printed: the same events, positions, versions"
        " and digests, and the views. Or from a file of agenthold: values with their histories, claims and agents. The"
        " file is not changed. Either everything is imported and verified, or no store is created. The new store gets a"
        " new store id.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="an export, compressed or not; - is standard input")
    parser.add_argument("--agenthold", type=Path, metavar="FILE", help="the database of agenthold 0.3 to 0.10")
    parser.add_argument(
        "--claim-ttl",
        type=typed(LEASE_SECONDS),
        metavar="SECONDS",
        help="the --claim-ttl of agenthold's server (default: none, so that held claims get 300 s here)",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    """Run `holdlog import`. Raises HoldlogError, LocationError."""
    if (options.file is None) == (options.agenthold is None):
        raise InvalidError("import: name one file: an exported log, or with --agenthold a file of agenthold")
    if options.agenthold is not None:
        return run_import_agenthold(options)
    if options.claim_ttl is not None:
        raise InvalidError("import: --claim-ttl requires --agenthold")
    return _run_import_log(options)


def _run_import_log(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli.texts import printable
    from holdlog.adapters.operating_system.location import without_password
    from holdlog.adapters.python.copying import import_log

    location = stored_location(options.db)
    bar = Bar(sys.stderr, "import")
    started = time.monotonic()
    try:
        is_input = options.file == "-"
        with open(0 if is_input else options.file, "rb", closefd=not is_input) as file:
            report = import_log(file, "standard input" if is_input else options.file, location, bar.draw)
    finally:
        bar.clear()
    print_report(report, "imported", options.json, time.monotonic() - started)
    if not options.json:
        print_line(printable(f"  the store is {without_password(location)}"))
    return 0
