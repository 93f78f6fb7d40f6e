"""The recorder over SQLite."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sqlite.schema import INSERT_EVENT


class SqliteEventRecorder(LogRecorder):
    """The log in SQLite. Its `unit` has the `connection` that writes."""

    def _insert(self, events: Sequence[EncodedEvent], unit: Any) -> Sequence[int]:
        execute = unit.connection.execute
        return [execute(INSERT_EVENT, event).lastrowid or 0 for event in events]


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's URI of an existing file; never creates one."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Configure durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
