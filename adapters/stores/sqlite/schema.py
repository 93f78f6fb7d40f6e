"""The SQLite schema, generated from the projections' tables, and the application id of the file."""

import sqlite3
from typing import Final

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.event_log.codec import COLUMNS, REQUIRED
from holdlog.adapters.stores.sql.tables import (
    EVENTS_TABLE,
    LEASES,
    LOSSES,
    REFUSALS,
    SESSION_SALT,
    SIDE_INDEXES,
    TABLES,
    VIEW_INDEXES,
    new_session_salt,
    select_from,
)
from holdlog.projections.fold import VIEWS
from holdlog.projections.projection import Table

APPLICATION_ID: Final = (
    0x686C6F67  # "hlog", in the file's header: https://www.sqlite.org/pragma.html#pragma_application_id
)
MAJOR: Final = 4
"""Major version of this schema. 3: log format 2, and sessions in `leases`, `losses` and `requests`
(docs/decisions/0030-log-format-2.md). 4: tickets are rows (docs/decisions/0039-tickets-are-rows.md)."""
MINOR: Final = 2
"""1: snapshots of the board (docs/decisions/0043-time-travel.md). 2: facts about the log (domain/store_log.py), and
roots of subtrees of its Merkle tree (docs/decisions/0046-proof.md)."""
MINORS_PER_MAJOR: Final = 1000
"""`user_version` is major * 1000 + minor. Minor versions only add tables or indexes, so servers with different minor
versions can share a file."""

TYPES: Final = {str: "TEXT", int: "INTEGER", bytes: "BLOB"}
_EVENT_COLUMNS: Final = ",\n    ".join(
    f"{name} {TYPES[kind]}{' NOT NULL' if name in REQUIRED else ''}" for name, kind in COLUMNS.items()
)

CREATE_EVENTS: Final = f"""
CREATE TABLE IF NOT EXISTS {EVENTS_TABLE} (
    rowid INTEGER PRIMARY KEY,
    {_EVENT_COLUMNS},
    UNIQUE (originator_id, originator_version)
)"""

CREATE_SIDE_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # The key columns come first: else SQLite's integrity_check (3.40) reports NULLs that do not exist.
    """CREATE TABLE IF NOT EXISTS requests (principal TEXT NOT NULL, session TEXT NOT NULL DEFAULT '',
    request_id TEXT NOT NULL, at INTEGER NOT NULL, fingerprint BLOB NOT NULL, outcome TEXT NOT NULL,
    PRIMARY KEY (principal, session, request_id)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS refusals (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, code TEXT NOT NULL,
    what TEXT NOT NULL, by TEXT NOT NULL, session TEXT)""",
    """CREATE TABLE IF NOT EXISTS leases (resource TEXT NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL,
    agent TEXT NOT NULL, principal TEXT, session TEXT, server TEXT NOT NULL, deadline INTEGER NOT NULL,
    length INTEGER NOT NULL, told INTEGER NOT NULL, present_until INTEGER NOT NULL, heard INTEGER NOT NULL,
    position INTEGER NOT NULL, note TEXT, receipt TEXT, seen INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (resource, version)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS losses (resource TEXT NOT NULL, version INTEGER NOT NULL, why TEXT NOT NULL,
    agent TEXT NOT NULL, principal TEXT, session TEXT, server TEXT NOT NULL, at INTEGER NOT NULL, note TEXT,
    receipt TEXT, PRIMARY KEY (resource, version)) WITHOUT ROWID""",
    *(f"CREATE INDEX IF NOT EXISTS {it}" for it in SIDE_INDEXES),
)

CREATE_INDEXES: Final = tuple(f"CREATE INDEX IF NOT EXISTS {it}" for it in VIEW_INDEXES)


def create_view(table: Table, name: str | None = None) -> str:
    columns = ", ".join(f'"{column}" {TYPES[kind]}' for column, kind in table.columns.items())
    key = ", ".join(f'"{column}"' for column in list(table.columns)[: table.key])
    return f'CREATE TABLE IF NOT EXISTS "{name or table.name}" ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID'


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables of a store, empty."""
    for statement in (CREATE_EVENTS, *CREATE_SIDE_TABLES, *map(create_view, TABLES), *CREATE_INDEXES):
        connection.execute(statement)


def make_ours(connection: sqlite3.Connection, store_id: str) -> None:
    """Mark the file as a store. Keeps a salt that `meta` already has."""
    connection.execute("INSERT INTO meta VALUES ('store_id', ?), ('boot_id', ?)", (store_id, platform.boot_id()))
    connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (SESSION_SALT, new_session_salt()))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {MAJOR * MINORS_PER_MAJOR + MINOR}")


def version_of(connection: sqlite3.Connection) -> int:
    """The `user_version` of a store."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def tables_there(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def put_statement(table: Table, name: str | None = None) -> str:
    """Insert a row, or replace the one with the same key."""
    columns = [f'"{column}"' for column in table.columns]
    into = f'INSERT INTO "{name or table.name}" ({", ".join(columns)}) VALUES ({", ".join("?" * len(columns))})'
    if not table.key:
        return into
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[table.key :])
    action = f"UPDATE SET {changes}" if changes else "NOTHING"
    return f"{into} ON CONFLICT ({', '.join(columns[: table.key])}) DO {action}"


def drop_statement(table: Table, name: str | None = None) -> str:
    """Delete the row of one key."""
    return f'DELETE FROM "{name or table.name}" WHERE {_is_key(table)}'


def select_row(table: Table, name: str | None = None) -> str:
    """Select the row of one key."""
    return f"{select_from(table, name)} WHERE {_is_key(table)}"


def _is_key(table: Table) -> str:
    return " AND ".join(f'"{column}" = ?' for column in list(table.columns)[: table.key])


PUT: Final = {table.name: put_statement(table) for table in (*TABLES, LEASES, LOSSES, REFUSALS)}
DROP: Final = {view.name: drop_statement(view) for view in VIEWS}
