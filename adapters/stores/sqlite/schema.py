"""The tables in SQLite, and the check that a file is a store."""

import os
import sqlite3
import sys
from contextlib import closing, suppress
from typing import Final

from holdlog.adapters.engine.port import Head
from holdlog.adapters.operating_system.file_systems import explain_exposed
from holdlog.adapters.operating_system.files import open_private, show
from holdlog.adapters.operating_system.processes import identify_boot
from holdlog.adapters.stores.codec import FIRST_DIGEST
from holdlog.adapters.stores.sql import FORGET_HOLDERS, HEAD, SCHEMA, TABLES
from holdlog.domain.claims.claim import ABSENCE, OFFER
from holdlog.domain.claims.holder import LIFE_DIVISOR
from holdlog.domain.refusals import StoreError

APPLICATION_ID: Final = 0x686C6F67
"""In the file's header: https://www.sqlite.org/pragma.html#pragma_application_id"""
LARGEST_TO_CHECK: Final = 256 * 1024 * 1024
"""Bytes that are read in about a second."""
MAX_BOOTS: Final = 100
"""Runs of the kernel that a store remembers."""

# The value is JSON: two paths make an array `[value,null]`, where one would make SQL of it.
_OWN: Final = (
    """CREATE INDEX results ON events (stream, json_extract(payload, '$.checksum'))
    WHERE topic = 'ResultAppended'""",
    """CREATE VIEW current_values AS SELECT
    replace(replace(substr(c.stream, 8, instr(c.stream, '/') - 8), '%2F', '/'), '%25', '%') AS namespace,
    substr(c.stream, instr(c.stream, '/') + 1) AS key, c.version AS version,
    substr(json_extract(e.payload, '$.value', '$.none'), 2, length(json_extract(e.payload, '$.value', '$.none')) - 7)
    AS value, json_extract(e.meta, '$.by') AS updated_by, e.at AS updated_at
    FROM current AS c JOIN events AS e ON e.position = c.position
    WHERE c.exists_now = 1 AND e.topic = 'ValueWritten'""",
)
_BOOTS: Final = "SELECT (SELECT value FROM meta WHERE name = 'boots'), committed_at FROM silence"
_NEW_BOOT: Final = (
    f"""UPDATE holders SET seen_at = :now, open_calls = NULL,
    expires_at = :now + CASE handles WHEN '' THEN lease ELSE lease / {LIFE_DIVISOR} END""",
    f"""UPDATE claims SET waits_until = 0, deadline = CASE WHEN is_ticket = 1 THEN :now + {ABSENCE}
    WHEN is_offered = 1 THEN :now + {OFFER} ELSE deadline + :now - (SELECT committed_at FROM silence) END
    WHERE is_ticket = 1 OR deadline IS NOT NULL""",
    "UPDATE conversations SET seen_at = :now, calls = '{}'",
    "UPDATE silence SET committed_at = :now, began_at = 0, ended_at = 0",
    "INSERT OR REPLACE INTO meta VALUES ('boots', :boots)",
)
"""The steady clock starts again, and all calls have ended."""


def connect(place: str, mode: str = "rw") -> sqlite3.Connection:
    """Connect to a path or `:memory:`, for use by any thread. Raises sqlite3.Error."""
    path = place.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    uri = place if place == ":memory:" else f"file:{path}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=2.0)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in (*TABLES, *_OWN):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('id', ?)", (os.urandom(16).hex(),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def open_file(path: str) -> sqlite3.Connection:
    """Create the store, or check that the file is one, and connect to it. The caller holds the write lock. Raises
    StoreError, OSError, sqlite3.Error."""
    if os.path.exists(f"{path}-wal") and not os.path.lexists(path):
        raise StoreError(f"{show(path)} is missing, but its -wal is left; put the file back, or remove {show(path)}-*")
    with suppress(FileExistsError):
        # Open only a file that did not exist: closing any other would drop this process's locks on it.
        os.close(open_private(path, os.O_EXCL))
    exposed = explain_exposed(path)  # before SQLite creates side files with its mode
    if os.path.exists(f"{path}-wal"):  # closing a connection that may write would move the log of another program
        with closing(connect(path, "ro")) as connection:
            require_store(connection, path)
    connection = connect(path)
    try:
        is_empty = not os.path.getsize(path) and not list_tables(connection)
        if not is_empty:
            require_store(connection, path)
        if exposed is not None:
            raise StoreError(exposed)
        if is_empty:
            create_tables(connection)
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(f"{show(path)} cannot use a write-ahead log here; use a path on a local disk")
    except BaseException:
        connection.close()
        raise
    return connection


def require_store(connection: sqlite3.Connection, path: str) -> None:
    """Raise StoreError for a file that is not a store of this release."""
    version, name = connection.execute("PRAGMA user_version").fetchone()[0], show(path)
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        if {"state_records", "state_history"} & list_tables(connection):
            raise StoreError(f"{name} is a file of agenthold; use another path, and examples/import_agenthold.py")
        raise StoreError(f"{name} is not a holdlog store; use another path")
    if version > SCHEMA * 1000 or SCHEMA < version < 1000:
        raise StoreError(f"{name} belongs to a newer holdlog; update holdlog")
    if version != SCHEMA:
        raise StoreError(f"{name} is a store of holdlog 0.1, which 0.2 cannot read; move it away: mv {name} {name}.old")


def note_boot(cursor: sqlite3.Cursor, path: str, now: int) -> None:
    """After the first write of another run of the kernel, give every holder a full life by its steady clock, whose time
    is `now`. Where the system does not name its runs, a clock behind the last commit is a new one. Raises StoreError
    if an earlier run returns: then two kernels share the file."""
    boot = identify_boot()
    boots, committed_at = cursor.execute(_BOOTS).fetchone()
    known = boots.split() if boots else []
    if known[:1] == [boot] or not (boot or now < committed_at):
        return
    if boot in known:
        raise StoreError(
            f"{show(path)} was also written by another machine or virtual machine; a SQLite file has one: let it run a"
            " server (holdlog serve --transport http) for the others, or use PostgreSQL"
        )
    cursor.execute(FORGET_HOLDERS, {"now": sys.maxsize, "silent_since": 0})  # no clock would, if none runs for a day
    for statement in _NEW_BOOT:
        cursor.execute(statement, {"now": now, "boots": " ".join([boot, *known][:MAX_BOOTS])})


def read_copy(path: str) -> Head:
    """The end of the log in a file that nobody else has open."""
    with closing(connect(path, "ro")) as connection:
        row = connection.execute(HEAD).fetchone()
    return Head(0, FIRST_DIGEST, 0) if row is None else Head(*row)


def is_damaged(path: str) -> bool | None:
    """Check the whole file, as SQLite also reports damage when a disk fails a single read. None if it cannot be read
    now, or is too large to read while a caller waits."""
    try:
        if os.path.getsize(path) > LARGEST_TO_CHECK:
            return None
        with closing(connect(path, "ro")) as connection:  # closing it writes nothing, so it needs no write lock
            return connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]
    except sqlite3.Error as error:
        return True if is_damage(error) else None
    except OSError:
        return None


def is_damage(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def list_tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
