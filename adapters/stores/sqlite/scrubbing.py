"""Removes redacted texts from what SQLite deleted but did not overwrite: free space of the file, its write-ahead log,
and backups that migrations left next to it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.location import shown
from holdlog.adapters.operating_system.private import is_private
from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.sql.redaction import redact_view
from holdlog.adapters.stores.sql.text import for_sqlite
from holdlog.adapters.stores.sqlite.files import SIDE_FILES, remove_database
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder, kept_texts, remove_kept_text, uri_of
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.adapters.stores.sqlite.schema import APPLICATION_ID, MAJOR, MINORS_PER_MAJOR, tables_there, version_of
from holdlog.domain.ports import Scrubbed
from holdlog.domain.redaction import UNFINISHED
from holdlog.domain.store_log import STORE_STREAM, PayloadRedacted

AGAIN: Final = "run: holdlog redact --finish"
_READ: Final = (
    "the write-ahead log of {} still has redacted texts, because a process reads an earlier state of the store; end it"
    f" (a backup, copy or export), then {AGAIN}"
)
_NAMED: Final = "{} is a copy of this store from before a redaction; if you do not need it, remove it"
_UNREAD: Final = (
    "{} may be a copy of this store, but is not private, so it was not read; if you do not need it, remove it"
)
_UNCHANGED: Final = f"{{}} cannot be rewritten ({{}}); remove it, then {AGAIN}"
_FORGET: Final = {
    ("requests", "outcome"): "DELETE FROM requests",
    ("leases", "note"): "UPDATE leases SET note = NULL",
    ("losses", "note"): "UPDATE losses SET note = NULL",
    ("claims", "past"): "UPDATE claims SET past = ''",
}
"""What a backup remembers next to its log, by table and column. A migration makes its views again."""


def scrub(path: Path, connection: sqlite3.Connection) -> Scrubbed:
    """Remove what was redacted from all files of the store, while the caller holds the write lock. A kill at any moment
    leaves the store as it was, or further scrubbed, and marked as unfinished."""
    rewritten, remaining, unfinished = list[str](), list[str](), list[str]()
    try:
        connection.execute("VACUUM")
        (is_blocked, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_blocked:
            unfinished.append(_READ.format(shown(path)))
    except sqlite3.Error as error:
        unfinished.append(f"{shown(path)} still has redacted texts ({error}); correct this, then {AGAIN}")
    redactions = _redactions(connection)
    for copy in _copies(path, connection):
        is_ours = copy.name.startswith(f"{path.name}.backup-")
        try:
            if not is_private(copy):
                remaining.append(_UNREAD.format(shown(copy)))
            elif is_ours and _rewrite(copy, connection, redactions):
                rewritten.append(str(copy))
            elif not is_ours and _has_texts(copy, connection, redactions):
                remaining.append(_NAMED.format(shown(copy)))
        except (sqlite3.Error, OSError) as error:
            unfinished.append(_UNCHANGED.format(shown(copy), shown(str(error))))
    if not unfinished:
        connection.execute("DELETE FROM meta WHERE name = ?", (UNFINISHED,))
    return Scrubbed(tuple(rewritten), tuple(remaining), tuple(unfinished))


def _redactions(connection: sqlite3.Connection) -> list[PayloadRedacted]:
    reader = SqliteReader(connection, SqliteEventRecorder(), 0)
    events = (decode(it).event for it in reader.recorder.select_events(STORE_STREAM, unit=reader))
    return [it for it in events if isinstance(it, PayloadRedacted)]


def _copies(path: Path, connection: sqlite3.Connection) -> Iterator[Path]:
    """Files in the folder of the store that contain the same store, or cannot be read. Removes those that a killed
    process left half written: the processes that write them hold the write lock."""
    store_id = _store_id(connection)
    for found in sorted(path.parent.iterdir()):
        if found.name.startswith(f"{path.name}.") and found.suffix in (".partial", ".restoring"):
            remove_database(found)
        elif _is_copy(found.name, path.name) and not (found.exists() and found.samefile(path)):
            if not is_private(found):
                yield found
                continue
            with suppress(sqlite3.Error), closing(_connect(found, "ro", "&immutable=1")) as other:
                if _store_id(other) == store_id:
                    yield found


def _is_copy(name: str, store: str) -> bool:
    """Whether a file may be a copy, by its name. No other file is opened: closing one drops the locks that this process
    has on it, such as those of SQLite on the shared memory of the store (https://www.sqlite.org/howtocorrupt.html)."""
    if name.startswith((f"{store}.backup-", f"{store}.before-restore-")):
        return not name.endswith(SIDE_FILES)
    return name.endswith(".backup")


def _connect(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{uri_of(path, mode)}{more}", uri=True, isolation_level=None, timeout=1.0)


def _store_id(connection: sqlite3.Connection) -> str | None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return None
    found = connection.execute("SELECT value FROM meta WHERE name = 'store_id'").fetchone()
    return None if found is None else str(found[0])


def _has_texts(copy: Path, connection: sqlite3.Connection, redactions: Sequence[PayloadRedacted]) -> bool:
    with closing(_connect(copy, "ro", "&immutable=1")) as other:
        return any(kept_texts(other, connection, it) for it in redactions)


def _rewrite(copy: Path, connection: sqlite3.Connection, redactions: Sequence[PayloadRedacted]) -> bool:
    """Remove redacted texts from a backup that a migration left. Returns whether it had any."""
    with closing(_connect(copy, "rw")) as other:
        other.execute("PRAGMA secure_delete = ON")
        other.execute("PRAGMA synchronous = FULL")
        other.execute("BEGIN IMMEDIATE")
        has_any = False
        for event in redactions:
            versions = [remove_kept_text(other, event, *it) for it in kept_texts(other, connection, event)]
            has_any = has_any or bool(versions)
            if event.part == "payload":
                _remove_from_views(other, event.target, versions)
        for (table, column), statement in _FORGET.items() if has_any else ():
            if column in {row[1] for row in other.execute(f"PRAGMA table_info({table})")}:
                other.execute(statement)
        other.execute("COMMIT")
        if has_any:
            other.execute("VACUUM")
    return has_any


def _remove_from_views(copy: sqlite3.Connection, stream: str, versions: Sequence[int]) -> None:
    tables = tables_there(copy)
    is_older = version_of(copy) // MINORS_PER_MAJOR < MAJOR
    for version in versions:
        change = redact_view(stream, version, "null" if is_older else None)
        if change is not None and change.table in tables:
            copy.execute(for_sqlite(change.statement), change.parameters)
