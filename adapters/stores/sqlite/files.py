"""Whole database files: copy and remove them."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.private import open_private
from holdlog.adapters.stores.sqlite.recorder import configure, uri_of
from holdlog.domain.progress import Progress, ignore_progress

SIDE_FILES: Final = ("-journal", "-wal", "-shm")
"""Suffixes of files that SQLite would apply to a new database of the same name."""
STEP_PAGES: Final = 256
"""Pages that SQLite copies between two calls of `progress`."""


def copy_database(source: sqlite3.Connection, target: Path, progress: Progress = ignore_progress) -> None:
    """Copy all pages to a new file, which is complete and on the disk when this returns. After a failure there is no
    such file."""
    remove_database(target)  # left by a killed attempt
    try:
        os.close(open_private(target, os.O_RDWR | os.O_EXCL))
        with closing(sqlite3.connect(uri_of(target), uri=True, isolation_level=None)) as copy:
            configure(copy)
            source.backup(copy, pages=STEP_PAGES, progress=lambda _, left, total: progress(total - left, total))
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a separate log
    except BaseException:
        with suppress(OSError):
            remove_database(target)
        raise


def remove_database(database: Path) -> None:
    """Remove a database, its side files first."""
    for suffix in (*SIDE_FILES, ""):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
