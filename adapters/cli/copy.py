"""`holdlog copy`, for people and for scripts. Imports what it needs when it runs."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.store import Bar, mark, print_line
from holdlog.domain.refusals import StoreError

if TYPE_CHECKING:
    from holdlog.adapters.stores.copying.copy import CopyReport

_EXAMPLES = """\
examples:
  holdlog copy .git/holdlog/state.db backup.db
  holdlog copy --seal .git/holdlog/state.db 'postgresql://holdlog@db.example/team?schema=project'
  holdlog copy --seal 'postgresql://holdlog@db.example/team?schema=project' state.db

URLs need no password if PGPASSWORD or ~/.pgpass has it. docs/store.md describes copies.
"""


def add_copy(commands: Commands) -> None:
    parser = commands.add_parser(
        "copy",
        help="copy a store to another file or database, or move it there",
        description="Copy a store to another file or database. The copy contains the whole log with its positions,"
        " versions and digests, the views, the claims with the time that remains, and the responses to repeated"
        " requests. Servers of FROM keep working. TO must not exist yet. The copy gets a new store id. With --seal"
        " the store moves: FROM refuses further writes, and the copy keeps its id. After a failure, run the same"
        " command again: it starts over. If a sealed store was already copied there, it only verifies the copy.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("source", metavar="FROM", help="the store to copy: a file, or postgresql://…?schema=…")
    parser.add_argument("target", metavar="TO", help="a new file, or postgresql://…?schema=… of a new schema")
    parser.add_argument(
        "--seal",
        action="store_true",
        help="seal FROM first, permanently, and keep its store id (default: leave FROM as it is)",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_copy)


def run_copy(options: argparse.Namespace) -> int:
    """Run `holdlog copy`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.python.copying import copy

    if getattr(options, "db", None) is not None:
        raise StoreError("copy: --db does not apply; name the two stores as FROM and TO")
    source, target = _location(options.source), _location(options.target)
    started = time.monotonic()
    with Bar("copy") as bar:

        def note(line: str) -> None:
            bar.clear()
            print_note(line)

        report = copy(source, target, options.seal, bar.draw, note)
    print_report(report, "copied", options.json, time.monotonic() - started)
    return 0


def print_report(report: "CopyReport", what: str, as_json: bool, seconds: float) -> None:
    """Print the outcome. `what`: copied, or imported."""
    from holdlog.adapters.cli.texts import printable

    if as_json:
        print_line(json.dumps({**report._asdict(), "verified": True, "seconds": round(seconds, 3)}))
        return
    result = "were copied before" if report.already else f"{what} in {seconds:.1f} s"
    store_id = f"same store id {report.store_id}" if report.kept_id else f"new store id {report.store_id}"
    line = f"{report.events:,} events {result}, last position {report.position:,}, verified; {store_id}"
    print_line(f"{mark('ok', sys.stdout)} {line}")
    if report.kept_id:
        print_line(printable(f"  {report.source} is sealed; use {report.target} from now on"))


def _location(text: str) -> Path | str:
    from holdlog.adapters.cli.settings import location_of

    return location_of(text)
