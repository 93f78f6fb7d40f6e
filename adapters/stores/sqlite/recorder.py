"""The library's recorder over SQLite: its log with our additional columns, and the views in the same transaction."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.sqlite.schema import CREATE_EVENTS, INSERT_EVENT, PUT
from holdlog.projections.projection import Put


class SqliteEventRecorder(SQLiteApplicationRecorder):
    """Records events in the library's log with our additional columns, and the views' rows along with the events."""

    def construct_create_table_statements(self) -> list[str]:
        return [CREATE_EVENTS]

    def _insert_events(
        self,
        c: SQLiteCursor,
        stored_events: Sequence[StoredEvent],
        *,
        sealed: Sequence[EncodedEvent] = (),
        puts: Sequence[Put] = (),
        **_: Any,
    ) -> Sequence[int]:
        cursor = c.sqlite_cursor
        positions = [cursor.execute(INSERT_EVENT, event).lastrowid or 0 for event in sealed]
        for table, row in puts:
            cursor.execute(PUT[table.name], row)
        return positions


class Pool(SQLiteConnectionPool):
    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        configure(connection._sqlite_conn)
        return connection


class OpenedSqliteDatastore(SQLiteDatastore):
    def __init__(self, uri: str) -> None:
        super().__init__(uri, originator_id_type="text")
        self.pool.close()
        self.pool = Pool(db_name=uri)


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's URI of an existing file; never creates one."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Configure durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
