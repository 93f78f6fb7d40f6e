"""Put a backup in the place of a store. The replaced store is kept under another name
(docs/decisions/0052-backup-and-restore.md)."""

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from holdlog.adapters.operating_system.location import LocationError, prepare_folder, require_local, shown
from holdlog.adapters.operating_system.presence import connected
from holdlog.adapters.operating_system.private import require_own, sync_folder
from holdlog.adapters.stores.sqlite.backup import connect, contents_of
from holdlog.adapters.stores.sqlite.database import kept_names
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.adapters.stores.sqlite.faults import is_busy
from holdlog.adapters.stores.sqlite.files import SIDE_FILES, copy_database, remove_database
from holdlog.adapters.stores.sqlite.opening import require_ours, write_locked
from holdlog.adapters.stores.sqlite.recorder import missing_events
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError, UnavailableError


class LostEvents(NamedTuple):
    """Events of the replaced store that the restored one does not have. `first`, `last`: their positions, if any."""

    events: int
    first: int | None
    last: int | None


class RestoreReport(NamedTuple):
    """A finished restore. `kept`: the replaced store; None if there was none. `same_store`: it had the same store id.
    `unchecked`: what could not be verified, because the schema is older."""

    store: str
    store_id: str
    position: int
    kept: str | None
    same_store: bool
    lost: LostEvents
    unchecked: bool


def restore(path: Path, backup: Path, progress: Progress = ignore_progress) -> RestoreReport:
    """Replace the store `path` by `backup`, after verifying all of it.

    Requires that no process has the store open. A kill at any moment leaves the old store or the new one. Raises
    StoreError, UnavailableError; then the store is the old one.
    """
    _require_backup(path, backup)
    try:
        require_local(path)
        prepare_folder(path)
    except LocationError as error:
        raise StoreError(str(error)) from None
    require_own(path)
    restored = path.with_name(f"{path.name}.restoring")
    try:
        with write_locked(path):
            _require_unused(path)
            try:
                return _replace(path, backup, restored, progress)
            finally:
                with suppress(OSError):
                    remove_database(restored)
    except sqlite3.Error as error:
        raise UnavailableError(f"{shown(backup)} cannot be restored: {error}; the store is unchanged") from error
    except OSError as error:
        where = shown(Path(error.filename or path))
        raise UnavailableError(f"{where} cannot be written: {error.strerror}; the store is unchanged") from error


def _require_backup(path: Path, backup: Path) -> None:
    try:
        found = os.stat(backup)
    except OSError as error:
        raise StoreError(f"{shown(backup)} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{shown(backup)} is not a file; name a backup")
    if path.exists() and path.samefile(backup):
        raise StoreError(f"{shown(backup)} is the store itself; name a backup")


def _require_unused(path: Path) -> None:
    if found := connected(path):
        others = "; ".join(f"{shown(it.what)}, process {it.pid}" for it in found)
        raise UnavailableError(f"the store is in use by {others}; stop all of its processes, then restore")


def _replace(path: Path, backup: Path, restored: Path, progress: Progress) -> RestoreReport:
    """The steps, while the write lock is held. Until the file is replaced, each leaves the old store complete."""
    with closing(connect(backup, "ro")) as source:
        require_ours(backup, source)
        copy_database(source, restored, progress)
    unchecked = _verify(restored, backup, progress)
    with closing(connect(restored, "ro")) as copy:
        contents = contents_of(copy)
    kept, same_store, lost = None, True, LostEvents(0, None, None)
    if os.path.lexists(path):
        for name in kept_names(path):
            name.unlink()  # left by a killed restore
        same_store, lost = _detach(path, restored, contents.store_id)
        kept = _kept_name(path)
        os.link(path, kept)
    else:
        remove_database(path)  # side files without a store
    remove_database(path.with_name(f"{path.name}.views"))  # read models of the replaced log; rebuilt when next read
    os.replace(restored, path)
    sync_folder(path.parent)
    return RestoreReport(str(path), *contents, None if kept is None else str(kept), same_store, lost, unchecked)


def _verify(restored: Path, backup: Path, progress: Progress) -> bool:
    """Check all that doctor checks. Returns whether something could not be checked. Raises StoreError."""
    findings = examine(restored, progress)
    for finding in findings:
        if finding.level == "bad":
            why = f"{finding.name}: {finding.text}"
            raise StoreError(f"{shown(backup)} is not sound ({why}); the store is unchanged; use another backup")
    return any(it.name == "log" and it.level == "warn" for it in findings)


def _detach(path: Path, restored: Path, store_id: str) -> tuple[bool, LostEvents]:
    """Move the write-ahead log of the current store into its file, so that this is complete without side files, and
    count the events that it alone has. SQLite refuses this while any other connection is open."""
    try:
        with closing(connect(path, "rw")) as current:
            require_ours(path, current)
            current.execute("PRAGMA busy_timeout = 0")
            (mode,) = current.execute("PRAGMA journal_mode = DELETE").fetchone()
            if mode != "delete":
                raise UnavailableError("a process has the store open; stop all of its processes, then restore")
            current.execute("ATTACH ? AS restored", (str(restored),))
            lost = LostEvents(*missing_events(current, "restored"))
            return contents_of(current).store_id == store_id, lost
    except sqlite3.Error as error:
        if is_busy(error):
            raise UnavailableError("a process has the store open; stop all of its processes, then restore") from None
        why = str(error)
    except StoreError as error:
        why = str(error)
    names = " ".join(shown(path.with_name(path.name + suffix)) for suffix in ("", *SIDE_FILES))
    raise StoreError(f"the current store cannot be read ({why}); move it away, then restore: {names}")


def _kept_name(path: Path) -> Path:
    """An unused name for the replaced store."""
    while True:
        name = path.with_name(f"{path.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        if not os.path.lexists(name):
            return name
        time.sleep(0.1)
