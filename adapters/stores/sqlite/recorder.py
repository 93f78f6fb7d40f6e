"""The recorder over SQLite."""

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdlog.adapters.stores.event_log.codec import COLUMNS, EncodedEvent
from holdlog.adapters.stores.sql.recorder import REMOVE, SALTS, LogRecorder
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.adapters.stores.sql.text import for_sqlite
from holdlog.domain.envelope import payload_hash
from holdlog.domain.store_log import PayloadRedacted
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


def kept_texts(copy: sqlite3.Connection, store: sqlite3.Connection, redacted: PayloadRedacted) -> list[Row]:
    """Version, salt and text of the events that were redacted in a store, as far as a copy of its log still has them.
    The copy may be of an older schema."""
    salt = SALTS[redacted.part]
    columns = {row[1] for row in copy.execute(f"PRAGMA table_info({EVENTS_TABLE})")}
    if salt not in columns:
        return []  # its reasons are a part of their digests
    found: list[Row] = []
    for first, last in redacted.versions:
        where = "WHERE originator_id = ? AND originator_version BETWEEN ? AND ?"
        select = f"SELECT originator_version, digest FROM {EVENTS_TABLE} {where}"
        same = set(store.execute(select, (redacted.target, first, last)))
        texts = f"SELECT originator_version, digest, {salt}, {redacted.part} FROM {EVENTS_TABLE} {where}"
        for version, digest, salted, text in copy.execute(texts, (redacted.target, first, last)):
            if salted is not None and text is not None and (version, digest) in same:
                found.append((version, salted, text))
    return found


def remove_kept_text(copy: sqlite3.Connection, redacted: PayloadRedacted, version: int, salt: bytes, text: str) -> int:
    """Remove such a text, except for its hash. Returns the version."""
    statement = for_sqlite(REMOVE[redacted.part])
    copy.execute(statement, {"stream": redacted.target, "version": version, "hashed": payload_hash(salt, text)})
    return version


def uri_of(path: Path, mode: str = "rw") -> str:
    """SQLite's URI of an existing file; never creates one."""
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def configure(connection: sqlite3.Connection) -> None:
    """Configure durable commits, no memory map (https://www.sqlite.org/wal.html)."""
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
