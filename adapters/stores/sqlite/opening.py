"""Open a store file, if it is a holdlog store of a known version on a suitable disk. Never repairs or overwrites it."""

import errno
import logging
import os
import sqlite3
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.location import (
    CANNOT_WRITE,
    LocationError,
    explain,
    is_there,
    prepare_folder,
    require_local,
)
from holdlog.adapters.operating_system.private import open_private, require_own, why_open
from holdlog.adapters.operating_system.write_lock import WriteLock
from holdlog.adapters.stores.sql.tables import SESSION_SALT, TABLES
from holdlog.adapters.stores.sqlite.database import DatabaseFile, inherited, kept_names
from holdlog.adapters.stores.sqlite.faults import DOCTOR_FIRST, DamagedError, require_major
from holdlog.adapters.stores.sqlite.migrating import is_older, migrate
from holdlog.adapters.stores.sqlite.read_only import ReadOnlyFile, connect_to_read
from holdlog.adapters.stores.sqlite.recorder import configure, uri_of
from holdlog.adapters.stores.sqlite.schema import (
    APPLICATION_ID,
    CREATE_INDEXES,
    CREATE_SIDE_TABLES,
    MAJOR,
    MINOR,
    MINORS_PER_MAJOR,
    create_tables,
    create_view,
    make_ours,
    tables_there,
    version_of,
)
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.lease import GRACE
from holdlog.domain.refusals import StoreError, UnavailableError

LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for the write lock when many servers start on a new file at once."""

Report = Callable[[str], None]
"""Called with a line of text for the person who opens the store."""

_creating = threading.Lock()
_log = logging.getLogger("holdlog")


def open_sqlite(
    path: Path,
    clock: Callable[[], int] = platform.now,
    steady: Callable[[], int] = platform.steady,
    report: Report = _log.info,
) -> SqliteStore:
    """Open the store, create it if it is missing, and migrate an older schema, reporting that to `report`.

    Raises StoreError, whose one-line message includes what to do; UnavailableError if another process holds the write
    lock for too long, or the disk is full.
    """
    try:
        require_local(path)
        prepare_folder(path)
        exists = is_there(path)
        _finish_restore(path)
        _require_openable(path)
        require_own(path)
        lock_path = path.with_name(path.name + ".gate")
        lock_existed = is_there(lock_path)
        write_lock = WriteLock(lock_path)
        try:
            if exists:
                _require_writable(path)
        except OSError:
            write_lock.close()
            raise
    except LocationError as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        why = _explain(path, error)
        if exists and error.errno in CANNOT_WRITE:
            return _open_read_only(path, why, clock, steady)
        raise StoreError(why) from None
    try:
        write_lock.acquire(time.monotonic() + LOCK_TIMEOUT)
        try:
            try:
                salt = _require_or_create(path, clock, steady, report)
            except DamagedError:  # or a single read failed: try once more
                salt = _require_or_create(path, clock, steady, report)
            store = SqliteStore(DatabaseFile(path, write_lock), clock, steady)
            store.session_salt = salt
            return store
        except StoreError:
            if not lock_existed:
                lock_path.unlink(missing_ok=True)  # do not leave a lock file next to a file that is not a store
            raise
        finally:
            write_lock.release()
    except BaseException:
        write_lock.close()
        raise


def why_read_only(path: Path) -> str | None:
    """Why this process cannot write an existing store, in one line; None if it can. Changes nothing."""
    try:
        with suppress(FileNotFoundError):
            os.close(os.open(path.with_name(path.name + ".gate"), os.O_RDWR | os.O_CLOEXEC))
        _require_writable(path)
    except OSError as error:
        return _explain(path, error)
    return None


def _explain(path: Path, error: OSError) -> str:
    return explain(path if error.filename == str(path) else path.parent, "written", error)


def _require_writable(path: Path) -> None:
    """Raise OSError if this process may write the write lock but not the store or its folder, where SQLite creates the
    write-ahead log."""
    for entry in (path, path.parent):
        if not os.access(entry, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            is_mounted_so = hasattr(os, "statvfs") and os.statvfs(entry).f_flag & os.ST_RDONLY
            code = errno.EROFS if is_mounted_so else errno.EACCES
            raise OSError(code, os.strerror(code), str(entry))


def _open_read_only(path: Path, why: str, clock: Callable[[], int], steady: Callable[[], int]) -> SqliteStore:
    """Open an existing store that this process cannot write. Writes raise ReadOnlyError."""
    if (exposed := why_open(path)) is not None:
        raise exposed
    with _reported(path), closing(connect_to_read(path, LOCK_TIMEOUT)) as connection:
        if _is_empty(path, connection):
            raise StoreError(f"there is no store yet, and {why}")
        require_ours(path, connection)
        if version_of(connection) < MAJOR * MINORS_PER_MAJOR + MINOR:
            raise StoreError(f"the store has an older schema, which can only be read after an update; {why}")
        salt = _salt(connection)
    store = SqliteStore(ReadOnlyFile(path, why), clock, steady)
    store.session_salt = salt
    return store


def _finish_restore(path: Path) -> None:
    """Remove the second name that a killed restore left: the store is still the old one. Waits for a restore that
    runs."""
    if not kept_names(path):
        return
    with write_locked(path):
        for name in kept_names(path):
            name.unlink()


@contextmanager
def write_locked(path: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the write lock of a store that this process need not have open. Raises UnavailableError, OSError."""
    with closing(WriteLock(path.with_name(path.name + ".gate"))) as write_lock:
        write_lock.acquire(time.monotonic() + timeout)
        try:
            yield
        finally:
            write_lock.release()


def _require_openable(path: Path) -> None:
    """Refuse a file with several names, because each name would have a separate write-ahead log and write lock, and a
    file that a parent process had open."""
    try:
        status = path.stat()
    except OSError:
        return
    if stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{path} is a folder; use --db with a file in it")
    if (status.st_dev, status.st_ino) in inherited:
        raise StoreError(f"{path} was open when this process was forked; start workers with spawn, or fork first")
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise StoreError(
            f"{path} has {status.st_nlink} names (hard links), and each would get a separate write-ahead log; keep only"
            " one name"
        )
    if platform.is_mount_point(path):
        raise StoreError(f"{path} is mounted as a single file, without its write-ahead log; mount its folder")


def _require_or_create(path: Path, clock: Callable[[], int], steady: Callable[[], int], report: Report) -> str:
    with _creating:
        try:
            # Open only a file that did not exist: closing any other would drop this process's locks on it.
            os.close(open_private(path, os.O_RDWR | os.O_EXCL))
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreError(explain(path, "created", error)) from None
    exposed = why_open(path)  # check this before SQLite creates and removes side files with the store's mode
    if path.with_name(path.name + "-wal").exists():
        # Check read-only first: closing a connection that may write would merge the -wal file of another program.
        with suppress(UnavailableError), _connection(path, "ro") as connection:
            require_ours(path, connection)
    with _connection(path, "rw") as connection:
        if not (is_empty := _is_empty(path, connection)):
            require_ours(path, connection)
        if exposed is not None:
            raise exposed
        if is_empty:
            _create(connection)
        configure(connection)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(f"{path} cannot use a write-ahead log here; use --db with a path on a local disk")
        if is_older(connection):
            report(migrate(path, connection, clock(), steady()))
        _add_newer_tables(connection)
        _notice_reboot(connection, platform.boot_id(), clock(), steady())
        return _salt(connection)


def _salt(connection: sqlite3.Connection) -> str:
    salt = connection.execute("SELECT value FROM meta WHERE name = ?", (SESSION_SALT,)).fetchone()
    return str(salt[0]) if salt else ""


@contextmanager
def _connection(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with (
        _reported(path),
        closing(
            sqlite3.connect(uri_of(path, mode), uri=True, isolation_level=None, timeout=LOCK_TIMEOUT)
        ) as connection,
    ):
        yield connection


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn SQLite's errors in the block into refusals that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                line = f"{path} is damaged or not a SQLite file ({error})"
                raise DamagedError(f"{line}; if it is a store, {DOCTOR_FIRST}; if not, use another --db") from None
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                reason = PermissionError(errno.EACCES, str(error))
                raise StoreError(explain(path, "opened", reason)) from None
            case _:
                raise UnavailableError(f"{path} cannot be opened now: {error}") from error


def _is_empty(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file is completely empty, once SQLite has rolled back a crashed transaction. SQLite's own test is
    weaker: it accepts a file of one byte, for example."""
    return not tables_there(connection) and path.stat().st_size == 0


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    make_ours(connection, str(uuid.uuid4()))
    connection.execute("COMMIT")


def _add_newer_tables(connection: sqlite3.Connection) -> None:
    """Create the tables and indexes that later minor versions added. Servers of earlier minor versions still work with
    the store."""
    ours = MAJOR * MINORS_PER_MAJOR + MINOR
    if version_of(connection) >= ours:
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in (*CREATE_SIDE_TABLES, *map(create_view, TABLES), *CREATE_INDEXES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {ours}")
    connection.execute("COMMIT")


def _notice_reboot(connection: sqlite3.Connection, boot_id: str, at: int, now: int) -> None:
    """Detect a reboot. It ends every server and restarts the clock of leases, so each lease lasts for the grace period,
    in which its holder can claim again.

    `at`: microseconds UTC; `now`: steady clock. The sessions ended at an unknown time; `at` is recorded.
    """
    found = connection.execute("SELECT value FROM meta WHERE name = 'boot_id'").fetchone()
    if found is not None and found[0] == boot_id:
        return
    connection.execute("BEGIN IMMEDIATE")
    if found is not None:
        connection.execute(
            "UPDATE leases SET server = '', present_until = 0, heard = :now, seen = :now, deadline = :until,"
            " ended_at = CASE ended_at WHEN 0 THEN :at ELSE ended_at END",
            {"now": now, "until": now + GRACE, "at": at},
        )
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('boot_id', ?)", (boot_id,))
    connection.execute("COMMIT")


def require_ours(path: Path, connection: sqlite3.Connection) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == APPLICATION_ID:
        require_major(version_of(connection))
        return
    if {"state_records", "state_history"} <= tables_there(connection):
        raise StoreError(f"{path} is a file of agenthold; to import it: holdlog import --agenthold {path}")
    raise StoreError(f"{path} is not a holdlog store; use another --db")
