"""Migrate a store of an older major schema to the current one: first makes a backup, then migrates in one
transaction."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.private import is_private, open_private, sync_folder
from holdlog.adapters.stores.event_log.codec import COLUMNS, FORMAT_COLUMNS
from holdlog.adapters.stores.event_log.sealing import FILE_TRIGGERS, SEAL, file_triggers, line_of
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE, KEPT, SESSION_SALT, new_session_salt
from holdlog.adapters.stores.sqlite.faults import code_of
from holdlog.adapters.stores.sqlite.files import copy_database, remove_database
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.adapters.stores.sqlite.schema import (
    CREATE_SIDE_TABLES,
    MAJOR,
    MINOR,
    MINORS_PER_MAJOR,
    TYPES,
    create_view,
    tables_there,
    version_of,
)
from holdlog.adapters.stores.sqlite.shadow_tables import rebuild_within
from holdlog.domain.refusals import StoreError, UnavailableError

_SESSIONS: Final = 3
"""The first major version with log format 2 and sessions."""
BEFORE_UPGRADE: Final = "before-upgrade"
"""The session of leases and losses of an older release, which did not record one."""
_REPLACED: Final = ("requests", "leases", "losses")
"""Side tables whose columns or key changed."""


def is_older(connection: sqlite3.Connection) -> bool:
    return version_of(connection) // MINORS_PER_MAJOR < MAJOR


def migrate(path: Path, connection: sqlite3.Connection, at: int, now: int) -> str:
    """Migrate while the caller holds the write lock. Returns a line that reports what was done. `at`: microseconds UTC;
    `now`: steady clock.

    The log gets missing columns, and its events do not change; the views are rebuilt from it. Processes of the older
    build can no longer use the store. From a major before 3, the sessions of all leases count as ended; their deadlines
    do not change. A kill at any moment leaves the store unchanged or fully migrated. Raises StoreError if the migration
    is impossible, UnavailableError if a retry may succeed; both with a one-line message.
    """
    connection.execute("BEGIN IMMEDIATE")
    old = version_of(connection) // MINORS_PER_MAJOR
    backup: Path | None = None
    is_new = False
    try:
        backup = _reusable_backup(path, old, connection)
        if backup is None:
            backup, is_new = _back_up(path, old), True
        salt = new_session_salt()
        if old < _SESSIONS:
            _migrate_tables(connection, at, now, salt)
        connection.execute("DROP INDEX IF EXISTS leases_waiting")
        _create_side_tables(connection)
        for table in KEPT:
            connection.execute(create_view(table))
        rebuild_within(connection)
        for row in (("boot_id", platform.boot_id()), (SESSION_SALT, salt)):
            connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", row)
        connection.execute(f"PRAGMA user_version = {MAJOR * MINORS_PER_MAJOR + MINOR}")
        connection.execute("COMMIT")
    except (sqlite3.Error, OSError, StoreError) as error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        if is_new and backup is not None and _is_unchanged(old, connection):
            backup.unlink(missing_ok=True)
        raise _refused(path, old, error) from error
    return f"migrated the store {path} from schema {old} to {MAJOR}; the backup of the old store is {backup}"


def _migrate_tables(connection: sqlite3.Connection, at: int, now: int, salt: str) -> None:
    """Add log format 2 and sessions. Sessions are hashed, so that a host that resumes the same session finds its
    claims."""
    tables = tables_there(connection)
    for name in FILE_TRIGGERS:  # only a sealed store has them; created again at the end
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    for column in FORMAT_COLUMNS:
        connection.execute(f"ALTER TABLE {EVENTS_TABLE} ADD COLUMN {column} {TYPES[COLUMNS[column]]}")
    carried = [name for name in _REPLACED if name in tables]
    for name in carried:
        connection.execute(f"ALTER TABLE {name} RENAME TO {name}_before")
    _create_side_tables(connection)
    for name in carried:
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({name}_before)"))
        connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}_before")
        connection.execute(f"DROP TABLE {name}_before")
    _create_side_tables(connection)  # now the indexes: their names were in use
    connection.execute(
        "UPDATE leases SET server = '', present_until = MIN(present_until, ?), seen = heard, ended_at = ?", (now, at)
    )
    identity = Identity(salt)
    for name in ("leases", "losses"):
        for (session,) in connection.execute(f"SELECT DISTINCT session FROM {name}").fetchall():
            hashed = BEFORE_UPGRADE if session is None else identity.session("process", session)
            connection.execute(f"UPDATE {name} SET session = ? WHERE session IS ?", (hashed, session))
    seal = connection.execute("SELECT value FROM meta WHERE name = ?", (SEAL,)).fetchone()
    if seal is not None and (line := line_of(seal[0])) is not None:
        for statement in file_triggers(line):
            connection.execute(statement)


def _create_side_tables(connection: sqlite3.Connection) -> None:
    for statement in CREATE_SIDE_TABLES:
        connection.execute(statement)


def _is_unchanged(old: int, connection: sqlite3.Connection) -> bool:
    """Whether the file still has the old schema. False if unknown, because a COMMIT that reported an error may have
    succeeded."""
    with suppress(sqlite3.Error):
        return version_of(connection) // MINORS_PER_MAJOR == old
    return False


def _back_up(path: Path, old: int) -> Path:
    """Back up the store under an unused name. The copy is complete and on the disk when this returns."""
    partial = path.with_name(f"{path.name}.backup-{old}.partial")
    # A second connection: SQLite cannot copy through one that is writing.
    with closing(sqlite3.connect(uri_of(path, "ro"), uri=True, isolation_level=None)) as source:
        copy_database(source, partial)
    try:
        backup = _reserve(path, old)
        os.replace(partial, backup)
    except BaseException:
        remove_database(partial)
        raise
    sync_folder(path.parent)
    return backup


def _reusable_backup(path: Path, old: int, connection: sqlite3.Connection) -> Path | None:
    """The backup of an interrupted attempt. It is reused, because a host that kills slow starts would otherwise cause
    many backups."""
    for candidate in _names(path, old):
        if not os.path.lexists(candidate):
            return None
        if not is_private(candidate):
            continue
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{uri_of(candidate, 'ro')}&immutable=1", uri=True)) as other,
        ):
            if _identity(other) == _identity(connection):
                return candidate
    return None


def _identity(connection: sqlite3.Connection) -> list[Any]:
    """Values that two files share only if they contain the same store up to the same event."""
    queries = (
        "PRAGMA application_id",
        "PRAGMA user_version",
        "SELECT value FROM meta WHERE name = 'store_id'",
        f"SELECT COUNT(*) FROM {EVENTS_TABLE}",
        f"SELECT rowid, digest FROM {EVENTS_TABLE} ORDER BY rowid DESC LIMIT 1",
    )
    return [connection.execute(query).fetchone() for query in queries]


def _reserve(path: Path, old: int) -> Path:
    """Reserve the first unused name with an empty file: a backup never replaces another file."""
    for name in _names(path, old):
        with suppress(FileExistsError):
            os.close(open_private(name, os.O_RDWR | os.O_EXCL))
            return name
    raise AssertionError("unreachable: _names never ends")


def _names(path: Path, old: int) -> Iterator[Path]:
    """`state.db.backup-1`, `state.db.backup-1.2`, `state.db.backup-1.3` …"""
    number = 1
    while True:
        yield path.with_name(f"{path.name}.backup-{old}{f'.{number}' if number > 1 else ''}")
        number += 1


def _refused(path: Path, old: int, error: Exception) -> StoreError | UnavailableError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    line = f"{path} has schema {old} and cannot be migrated to {MAJOR} ({reason})"
    permanent = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
    if isinstance(error, StoreError) or (isinstance(error, sqlite3.Error) and code_of(error) & 0xFF in permanent):
        return StoreError(f"{line}; the store is unchanged")
    return UnavailableError(f"{line}; correct this, then try again")
