"""The recorder over SQLite."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.projections.projection import Row

_INSERT: Final = f"INSERT INTO {EVENTS_TABLE} ({{}}) VALUES ({{}})"
_FIELDS: Final = EncodedEvent._fields
_INSERT_EVENT: Final = _INSERT.format(", ".join(_FIELDS), ", ".join("?" * len(_FIELDS)))
_RESTORE_EVENT: Final = _INSERT.format(", ".join(("rowid", *_FIELDS)), ", ".join("?" * (len(_FIELDS) + 1)))


class SqliteEventRecorder(LogRecorder):
    """The log in SQLite. Its `unit` has the `connection` that writes."""

    def _insert(self, events: Sequence[EncodedEvent], unit: Any) -> Sequence[int]:
        execute = unit.connection.execute
        return [execute(_INSERT_EVENT, event).lastrowid or 0 for event in events]

    def restore(self, rows: Sequence[Row], unit: Any) -> None:
        unit.connection.executemany(_RESTORE_EVENT, rows)


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's URI of an existing file; never creates one."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Configure durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
