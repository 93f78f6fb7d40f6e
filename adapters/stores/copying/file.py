"""Copies from a file, and to one. A copy to a file is written next to its location, and renamed when it is complete."""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.location import LocationError, is_there, prepare_folder, require_local, shown
from holdlog.adapters.operating_system.private import open_private, require_own, sync_folder, why_open
from holdlog.adapters.stores.copying.source import CopySource
from holdlog.adapters.stores.copying.writing import OccupiedError
from holdlog.adapters.stores.event_log.sealing import file_triggers
from holdlog.adapters.stores.sqlite.faults import refusal_of
from holdlog.adapters.stores.sqlite.files import SIDE_FILES, remove_database
from holdlog.adapters.stores.sqlite.opening import Report, open_sqlite, write_locked
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder, configure, uri_of
from holdlog.adapters.stores.sqlite.rows import SqliteReader, SqliteTransaction
from holdlog.adapters.stores.sqlite.schema import create_tables, make_ours, put_statement
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.projections.projection import Row, Table

LOCK_TIMEOUT: Final = 1.0
"""Seconds to wait for the target's write lock. Creating a store holds it only briefly; another copy would hold it for
long."""
_SUFFIX: Final = ".copying"
_LOG: Final = SqliteEventRecorder()


@contextmanager
def open_file_source(path: Path, report: Report = lambda line: None) -> Iterator[CopySource]:
    """Open an existing store. Raises StoreError if there is none."""
    try:
        if not is_there(path):
            raise StoreError(f"there is no store at {path}; check the path")
    except LocationError as error:
        raise StoreError(str(error)) from None
    with closing(open_sqlite(path, report=report)) as store:
        yield CopySource(shown(path), store, lambda reader: platform.steady(), _create_triggers)


class FileTarget:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = shown(path)
        self._partial = path.with_name(path.name + _SUFFIX)
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def prepared(self) -> Iterator[None]:
        self._require_free()
        lock_path = self.path.with_name(self.path.name + ".gate")
        try:
            require_local(self.path)
            prepare_folder(self.path)
            require_own(self.path)
            if (is_open := why_open(self.path)) is not None:
                raise is_open
            guarded = lock_path.exists()
            with write_locked(self.path, LOCK_TIMEOUT):
                try:
                    self._require_free()
                    self._begin()
                    yield
                except BaseException:
                    if not guarded:
                        lock_path.unlink(missing_ok=True)
                    raise
                finally:
                    self._clear_away()
        except LocationError as error:
            raise StoreError(str(error)) from None
        except sqlite3.Error as error:
            raise refusal_of(error) from error
        except OSError as error:
            raise UnavailableError(f"{self.name} cannot be written ({error.strerror})") from error

    def put(self, table: Table, rows: Sequence[Row]) -> None:
        self._open().executemany(put_statement(table), rows)

    def put_events(self, rows: Sequence[Row]) -> None:
        _LOG.restore(rows, SqliteReader(self._open(), _LOG, 0))

    def events_by_stream(self) -> Iterator[Row]:
        """Read the events from the file, through a new connection without cached pages."""
        self._open().execute("COMMIT")
        self._open().close()
        return _LOG.all_by_stream(SqliteReader(self._connect(synchronous=True), _LOG, 0))

    def steady(self) -> int:
        return platform.steady()

    def publish(self, store_id: str, meta: Mapping[str, str]) -> None:
        connection = self._open()
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        make_ours(connection, store_id)
        connection.execute("COMMIT")  # syncs the whole file, including earlier writes
        connection.close()
        self._connection = None
        os.replace(self._partial, self.path)
        sync_folder(self.path.parent)

    @contextmanager
    def as_source(self) -> Iterator[CopySource]:
        with open_file_source(self.path) as source:
            yield source

    def _require_free(self) -> None:
        if os.path.lexists(self.path):
            raise OccupiedError(f"there is already a file at {self.name}; name a location that does not exist yet")
        for suffix in SIDE_FILES:
            if os.path.lexists(self.path.with_name(self.path.name + suffix)):
                raise StoreError(
                    f"{self.name}{suffix} is left over from another store; move it away, or name another location"
                )

    def _begin(self) -> None:
        remove_database(self._partial)  # left by a copy that was killed
        os.close(open_private(self._partial, os.O_RDWR | os.O_EXCL))
        create_tables(self._connect(synchronous=False))

    def _connect(self, synchronous: bool) -> sqlite3.Connection:
        """Open the file, which nobody reads before it is complete, so that it needs no journal."""
        self._connection = sqlite3.connect(uri_of(self._partial), uri=True, isolation_level=None)
        configure(self._connection)
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if synchronous else 'OFF'}")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _clear_away(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        with suppress(OSError):
            remove_database(self._partial)


def _create_triggers(transaction: SqliteTransaction, line: str) -> None:
    for statement in file_triggers(line):
        transaction.connection.execute(statement)
