"""Backups of a store file: one complete, verified file each; servers of the store continue meanwhile
(docs/decisions/0052-backup-and-restore.md)."""

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.location import CANNOT_WRITE, shown
from holdlog.adapters.operating_system.private import is_private, require_own, sync_folder
from holdlog.adapters.operating_system.write_lock import WriteLock
from holdlog.adapters.stores.sqlite.files import copy_database, remove_database
from holdlog.adapters.stores.sqlite.opening import LOCK_TIMEOUT, require_ours, write_locked
from holdlog.adapters.stores.sqlite.read_only import connect_to_read
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder, uri_of
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError, UnavailableError

_NAME: Final = re.compile(r"holdlog-(?P<store>[0-9a-z]{8})-(?P<time>\d{8}T\d{6}Z)-(?P<position>\d+)\.backup")


class BackupContents(NamedTuple):
    """Which store a file is, and the position of its last event."""

    store_id: str
    position: int


class BackupReport(NamedTuple):
    """A finished backup. `removed`: older backups of the same store that were removed; `bytes`: of the backup."""

    backup: str
    store_id: str
    position: int
    bytes: int
    removed: list[str]


def back_up(path: Path, folder: Path, keep: int, progress: Progress = ignore_progress) -> BackupReport:
    """Back up the store `path` into `folder`, and remove the oldest of its backups there, so that `keep` remain.

    The write lock is held only until the snapshot has begun; writers then continue. A kill at any moment leaves at most
    a partial file, which the next backup removes. Raises StoreError, UnavailableError; then there is no new backup.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise StoreError(f"{shown(folder)} is not a folder; create it first: mkdir -m 700 DIR")
    require_own(path)
    try:
        with closing(connect_to_read(path, LOCK_TIMEOUT)) as source:
            _begin_snapshot(path, source)
            require_ours(path, source)
            contents = contents_of(source)
            partial = folder / f"holdlog-{contents.store_id[:8]}.partial"
            require_own(partial)
            with _only_backup(partial):
                copy_database(source, partial, progress)
                _verify(partial, contents)
                backup = _publish(partial, contents)
                removed = _remove_older(backup, contents.store_id, keep)
    except sqlite3.Error as error:
        raise UnavailableError(f"{shown(path)} cannot be backed up to {shown(folder)}: {error}") from error
    except OSError as error:
        raise UnavailableError(
            f"{shown(Path(error.filename or folder))} cannot be written: {error.strerror}"
        ) from error
    return BackupReport(str(backup), *contents, backup.stat().st_size, [str(it) for it in removed])


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open an existing file, without a change to it."""
    return sqlite3.connect(uri_of(path, mode), uri=True, isolation_level=None, timeout=LOCK_TIMEOUT)


def contents_of(connection: sqlite3.Connection) -> BackupContents:
    """Raises StoreError if the file has no store id, sqlite3.Error."""
    reader = SqliteReader(connection, SqliteEventRecorder(), 0)
    store_id = reader.meta("store_id")
    if store_id is None:
        raise StoreError("the store has no id; run `holdlog doctor`")
    return BackupContents(store_id, reader.position())


def _begin_snapshot(path: Path, source: sqlite3.Connection) -> None:
    """While the snapshot is open, SQLite copies this moment, and writers append to the write-ahead log."""
    with ExitStack() as stack:
        try:
            stack.enter_context(write_locked(path))
        except OSError as error:
            if error.errno not in CANNOT_WRITE:  # else it is read without the lock, and verified below
                raise
        source.execute("BEGIN")
        source.execute("PRAGMA user_version").fetchone()  # the first read begins it


@contextmanager
def _only_backup(partial: Path) -> Iterator[None]:
    """Only one process at a time backs up a store to the same folder; removes the partial file afterwards."""
    lock_path = partial.with_suffix(".lock")
    with closing(WriteLock(lock_path)) as lock:
        try:
            lock.acquire(time.monotonic())
        except UnavailableError:
            raise UnavailableError(
                f"another backup of this store to {shown(partial.parent)} is running; wait until it is done"
            ) from None
        try:
            yield
        finally:
            with suppress(OSError):
                remove_database(partial)
                lock_path.unlink(missing_ok=True)
            lock.release()


def _verify(partial: Path, expected: BackupContents) -> None:
    """Read the copy back from the file: SQLite's full integrity check, the store id and the last position."""
    with closing(connect(partial, "ro")) as copy:
        require_ours(partial, copy)
        (problem,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if problem != "ok":
            raise StoreError(f"the store is damaged ({shown(problem)}), so no backup was made; run `holdlog doctor`")
        if contents_of(copy) != expected:
            raise StoreError("the backup differs from the store; it was removed; check the disk")


def _publish(partial: Path, contents: BackupContents) -> Path:
    while True:
        name = f"holdlog-{contents.store_id[:8]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{contents.position}.backup"
        backup = partial.with_name(name)
        if not os.path.lexists(backup):
            os.replace(partial, backup)
            sync_folder(partial.parent)
            return backup
        time.sleep(0.1)  # the previous backup of this position was made in the same second


def _remove_older(backup: Path, store_id: str, keep: int) -> list[Path]:
    """Remove all but the newest backups of the store. Leaves files alone that only look like one by name."""
    made = _NAME.fullmatch(backup.name)
    assert made is not None
    older = []
    for path in backup.parent.iterdir():
        found = _NAME.fullmatch(path.name)
        if found is None or path == backup or found["store"] != made["store"] or found["time"] > made["time"]:
            continue
        if _is_backup_of(path, BackupContents(store_id, int(found["position"]))):
            older.append((found["time"], int(found["position"]), path))
    removed = [path for *_, path in sorted(older)[: max(0, len(older) + 1 - keep)]]
    for path in removed:
        path.unlink()
    sync_folder(backup.parent)
    return removed


def _is_backup_of(path: Path, contents: BackupContents) -> bool:
    if not is_private(path) or not path.is_file():
        return False
    with (
        suppress(sqlite3.Error, StoreError),
        closing(sqlite3.connect(f"{uri_of(path, 'ro')}&immutable=1", uri=True)) as it,
    ):
        require_ours(path, it)
        return contents_of(it) == contents
    return False
