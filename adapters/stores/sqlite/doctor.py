"""Diagnosis of a store file. Reads one snapshot while servers use the store, and repairs nothing."""

import errno
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system import platform as host
from holdlog.adapters.operating_system.location import LocationError, explain, is_there, shown
from holdlog.adapters.operating_system.presence import connected
from holdlog.adapters.operating_system.private import require_own, why_open
from holdlog.adapters.stores.event_log.findings import REBUILD_LEFT, Finding, checks_of, contents, counted
from holdlog.adapters.stores.sqlite.database import file_id, size_of
from holdlog.adapters.stores.sqlite.faults import code_of, is_damage
from holdlog.adapters.stores.sqlite.inspection import SqliteInspection, any_text
from holdlog.adapters.stores.sqlite.opening import require_ours, why_read_only
from holdlog.adapters.stores.sqlite.read_only import connect_to_read
from holdlog.adapters.stores.sqlite.schema import MAJOR, MINOR, MINORS_PER_MAJOR, version_of
from holdlog.adapters.stores.sqlite.shadow_tables import left_over
from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError

MAX_PROBLEMS: Final = 3


def examine(
    path: Path,
    progress: Progress = ignore_progress,
    checkpoints: Sequence[Checkpoint] = (),
) -> list[Finding]:
    """Report all findings about the store `path`; `progress` counts events. Never raises for what it finds."""
    try:
        if not is_there(path):
            return [Finding("file", "bad", f"there is no store at {shown(path)}")]
    except LocationError as error:
        return [Finding("file", "bad", str(error))]
    findings = [_sqlite(sqlite3.sqlite_version_info), *_location(path)]
    try:
        with closing(_connect(path)) as connection:
            require_ours(path, connection)
            # From here on, all reads see one moment.
            connection.execute("BEGIN")
            findings += _schema(connection)
            inspection = SqliteInspection(connection)
            findings += _guarded("contents", lambda: contents(inspection, size_of(path), host.now()))
            findings += _guarded("integrity", lambda: [_integrity(connection)])
            if version_of(connection) < MAJOR * MINORS_PER_MAJOR + MINOR:  # an older minor has other views
                findings.append(Finding("log", "warn", "not checked: its schema is older"))
            else:
                for name, check in checks_of(inspection, progress, checkpoints).items():
                    findings += _guarded(name, check)
    except StoreError as error:
        findings.append(Finding("file", "bad", str(error)))
    except sqlite3.Error as error:
        is_refused = code_of(error) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        why = explain(path, "read", PermissionError(errno.EACCES, str(error)))
        findings.append(Finding("file", "bad", why if is_refused else f"{shown(path)} cannot be read: {error}"))
    return [*findings, _connected(path)]


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite may lose commits when two connections write at one instant:
    https://www.sqlite.org/wal.html#walresetbug."""
    if version[:2] in ((3, 44), (3, 50)):
        return version < ((3, 44, 6) if version[1] == 44 else (3, 50, 7))
    return (3, 7, 0) <= version < (3, 51, 3)


def _sqlite(version: tuple[int, ...]) -> Finding:
    number = ".".join(map(str, version[:3]))
    if not has_wal_reset_bug(version):
        return Finding("sqlite", "ok", f"SQLite {number}")
    return Finding(
        "sqlite",
        "warn",
        f"SQLite {number} has the WAL-reset bug (fixed in 3.51.3, 3.50.7, 3.44.6); holdlog's write lock prevents it,"
        " unless another program writes to the file",
    )


def _location(path: Path) -> Iterator[Finding]:
    kind = host.file_system(path)
    if host.is_network(kind):
        yield Finding(
            "file system",
            "bad",
            f"{kind} is a network file system, where SQLite's WAL corrupts; move the store to a local disk",
        )
    else:
        yield Finding("file system", "ok", kind or "of unknown type")
    if sys.platform == "win32":
        return
    yield _permissions(path)


def _permissions(path: Path) -> Finding:
    try:
        require_own(path)
    except StoreError as error:
        return Finding("permissions", "bad", str(error))
    if (exposed := why_open(path)) is not None:
        return Finding("permissions", "bad", str(exposed))
    if (why := why_read_only(path)) is not None:
        return Finding("permissions", "warn", f"reads work here, writes are refused: {why}")
    mode = stat.S_IMODE(os.stat(path.parent).st_mode)
    if mode & 0o077:
        text = f"only the owner can access the files; other users can access the folder {shown(path.parent.name)}"
        return Finding("permissions", "warn", f"{text} ({mode:04o}, not 0700)")
    return Finding("permissions", "ok", "only the owner can access the files")


def _connect(path: Path) -> sqlite3.Connection:
    # Read-only: closing such a connection writes nothing, so it needs no write lock.
    connection = connect_to_read(path, 5.0)
    connection.text_factory = any_text
    return connection


def _schema(connection: sqlite3.Connection) -> Iterator[Finding]:
    version = version_of(connection)
    number = f"{version // MINORS_PER_MAJOR}.{version % MINORS_PER_MAJOR}"
    if version > MAJOR * MINORS_PER_MAJOR + MINOR:
        yield Finding(
            "schema",
            "warn",
            f"{number} is newer than this holdlog ({MAJOR}.{MINOR}), which cannot check everything; upgrade holdlog",
        )
    elif version // MINORS_PER_MAJOR < MAJOR:
        yield Finding(
            "schema",
            "warn",
            f"{number} is older; the next program that opens the store migrates it to {MAJOR}, after a backup",
        )
    elif version < MAJOR * MINORS_PER_MAJOR + MINOR:
        yield Finding(
            "schema", "warn", f"{number} is older; the next program that opens the store updates it to {MAJOR}.{MINOR}"
        )
    else:
        yield Finding("schema", "ok", number)
    if left_over(connection):
        yield REBUILD_LEFT


def _integrity(connection: sqlite3.Connection) -> Finding:
    problems = [row[0] for row in connection.execute(f"PRAGMA quick_check({MAX_PROBLEMS})")]
    if problems == ["ok"]:
        return Finding("integrity", "ok", "SQLite finds no damage in the file")
    return Finding("integrity", "bad", "; ".join(shown(line) for line in problems))


def _guarded(name: str, inspection: Callable[[], list[Finding]]) -> list[Finding]:
    """Run one check; damage to the file ends that check only. A failed read is repeated once."""
    try:
        try:
            return inspection()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            return inspection()
    except sqlite3.Error as error:
        return [Finding(name, "bad", f"cannot be read: {error}")]


def _connected(path: Path) -> Finding:
    processes = connected(path)
    current = file_id(path)
    if stale := [it for it in processes if it.file not in ("", current)]:
        names = "; ".join(f"{shown(it.what)}, process {it.pid}" for it in stale)
        text = f"the file was replaced, and {counted(len(stale), 'server')} with the old one open; restart: {names}"
        return Finding("connected", "bad", text)
    servers = [f"{shown(it.what)}, process {it.pid}, since {shown(it.started)}" for it in processes]
    text = counted(len(servers), "server") + (f": {'; '.join(servers)}" if servers else "")
    return Finding("connected", "ok", text)
