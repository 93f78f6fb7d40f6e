"""The recorder over SQLite."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdlog.adapters.stores.event_log.codec import COLUMNS, EncodedEvent
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.projections.projection import Row

_MARKS: Final = ", ".join("?" * len(COLUMNS))
_INSERT_EVENT: Final = f"INSERT INTO {EVENTS_TABLE} ({', '.join(COLUMNS)}) VALUES ({_MARKS})"
_RESTORE_EVENT: Final = f"INSERT INTO {EVENTS_TABLE} (rowid, {', '.join(COLUMNS)}) VALUES (?, {_MARKS})"


MANY: Final = 4
"""Rows from which on one call that inserts all of them is faster than one call for each."""


class SqliteEventRecorder(LogRecorder):
    """The log in SQLite. Its `unit` has the `connection` that writes."""

    def _insert(self, events: Sequence[EncodedEvent], unit: Any) -> Sequence[int]:
        execute = unit.connection.execute
        if not events[MANY - 1 :]:
            return [execute(_INSERT_EVENT, event[1:]).lastrowid or 0 for event in events]
        unit.connection.executemany(_INSERT_EVENT, [event[1:] for event in events])
        (last,) = execute("SELECT last_insert_rowid()").fetchone()  # SQLite adds 1 to the largest rowid of the table
        return range(last - len(events) + 1, last + 1)

    def restore(self, rows: Sequence[Row], unit: Any) -> None:
        unit.connection.executemany(_RESTORE_EVENT, rows)


def missing_events(connection: sqlite3.Connection, schema: str) -> tuple[int, int | None, int | None]:
    """How many events an attached log lacks, and the first and last position of these."""
    count, first, last = connection.execute(
        f"SELECT COUNT(*), MIN(ours.rowid), MAX(ours.rowid) FROM {EVENTS_TABLE} AS ours LEFT JOIN"
        f" {schema}.{EVENTS_TABLE} AS theirs ON theirs.rowid = ours.rowid WHERE theirs.digest IS NOT ours.digest"
    ).fetchone()
    return count, first, last


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's URI of an existing file; never creates one."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Configure durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
