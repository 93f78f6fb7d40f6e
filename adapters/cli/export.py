"""`holdlog export`: all values with their histories, as JSON lines."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, named_location
from holdlog.adapters.cli.store import Bar
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.domain.ports import Reader

_EXAMPLES: Final = """\
examples:
  holdlog export
  holdlog export campaign --include-deleted
"""


def add_export(commands: Commands, store: argparse.ArgumentParser) -> None:
    """Add the command; `store` provides `--db`."""
    parser = commands.add_parser(
        "export",
        parents=[store],
        help="print all values with their histories, as JSON lines",
        description="Print all values of a namespace, or of all, as they were at one position of the log: one line of\n"
        "JSON for each key, with its whole history, newest first. Needs little memory, however large the store is.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys (default: all)")
    parser.add_argument("--include-deleted", action="store_true", help="also deleted and expired values (default: no)")
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    """Run `holdlog export`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import no_store, print_note, printable
    from holdlog.adapters.compose import open_holdlog, store_exists

    location = location_of(options.db)
    if not store_exists(location):
        return no_store(location, expected=named_location(options.db) is not None)
    engine = open_holdlog(location, what="holdlog export", report=print_note)
    bar = Bar(sys.stderr, "export", "values")
    try:
        parts = engine.requests.values.exported_text(options.namespace, options.include_deleted)
        with engine.store.snapshot() as reader:
            total, position, lines = _count(reader, options.namespace), reader.position(), 0
            for part in parts(reader):
                sys.stdout.write(printable(part) if sys.stdout.isatty() else part)
                if part.endswith("\n"):
                    lines += 1
                    bar.draw(lines, max(lines, total))
    except InvalidError as error:
        raise InvalidError(as_option(str(error), {"namespace": "NAMESPACE"})) from None
    finally:
        bar.clear()
        engine.close()
    sys.stdout.flush()
    if sys.stderr.isatty():
        print_note(f"exported {lines:,} values at position {position:,}")
    return 0


def _count(reader: "Reader", namespace: str | None) -> int:
    """The number of values that are not deleted."""
    return sum(count for name, count in reader.namespaces(None, -1) if namespace in (None, name))
