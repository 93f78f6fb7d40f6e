"""`holdlog import`: an export of a log, or a file of agenthold, becomes a new store."""

import argparse
import time
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.agenthold import import_agenthold_file
from holdlog.adapters.cli.copy import print_report
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import typed
from holdlog.adapters.cli.store import Bar, print_line, stored_location
from holdlog.adapters.operating_system.options import LEASE_SECONDS
from holdlog.domain.refusals import InvalidError, StoreError

_EXAMPLES: Final = """\
examples:
  holdlog import log.jsonl --db state.db
  ssh host holdlog export --log --compress | holdlog import - --db state.db
  holdlog import --agenthold agenthold.db
  holdlog import --agenthold agenthold.db --claim-ttl 900 --db state.db
"""


def add_import(commands: Commands, store: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "import",
        parents=[store],
        help="create a store from an exported log, or from a file of agenthold",
        description="Create a new store from what holdlog export --log printed: the same events with their positions,"
        " versions and digests, and the views. It is another store, with a new store id, and its next event names the"
        " exported one. Claims last for 60 s more. Or create it from a file of agenthold: values with their histories,"
        " claims and agents. Either everything is imported and verified, or no store is created.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="an export, compressed or not; - is standard input")
    parser.add_argument(
        "--agenthold",
        type=Path,
        metavar="FILE",
        help="import the database of agenthold 0.3 to 0.10 instead (default: none)",
    )
    parser.add_argument(
        "--claim-ttl",
        type=typed(LEASE_SECONDS),
        metavar="SECONDS",
        help="the --claim-ttl of agenthold's server (default: none, so that held claims get 300 s here)",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    """Run `holdlog import`. Raises HoldlogError, LocationError, OSError."""
    from holdlog.adapters.compose import store_exists
    from holdlog.adapters.operating_system.location import without_password

    if (options.file is None) == (options.agenthold is None):
        raise InvalidError("import: name one file: an exported log, or with --agenthold a file of agenthold")
    if options.claim_ttl is not None and options.agenthold is None:
        raise InvalidError("import: --claim-ttl requires --agenthold")
    location = stored_location(options.db)
    if store_exists(location):
        raise StoreError(
            f"there is already a store at {without_password(location)}; import into a new one with --db PATH or URL"
        )
    if options.agenthold is not None:
        import_agenthold_file(options, location)
    else:
        _import_log(options, location)
    return 0


def _import_log(options: argparse.Namespace, location: Path | str) -> None:
    from holdlog.adapters.cli.texts import printable
    from holdlog.adapters.python.copying import import_log

    is_input = options.file == "-"
    name = "standard input" if is_input else options.file
    try:
        file = open(0 if is_input else name, "rb", closefd=not is_input)  # noqa: SIM115  # closed by the block below
    except OSError as error:
        raise StoreError(f"{name} cannot be read ({error.strerror}); check the path") from None
    started = time.monotonic()
    with file, Bar("import") as bar:
        report = import_log(file, name, location, bar.draw)
    print_report(report, "imported", options.json, time.monotonic() - started)
    if not options.json:
        print_line(printable(f"  the store is {report.target}"))
