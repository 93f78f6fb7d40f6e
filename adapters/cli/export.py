"""`holdlog export`: all values with their histories, or the whole log, as JSON lines."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.existing_store import location_to_read, open_engine
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.store import Bar, stored_location
from holdlog.domain.refusals import InvalidError, StoreError, UnavailableError

if TYPE_CHECKING:
    from holdlog.domain.ports import Reader

_EXAMPLES: Final = """\
examples:
  holdlog export
  holdlog export campaign --include-deleted
  holdlog export --log --compress -o log.jsonl.gz
"""
_COMPRESSION: Final = 4
"""Level of gzip: half as large again as the slowest, at several times its speed."""


def add_export(commands: Commands, store: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "export",
        parents=[store],
        help="print all values with their histories, or the whole log, as JSON lines",
        description="Print all values of a namespace, or of all, as they were at one position of the log: one line of\n"
        "JSON for each key, with its whole history, newest first. Needs little memory, however large the store is.\n\n"
        "With --log: print every event of the log, from which holdlog import makes a store with the same positions,\n"
        "versions, digests and views. Each line is a CloudEvent. Contains all that agents wrote: keep it private.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys (default: all)")
    parser.add_argument("--include-deleted", action="store_true", help="also deleted and expired values (default: no)")
    parser.add_argument("--log", action="store_true", help="the whole log, for holdlog import (default: values)")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="a new file for --log (default: stdout)")
    parser.add_argument("--compress", action="store_true", help="compress --log with gzip (default: no)")
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    """Run `holdlog export`. Raises HoldlogError, LocationError."""
    if options.log:
        if options.namespace is not None or options.include_deleted:
            raise InvalidError("export: --log exports the whole log; omit NAMESPACE and --include-deleted")
        return _run_export_log(options)
    if options.out is not None or options.compress:
        raise InvalidError("export: --out and --compress require --log")
    return _run_export_values(options)


def _run_export_log(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.python.copying import export_log

    stored_location(options.db)  # refuses a store in memory
    location = location_to_read(options)
    with Bar("export") as bar, _output(options.out, options.compress) as write:
        events = export_log(location, write, bar.draw, print_note)
    if options.out is not None or sys.stderr.isatty():
        print_note(f"exported {events:,} events{'' if options.out is None else f' to {options.out}'}")
    return 0


@contextmanager
def _output(path: Path | None, compress: bool) -> Iterator[Callable[[bytes], object]]:
    """Where to write lines to: a new file, or standard output. Raises StoreError, UnavailableError, OSError."""
    from contextlib import ExitStack
    from gzip import GzipFile

    from holdlog.adapters.cli.texts import printable
    from holdlog.adapters.operating_system.private import new_private_file

    if path is None and sys.stdout.isatty():
        if compress:
            raise InvalidError("export: --compress does not print to a terminal; add -o FILE")
        yield lambda line: sys.stdout.write(printable(line.decode()))
        return
    try:
        with ExitStack() as stack:
            file = sys.stdout.buffer if path is None else stack.enter_context(new_private_file(path))
            if compress:
                yield stack.enter_context(GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION)).write
            else:
                yield file.write
    except FileExistsError:
        raise StoreError(f"there is already a file at {path}; name a new one") from None
    except OSError as error:
        if path is None:
            raise
        raise UnavailableError(f"{path} cannot be written ({error.strerror}); nothing was exported") from None


def _run_export_values(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli.texts import print_note, printable

    names = {"namespace": "NAMESPACE"}
    with open_engine(options, location_to_read(options), names) as engine, Bar("export", "values") as bar:
        parts = engine.requests.values.exported_text(options.namespace, options.include_deleted)
        with engine.store.snapshot() as reader:
            total, position, lines = _count(reader, options.namespace), reader.position(), 0
            for part in parts(reader):
                sys.stdout.write(printable(part) if sys.stdout.isatty() else part)
                if part.endswith("\n"):
                    lines += 1
                    bar.draw(lines, max(lines, total))
    sys.stdout.flush()
    if not lines:
        which = "" if options.namespace is None else " in this namespace; to list namespaces: holdlog list"
        print_note(f"there are no values{which}")
    elif sys.stderr.isatty():
        print_note(f"exported {lines:,} values at position {position:,}")
    return 0


def _count(reader: "Reader", namespace: str | None) -> int:
    """The number of values that are not deleted."""
    return sum(count for name, count in reader.namespaces(None, -1) if namespace in (None, name))
