"""Is a store sound? Looks at one snapshot, beside servers that use it, and mends nothing."""

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, NamedTuple

from holdlog.adapters.machine import host
from holdlog.adapters.machine.gate import describe_process
from holdlog.adapters.machine.location import shown
from holdlog.adapters.machine.presence import connected
from holdlog.adapters.stores.audit import Audit, Faults, any_text
from holdlog.adapters.stores.migrating import is_older
from holdlog.adapters.stores.opening import require_ours
from holdlog.adapters.stores.rebuilding import left_over
from holdlog.adapters.stores.schema import MAJOR, MINOR, MINORS_PER_MAJOR, select_from
from holdlog.domain.refusals import StoreError
from holdlog.projections.claims import CLAIMS, claim_of

Level = Literal["ok", "warn", "bad"]

SHM_OPEN_LOCK: Final = 128
"""Byte of the -shm file that every process locks that has the database open (os_unix.c of SQLite: UNIX_SHM_DMS)."""
MAX_PROBLEMS: Final = 3
_SIDE_FILES: Final = ("", "-wal", "-shm", ".gate", ".bells", ".sessions")


class Finding(NamedTuple):
    """What was looked at, how it is, and one line about it."""

    name: str
    level: Level
    text: str


def examine(path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Finding]:
    """Everything there is to say about the store `path`; `progress` counts events. Never raises for what it finds."""
    if not os.path.lexists(path):
        return [Finding("file", "bad", f"there is no store at {shown(path)}")]
    findings = [_sqlite(sqlite3.sqlite_version_info), *_place(path)]
    try:
        with closing(_connect(path)) as connection:
            require_ours(path, connection)
            # From here on, everything is seen as it was at one moment.
            connection.execute("BEGIN")
            findings += _schema(connection)
            findings += _guarded("contents", lambda: [_contents(path, connection)])
            findings += _guarded("integrity", lambda: [_integrity(connection)])
            if is_older(connection):  # its views have other columns
                findings.append(Finding("log", "warn", "not looked at: its schema is older"))
            else:
                findings += _guarded("log", lambda: _log(connection, progress))
                findings += _guarded("leases", lambda: [_leases(connection)])
    except StoreError as error:
        findings.append(Finding("file", "bad", str(error)))
    except sqlite3.Error as error:
        findings.append(Finding("file", "bad", f"{shown(path)} cannot be read: {error}"))
    return [*findings, _connected(path)]


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite may lose commits when two connections write at one instant: https://www.sqlite.org/wal.html#walresetbug."""
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
        f"SQLite {number} has the WAL-reset bug (fixed in 3.51.3, 3.50.7, 3.44.6); every holdlog writer holds the gate,"
        " so it cannot strike unless something else writes to the file",
    )


def _place(path: Path) -> Iterator[Finding]:
    kind = host.file_system(path)
    if host.is_network(kind):
        yield Finding("file system", "bad", f"{kind} is a network file system, where SQLite's WAL corrupts")
    else:
        yield Finding("file system", "ok", kind or "of unknown type")
    if sys.platform == "win32":
        return
    open_to_others = list(_open_to_others(path))
    if open_to_others:
        yield Finding("permissions", "warn", f"others may reach {', '.join(open_to_others)}")
    else:
        yield Finding("permissions", "ok", "only the owner may reach the files")


def _open_to_others(path: Path) -> Iterator[str]:
    # Where the folder is closed to others, so is what it holds; both are told, since folders get opened.
    for place in (path.parent, *(path.with_name(path.name + suffix) for suffix in _SIDE_FILES)):
        try:
            mode = os.stat(place).st_mode
        except OSError:
            continue
        expected = 0o700 if stat.S_ISDIR(mode) else 0o600
        if stat.S_IMODE(mode) & ~expected:
            yield f"{shown(place.name)} ({stat.S_IMODE(mode):04o}, not {expected:04o})"


def _connect(path: Path) -> sqlite3.Connection:
    # Read-only: closing such a connection writes nothing, so it needs no gate.
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5.0)
    connection.text_factory = any_text
    return connection


def _schema(connection: sqlite3.Connection) -> Iterator[Finding]:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    number = f"{version // MINORS_PER_MAJOR}.{version % MINORS_PER_MAJOR}"
    if version > MAJOR * MINORS_PER_MAJOR + MINOR:
        yield Finding(
            "schema", "warn", f"{number} is newer than this holdlog ({MAJOR}.{MINOR}), which cannot judge it all"
        )
    elif version // MINORS_PER_MAJOR < MAJOR:
        yield Finding(
            "schema", "warn", f"{number} is older: whatever opens the store next migrates it to {MAJOR}, with a backup"
        )
    else:
        yield Finding("schema", "ok", number)
    if left_over(connection):
        yield Finding(
            "rebuild",
            "warn",
            "a rebuild is running, or did not end; the views in use are whole, and the next one clears up",
        )


def _contents(path: Path, connection: sqlite3.Connection) -> Finding:
    store_id = connection.execute("SELECT value FROM meta WHERE name = 'store_id'").fetchone()
    if store_id is None:
        return Finding("contents", "bad", "the store has no id")
    events, live, deleted = connection.execute(_SELECT_COUNTS).fetchone()
    size = sum(_size(path.with_name(path.name + suffix)) for suffix in ("", "-wal"))
    return Finding(
        "contents",
        "ok",
        f"store {shown(store_id[0])}: {events:,} events, {live:,} records ({deleted:,} deleted), {size / 1e6:,.1f} MB",
    )


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _integrity(connection: sqlite3.Connection) -> Finding:
    told = [row[0] for row in connection.execute(f"PRAGMA quick_check({MAX_PROBLEMS})")]
    if told == ["ok"]:
        return Finding("integrity", "ok", "SQLite finds the file whole")
    return Finding("integrity", "bad", "; ".join(shown(line) for line in told))


def _log(connection: sqlite3.Connection, progress: Callable[[int, int], None]) -> list[Finding]:
    audit = Audit(connection, progress)
    audit.run()
    return [
        _judged("positions", audit.positions, f"1 to {audit.events:,} without a gap", "events are missing"),
        _judged("versions", audit.versions, f"of {audit.streams:,} streams, without a gap", "events are missing"),
        _judged("times", audit.times, "never run backwards", "earlier than the event before"),
        _judged("digests", audit.digests, f"all {audit.events:,} verify", "do not verify"),
        _judged("events", audit.unreadable, "all can be read", "cannot be read"),
        _judged(
            "views",
            audit.views,
            "equal what the log says",
            "are not what the log says; `holdlog rebuild` makes them anew",
        ),
    ]


def _leases(connection: sqlite3.Connection) -> Finding:
    """A grant or ticket may lack its lease, as in a copy of the log; it then lasts for the grace."""
    kept = {(resource, version): who for resource, version, *who in connection.execute(_SELECT_LEASES)}
    held = unknown = 0
    waiting = set()
    for row in connection.execute(f"{select_from(CLAIMS)} WHERE held <> 0 OR waiting <> 0"):
        try:
            claim = claim_of(row)
        except (ValueError, TypeError):
            continue  # told of the views
        held += bool(claim.grants)
        waiting |= {(ticket.agent, ticket.principal) for ticket in claim.line}
        expected = {it.version: ["grant", it.agent, it.principal] for it in claim.grants}
        expected |= {it.version: ["ticket", it.agent, it.principal] for it in claim.line}
        for version, who in expected.items():
            found = kept.get((claim.resource, version))
            unknown += found is None
            if found == who:
                del kept[claim.resource, version]
    text = f"{held:,} claims held, {len(waiting):,} agents wait"
    text += f"; {unknown:,} without a lease, which last for the grace" if unknown else ""
    if not kept:
        return Finding("leases", "ok", text)
    faults = Faults()
    for resource, version in kept:
        faults.add(f"{resource}@{version}")
    return Finding(
        "leases", "warn", f"{text}; {faults.count:,} leases fit no claim and grant nothing: {shown(str(faults))}"
    )


def _judged(name: str, faults: Faults, well: str, ill: str) -> Finding:
    if faults.count == 0:
        return Finding(name, "ok", well)
    return Finding(name, "bad", f"{faults.count:,} {ill}: {shown(str(faults))}")


def _guarded(name: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """A damaged file ends one look, not all."""
    try:
        return look()
    except sqlite3.Error as error:
        return [Finding(name, "bad", f"cannot be read: {error}")]


def _connected(path: Path) -> Finding:
    servers = [f"{shown(found.what)}, process {found.pid}, since {shown(found.started)}" for found in connected(path)]
    pids = host.lock_owners(path.with_name(path.name + "-shm"), SHM_OPEN_LOCK)
    processes = [describe_process(pid) for pid in pids if pid != os.getpid()]
    text = f"{len(servers)} servers" + (f": {'; '.join(servers)}" if servers else "")
    if processes:
        text += f". The file is open in {', '.join(processes)}"
    return Finding("connected", "ok", text)


_SELECT_COUNTS: Final = """
SELECT (SELECT COUNT(*) FROM stored_events),
       (SELECT COUNT(*) FROM current WHERE live = 1), (SELECT COUNT(*) FROM current WHERE live <> 1)"""
_SELECT_LEASES: Final = """
SELECT resource, version, CASE kind WHEN 'waits' THEN 'ticket' ELSE 'grant' END, agent, principal FROM leases"""
