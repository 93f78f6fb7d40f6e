"""Open a store file: ours, of a version we know, on a disk that can hold it. Never repairs, never overwrites."""

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdlog.adapters import host
from holdlog.adapters.gate import Gate
from holdlog.adapters.location import LocationError, prepare_folder, require_local
from holdlog.adapters.schema import (
    APPLICATION_ID,
    CREATE_EVENTS,
    CREATE_SIDE_TABLES,
    MAJOR,
    MINOR,
    MINORS_PER_MAJOR,
    create_view,
)
from holdlog.adapters.sqlite import SqliteStore, configure, require_major, uri_of
from holdlog.domain.refusals import StoreError
from holdlog.projections.fold import VIEWS

PATIENCE: Final = 10.0
"""Seconds to wait for the gate when many servers start on a new file at once."""

_creating = threading.Lock()


def open_sqlite(path: Path, clock: Callable[[], int] = host.now) -> SqliteStore:
    """Open the store, and create it where nothing stands. Raises StoreError with one line that says what to do;
    UnavailableError when another process holds the gate for too long."""
    try:
        require_local(path)
        prepare_folder(path)
    except LocationError as error:
        raise StoreError(str(error)) from None
    try:
        gate = Gate(path.with_name(path.name + ".gate"))
    except OSError as error:
        raise StoreError(
            f"{path.parent} cannot be written ({error.strerror}); use --db with a path you may write"
        ) from None
    try:
        gate.acquire(time.monotonic() + PATIENCE)
        try:
            _require_or_create(path)
        finally:
            gate.release()
        return SqliteStore(path, gate, clock)
    except BaseException:
        gate.close()
        raise


def _require_or_create(path: Path) -> None:
    with _creating:
        try:
            # Only a file that did not exist is opened here: closing any other would drop this process's locks on it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreError(
                f"{path} cannot be created ({error.strerror}); use --db with a path you may write"
            ) from None
    try:
        connection = sqlite3.connect(uri_of(path), uri=True, isolation_level=None, timeout=PATIENCE)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened ({error})") from None
    try:
        if not _tables(connection):
            _create(connection)
        require_ours(path, connection)
        configure(connection)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(f"{path} cannot use a write-ahead log here; use --db with a path on a local disk")
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{path} is damaged or no SQLite file ({error}); restore it from a backup, or use another --db"
        ) from None
    finally:
        connection.close()


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in (CREATE_EVENTS, *CREATE_SIDE_TABLES, *map(create_view, VIEWS)):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (str(uuid.uuid4()),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {MAJOR * MINORS_PER_MAJOR + MINOR}")
    connection.execute("COMMIT")


def require_ours(path: Path, connection: sqlite3.Connection) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == APPLICATION_ID:
        require_major(connection.execute("PRAGMA user_version").fetchone()[0])
        return
    if {"state_records", "state_history"} <= _tables(connection):
        raise StoreError(f"{path} is an agenthold file; importing it is planned, for now use another --db")
    raise StoreError(f"{path} is not a holdlog store; use another --db")


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
