"""`holdlog rebuild` and `holdlog doctor`, for people and scripts. They import what they need when they run."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TextIO

from holdlog.adapters.cli.existing_store import require_store
from holdlog.adapters.cli.init import CLIENTS
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import location_of, named_location
from holdlog.domain.refusals import InvalidError, StoreError

if TYPE_CHECKING:
    from holdlog.adapters.stores.event_log.findings import Finding

BAR_WIDTH: Final = 30
BAR_EVERY: Final = 0.1
"""Seconds between updates of a progress bar."""
_TO_END_OF_LINE: Final = "\x1b[K"
"""Erases what was there (ECMA-48)."""

_OF_DOCTOR: Final = """\
examples:
  holdlog doctor                                 check the store, holdlog.toml, and which worktrees are guarded
  holdlog doctor --db /backup/state.db --json
  holdlog doctor src/parser.py                   which rule of holdlog.toml applies to it, and why
  holdlog doctor src/ --json
  holdlog doctor --client claude-code            check what holdlog init set up, as the host sees it
  holdlog doctor --client codex --json
  holdlog doctor --client cursor --live-test     also ask your agent for an edit that must be denied

Exit codes: 0 sound; 1 the store is not sound; with PATH: holdlog.toml is wrong, committed or not; with --client: an
entry is missing, also in another worktree, the server does not start, or the host ran a denied edit; 2 bad arguments,
or PATH is not a file of a workspace.
"""
_MARKS: Final = {"ok": ("✓", "ok", "32"), "warn": ("!", "!", "33"), "bad": ("✗", "x", "31")}
"""Mark, mark for terminals that cannot show it, colour (ECMA-48)."""


def add_rebuild(commands: Commands, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "rebuild",
        parents=[shared],
        help="rebuild the views from the log",
        description="Rebuild the views from the log next to the current ones, then swap them. Servers keep working.",
        epilog="example:\n  holdlog rebuild --db postgresql://holdlog@db.example/holdlog",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_rebuild)


def add_doctor(commands: Commands, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "doctor",
        parents=[shared],
        help="check that the store is sound, and list connected processes",
        description="Check that the store is sound, list connected processes, say which holdlog.toml is in force, and"
        " list the worktrees and whether hooks guard them, once init has set up one."
        " With PATH or --client, it does not check the store. Servers keep working. It changes nothing, except that"
        " --client starts a server, which creates the store of this project if there is none, and"
        " --live-test claims a file in it for at most 5 minutes.",
        epilog=_OF_DOCTOR,
    )
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="show which rule of holdlog.toml applies to a file or folder, and why (default: check the store)",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON (default: text)")
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        metavar="NAME",
        help=f"check how a host is set up, and start its server: {', '.join(CLIENTS)} (default: check the store)",
    )
    parser.add_argument(
        "--live-test",
        action="store_true",
        help="with --client, in a terminal: hold a file while your agent tries to edit it, and report whether the host"
        " stopped it (default: no test)",
    )
    parser.set_defaults(run=run_doctor)


def run_rebuild(options: argparse.Namespace) -> int:
    """Run `holdlog rebuild`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_shadow_tables
    from holdlog.adapters.operating_system.location import without_password
    from holdlog.adapters.stores.event_log.rebuild import rebuild
    from holdlog.adapters.stores.event_log.snapshots import rebuild_snapshots
    from holdlog.adapters.stores.event_log.tree import rebuild_tree

    location = stored_location(options.db)
    require_store(location)
    store, shadow = open_shadow_tables(location, print_note)
    started = time.monotonic()
    with closing(store), Bar("rebuild") as bar:
        report = rebuild(shadow, bar.draw)
        snapshots = rebuild_snapshots(store)
        roots = rebuild_tree(store)
    seconds = time.monotonic() - started
    if options.json:
        facts = {**report._asdict(), "snapshots": snapshots, "roots": roots, "seconds": round(seconds, 3)}
        print_line(json.dumps({"store": without_password(location), **facts}))
        return 0
    rows = ", ".join(f"{count:,} in {view}" for view, count in report.rows.items())
    print_line(f"{mark('ok', sys.stdout)} {report.events:,} events in {seconds:.1f} s; rows: {rows}")
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Run `holdlog doctor`. Raises HoldlogError, LocationError."""
    if options.db is not None and (options.path is not None or options.client is not None):
        raise InvalidError("--db: cannot be combined with PATH or --client, which do not check a store")
    if options.path is not None:
        from holdlog.adapters.cli.doctor_path import examine_path

        if options.client is not None or options.live_test:
            raise InvalidError("PATH: cannot be combined with --client or --live-test")
        return examine_path(options.path, options.json)
    if options.client is not None:
        from holdlog.adapters.cli.setup.doctor import examine_client

        return examine_client(options.client, options.live_test, options.json)
    if options.live_test:
        raise InvalidError("--live-test: needs --client NAME")
    from holdlog.adapters.cli.doctor_path import gone_finding, project_finding
    from holdlog.adapters.cli.texts import NEXT_STEP
    from holdlog.adapters.compose import examine, store_exists
    from holdlog.adapters.operating_system.location import without_password
    from holdlog.adapters.stores.event_log.findings import Finding

    location = stored_location(options.db)
    if named_location(options.db) is None and not store_exists(location):  # a new repository
        findings = [Finding("file", "ok", f"there is no store yet; {NEXT_STEP}")]
    else:
        with Bar("doctor") as bar:
            findings = examine(location, bar.draw)
    if (gone := gone_finding(location)) is not None:
        findings.append(Finding("claims", *gone))
    if (policy := project_finding()) is not None:
        findings.append(Finding("policy", *policy))
    if options.db is None:
        from holdlog.adapters.cli.setup.doctor import project_findings

        findings += project_findings()
    sound = all(finding.level != "bad" for finding in findings)
    if options.json:
        rows = [finding._asdict() for finding in findings]
        print_line(json.dumps({"store": without_password(location), "sound": sound, "findings": rows}, indent=2))
    else:
        print_line(f"the store {without_password(location)}")
        for finding in findings:
            print_line(finding_line(finding))
    return 0 if sound else 1


class Bar:
    """A progress bar while a block runs, on a terminal; nothing elsewhere. `unit`: what it counts. `stream`: None:
    standard error. `clock`: in seconds."""

    def __init__(
        self,
        title: str,
        unit: str = "events",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream = sys.stderr if stream is None else stream
        self._title = title
        self._unit = unit
        self._clock = clock
        self._shown = stream.isatty()
        self._began = self._drawn = clock()
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def draw(self, done: int, total: int) -> None:
        now = self._clock()
        if not self._shown or now - self._drawn <= BAR_EVERY:
            return
        from holdlog.adapters.cli.texts import duration

        self._drawn, self._is_drawn = now, True
        filled = BAR_WIDTH * done // max(1, total)
        rate = done / (now - self._began)
        left = f", {duration((total - done) / rate)} left" if done else ""
        progress = f"{done:,} of {total:,} {self._unit}, {rate:,.0f}/s{left}"
        self._stream.write(f"\r{self._title} [{'#' * filled:<{BAR_WIDTH}}] {progress}{_TO_END_OF_LINE}")
        self._stream.flush()

    def clear(self) -> None:
        if self._is_drawn:
            self._stream.write(f"\r{_TO_END_OF_LINE}")
            self._stream.flush()


def stored_location(db: str | None) -> Path | str:
    location = location_of(db)
    if location == ":memory:":
        raise StoreError("a store in :memory: ends with its process; name a file or a database with --db")
    return location


def finding_line(finding: "Finding") -> str:
    from holdlog.adapters.cli.texts import printable

    return f"{mark(finding.level, sys.stdout)} {finding.name:<12} {printable(finding.text)}"


def mark(level: str, stream: TextIO) -> str:
    mark, plain, colour = _MARKS[level]
    try:
        mark.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        mark = f"{plain:<2}"
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[{colour}m{mark}\x1b[0m"
    return mark


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
