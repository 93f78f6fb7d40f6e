"""`holdlog backup` and `holdlog restore`, for people and scripts. They import what they need when they run."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdlog.adapters.cli.existing_store import require_store
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.store import Bar, mark, print_line, stored_location
from holdlog.domain.refusals import StoreError

if TYPE_CHECKING:
    from holdlog.adapters.stores.sqlite.restore import RestoreReport


def add_backup(commands: Commands, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "backup",
        parents=[shared],
        help="back up a store file to a folder, and remove old backups",
        description="Back up a store file to a folder, as one file that is verified. Servers keep working. Then remove"
        " the oldest backups of the same store in that folder. For PostgreSQL use pg_dump (docs/duty.md).",
        epilog="example:\n  holdlog backup /backup/holdlog --keep 14",
    )
    parser.add_argument("folder", metavar="DIR", help="an existing folder, best on another disk")
    parser.add_argument("--keep", type=_count, default=7, metavar="N", help="keep the newest N backups (default: 7)")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_backup)


def add_restore(commands: Commands, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "restore",
        parents=[shared],
        help="replace a store file by a backup, and keep the replaced file",
        description="Verify a backup and put it in the place of a store file, which is kept under another name. Prints"
        " how many events the backup does not have. Stop all processes of the store first.",
        epilog="example:\n  holdlog restore /backup/holdlog/holdlog-1f6c2a90-20261125T140300Z-1234.backup",
    )
    parser.add_argument("backup", metavar="BACKUP", help="a file that holdlog backup made")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_restore)


def run_backup(options: argparse.Namespace) -> int:
    """Run `holdlog backup`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import printable
    from holdlog.adapters.stores.sqlite.backup import back_up

    path = _file(options)
    require_store(path)
    with Bar("backup", "pages") as bar:
        report = back_up(path, Path(options.folder).expanduser(), options.keep, bar.draw)
    if options.json:
        print_line(json.dumps(report._asdict()))
        return 0
    print_line(f"{mark('ok', sys.stdout)} {printable(report.backup, kept='')}")
    print_line(f"  up to position {report.position:,}, {report.bytes / 1e6:,.1f} MB; SQLite finds no damage in it")
    for name in report.removed:
        print_line(f"  removed {printable(name, kept='')}")
    return 0


def run_restore(options: argparse.Namespace) -> int:
    """Run `holdlog restore`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.stores.sqlite.restore import restore

    with Bar("restore", "steps") as bar:
        report = restore(_file(options), Path(options.backup).expanduser(), bar.draw)
    if options.json:
        print_line(json.dumps({**report._asdict(), "lost": report.lost._asdict()}))
    else:
        _show(report)
    return 0


def _show(report: "RestoreReport") -> None:
    from holdlog.adapters.cli.texts import positions, printable
    from holdlog.adapters.stores.event_log.findings import counted

    checked = "opens; its older schema was not verified further" if report.unchecked else "verified with all digests"
    print_line(f"{mark('ok', sys.stdout)} restored up to position {report.position:,}, {checked}")
    if report.kept is None:
        return
    print_line(printable(f"  the replaced store is kept as {report.kept}"))
    if not report.same_store:
        print_line("  it was another store, with another id")
    if report.lost.first is None or report.lost.last is None:
        print_line("  it has no events that the backup lacks")
        return
    where = positions(report.lost.first, report.lost.last)
    print_line(
        f"{mark('warn', sys.stdout)} lost: {counted(report.lost.events, 'event')} that the backup lacks, {where}"
    )
    if report.same_store:
        these = "it" if report.lost.events == 1 else "them"
        kept = shlex.quote(str(report.kept))
        print_line(printable(f"  to see {these}: holdlog --db {kept} log --after {report.lost.first - 1}"))


def _file(options: argparse.Namespace) -> Path:
    location = stored_location(options.db)
    if isinstance(location, Path):
        from holdlog.adapters.compose import file_of

        return file_of(location)
    raise StoreError(
        f"{options.command} is for files; for PostgreSQL use pg_dump and pg_restore, or point-in-time recovery"
        " (docs/duty.md)"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text[:9]) >= 1 or len(text) > 9:
        raise argparse.ArgumentTypeError("must be a number from 1")
    return int(text)
