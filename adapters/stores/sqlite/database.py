"""Where the tables of a store are: in a file that processes share (here), or in memory (memory.py)."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.write_lock import OneWriter
from holdlog.adapters.stores.sqlite.damage_check import DamageCheck
from holdlog.adapters.stores.sqlite.faults import refusal_of
from holdlog.adapters.stores.sqlite.recorder import configure, uri_of
from holdlog.domain.ports import Scrubbed
from holdlog.domain.refusals import ReplacedError

RECOVERY: Final = 2.0
"""Busy timeout in seconds. Only a process that creates or removes the write-ahead log blocks readers."""


class Database:
    """Opens connections to the tables of one store."""

    write_lock: OneWriter
    damage_check: DamageCheck | None
    uri: str
    """SQLite's name of it."""
    why_read_only: str | None = None
    """Why this process can read it, but not write it, in one line; None if it can."""

    def connect(self) -> sqlite3.Connection:
        """Open a connection; the caller must hold the write lock to close it. Raises UnavailableError."""
        raise NotImplementedError

    def connect_writer(self) -> sqlite3.Connection:
        """Open the connection that writes. Raises UnavailableError."""
        raise NotImplementedError

    def commit(self, writer: sqlite3.Connection) -> None:
        """Commit, without an effect on reads that run. Raises sqlite3.Error, UnavailableError."""
        raise NotImplementedError

    def may_reuse(self, connection: sqlite3.Connection) -> bool:
        """Whether a connection that has served a reader may serve another one; else it is closed. Raises
        UnavailableError if what was read may be inconsistent."""
        return True

    def require_same(self) -> None:
        """Raise UnavailableError if new connections would reach something else. Nothing else can, in memory."""

    def size(self) -> int:
        """Bytes that it occupies."""
        raise NotImplementedError

    def scrub(self) -> Scrubbed:
        """Remove redacted texts from its files, while the caller holds the write lock. Raises UnavailableError."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what it has opened for itself: nothing, for a file."""

    def detach_after_fork(self) -> None:
        """In a forked child: never open it again. Memory is copied, and freed when the child ends."""


class DatabaseFile(Database):
    """The file at `path`, with its write-ahead log."""

    def __init__(self, path: Path, write_lock: OneWriter) -> None:
        self.path = path
        self.uri = uri_of(path)
        self.write_lock = write_lock
        self.damage_check = DamageCheck(path)
        self._path = str(path)  # os.stat of a Path costs another microsecond
        self._identity = identity_of(path)

    def connect(self) -> sqlite3.Connection:
        self.require_same()
        try:
            connection = sqlite3.connect(
                self.uri, uri=True, check_same_thread=False, isolation_level=None, timeout=RECOVERY
            )
            configure(connection)
        except sqlite3.Error as error:
            raise refusal_of(error, damage_check=self.damage_check) from error
        return connection

    connect_writer = connect

    def commit(self, writer: sqlite3.Connection) -> None:
        writer.execute("COMMIT")

    def require_same(self) -> None:
        if identity_of(self._path) != self._identity:
            raise ReplacedError(self._path)

    def size(self) -> int:
        return size_of(self.path)

    def scrub(self) -> Scrubbed:
        from holdlog.adapters.stores.sqlite.scrubbing import scrub

        with closing(self.connect()) as connection:
            return scrub(self.path, connection)

    def detach_after_fork(self) -> None:
        if self._identity is not None:
            inherited.add(self._identity)


inherited: set[tuple[int, int]] = set()
"""Files (device, inode) that this process may not open, because its parent had them open at the fork."""


def identity_of(path: Path | str) -> tuple[int, int] | None:
    """Device and inode of a file, None if it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def file_id(path: Path) -> str:
    """The identity of a file as text, for `ConnectedProcess.file`; empty if it is missing."""
    found = identity_of(path)
    return "" if found is None else f"{found[0]}:{found[1]}"


def kept_names(path: Path) -> list[Path]:
    """Second names of the store's file: a restore was killed after it gave the file one, before it replaced the
    file."""
    try:
        if os.stat(path).st_nlink == 1:
            return []
    except OSError:
        return []
    prefix = f"{path.name}.before-restore-"
    return [it for it in path.parent.iterdir() if it.name.startswith(prefix) and it.samefile(path)]


def size_of(path: Path) -> int:
    """Bytes of a file with its write-ahead log."""
    return sum(_bytes_of(path.with_name(path.name + suffix)) for suffix in ("", "-wal"))


def _bytes_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
