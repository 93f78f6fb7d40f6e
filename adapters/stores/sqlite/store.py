"""The store in SQLite: in a file that many processes share, or in memory."""

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.deadline import Deadline
from holdlog.adapters.stores.sqlite.database import Database
from holdlog.adapters.stores.sqlite.faults import code_of, is_busy, is_damage, refusal_of
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder
from holdlog.adapters.stores.sqlite.rows import SqliteReader, SqliteTransaction
from holdlog.domain.ports import Prefetch, Scrubbed
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError

IDLE_READERS: Final = 16
SCRUB_SECONDS: Final = 30.0
"""Longest wait for other writers before redacted texts are removed from files."""
_BUSY_NAP: Final = 0.001
_LOCKED: Final = "the store is locked by a program other than holdlog, which does not release it; try again"


class SqliteStore:
    """An open store (see opening.py, memory.py). Thread-safe; must not be used across a fork.

    `clock`: microseconds UTC; `steady`: monotonic microseconds, comparable between all processes until a reboot.
    """

    remote = False
    session_salt: str | None = None
    """The salt if it was read when the store was opened; using it needs no connection."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], int] = platform.now,
        steady: Callable[[], int] = platform.steady,
    ) -> None:
        self.database = database
        self.write_lock = database.write_lock
        self.why_read_only = database.why_read_only
        self.clock = clock
        self._steady = steady
        self.recorder = SqliteEventRecorder(self)
        self._idle: deque[sqlite3.Connection] = deque()
        self._discarded: deque[sqlite3.Connection] = deque()
        self._writing: SqliteTransaction | None = None
        self._watcher: sqlite3.Connection | None = None
        self._data_version = 0
        self._owner = os.getpid()
        self._closed = False

    def reader(self, snapshot: bool = False) -> SqliteReader:
        if self._closed:
            raise self._refusal()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.database.connect()
        else:
            self._require_same(connection)
        now = self.clock()  # before the first read: a claim renewed later must not look expired
        if snapshot:
            connection.execute("BEGIN")  # reads nothing yet, so it cannot fail
        return SqliteReader(connection, self.recorder, now, self)

    def _require_same(self, connection: sqlite3.Connection) -> None:
        try:
            self.database.require_same()
        except UnavailableError:
            self._idle.append(connection)  # closed with the others, while holding the write lock
            raise

    def snapshot(self) -> SqliteReader:
        return self.reader(snapshot=True)

    def transaction(self, deadline: float, prefetch: Callable[[], Prefetch] | None = None) -> SqliteTransaction:
        if self._closed:
            raise self._refusal()
        undisturbed = self.write_lock.acquire(deadline)
        try:
            self.database.require_same()
            if self._writing is None:
                connection = self.database.connect_writer()
                self._writing = SqliteTransaction(connection, self.recorder, self, self.clock, self._steady)
            elif not undisturbed:
                self._writing.forget()
            try:
                self._writing.begin()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                self._begin_when_free(self._writing, Deadline(deadline))
            return self._writing
        except sqlite3.Error as error:
            self.fail(error)
            self.end()
            raise refusal_of(error, damage_check=self.database.damage_check) from error
        except BaseException:
            self.end()
            raise

    def size(self) -> int:
        return self.database.size()

    def scrub(self) -> Scrubbed:
        if self._closed:
            raise self._refusal()
        self.write_lock.acquire(time.monotonic() + SCRUB_SECONDS)
        try:
            return self.database.scrub()
        except sqlite3.Error as error:
            raise refusal_of(error, damage_check=self.database.damage_check) from error
        finally:
            self.end()

    def changed(self) -> bool:
        """Whether another connection committed since the previous call, or the file was replaced; 3 µs. For one thread
        at a time."""
        if self._closed:
            return True
        try:
            if self._watcher is None:
                self._watcher = self.database.connect()
            else:
                self.database.require_same()
            seen, self._data_version = self._data_version, self._watcher.execute("PRAGMA data_version").fetchone()[0]
            if not self.database.may_reuse(self._watcher):
                self._watcher = None
                return True
        except (sqlite3.Error, UnavailableError):
            return True  # the reader that this wakes gets the error
        return seen != self._data_version

    def close(self) -> None:
        """Close all connections while holding the write lock: closing the last one moves the WAL into the file."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        try:
            self.write_lock.acquire(time.monotonic() + 1.0)
        except UnavailableError:
            _keep_for_ever(self)  # the write lock is stuck: the end of this process closes them
            return
        try:
            if self._writing is not None:
                self._writing.connection.close()
            if self._watcher is not None:
                self._watcher.close()
            self._close_discarded()
            while self._idle:
                self._idle.pop().close()
            self.database.close()
        finally:
            self.write_lock.release()
            self.write_lock.close()

    def detach_after_fork(self) -> None:
        """In a forked child: use nothing of the parent's, and never close its connections.

        SQLite in the child believes that it has the locks of these connections, which stayed with the parent: closing
        one, or opening the file again, could remove a write-ahead log that others use.
        """
        _keep_for_ever(self)
        if not self._closed:
            self.database.detach_after_fork()
        self._closed = True
        self.write_lock.close()

    def rollback_interrupted(self) -> None:
        """After an interrupt: roll back and release this thread's transaction, if any."""
        if self.write_lock.is_mine():
            self.end()

    # --- reads

    def end_read(self, reader: SqliteReader) -> None:
        if reader.connection.in_transaction:
            try:
                reader.connection.execute("ROLLBACK")
            except sqlite3.Error:
                reader.connection.close()
                reader.closed = True

    def give_back(self, reader: SqliteReader, error: BaseException | None) -> None:
        if reader.closed:
            return
        if isinstance(error, sqlite3.Error) and is_damage(error):
            self.discard(reader.connection)
        elif not self._closed and len(self._idle) < IDLE_READERS and self.database.may_reuse(reader.connection):
            self._idle.append(reader.connection)
        else:
            reader.connection.close()

    def discard(self, connection: sqlite3.Connection) -> None:
        """Close a connection that may have cached a wrong read. Holds the write lock, because it may be the last
        one."""
        self._discarded.append(connection)
        if self.write_lock.is_mine():
            return  # this thread's transaction closes it at its end
        with suppress(UnavailableError):
            self.write_lock.acquire(time.monotonic())
            try:
                self._close_discarded()
            finally:
                self.write_lock.release()

    # --- writes

    def end(self) -> None:
        """Roll back what was not committed, and release the write lock."""
        try:
            if self._writing is not None and self._writing.connection.in_transaction:
                self._close_open_transaction(self._writing.connection)
            if self._discarded:
                self._close_discarded()
        finally:
            self.write_lock.release()

    def _close_discarded(self) -> None:
        while self._discarded:
            with suppress(sqlite3.Error):
                self._discarded.pop().close()

    def _begin_when_free(self, transaction: SqliteTransaction, wait: Deadline) -> None:
        """Try again until the program that locked the file without the write lock has released it."""
        while not wait.passed():
            time.sleep(_BUSY_NAP)
            try:
                return transaction.begin()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
        raise UnavailableError(_LOCKED) from None

    def commit(self, transaction: SqliteTransaction) -> None:
        """Make the changes durable. Raises UnavailableError, with `in_doubt` if the result is unknown."""
        if not transaction.wrote:
            return
        try:
            self.database.commit(transaction.connection)
        except sqlite3.Error as error:
            # If the write itself failed, the commit cannot reappear. If only the sync failed, it may survive a crash.
            sure = is_busy(error) or code_of(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
            self.fail(error)
            raise refusal_of(error, in_doubt=not sure, damage_check=self.database.damage_check) from error
        if transaction.grew:
            transaction.last_time = transaction.at  # certain only after the commit

    def fail(self, error: BaseException) -> None:
        """Replace the write connection after reported damage, because it may have cached a wrong read."""
        if isinstance(error, sqlite3.Error) and is_damage(error) and self._writing is not None:
            connection = self._writing.connection
            if connection.in_transaction:
                self._close_open_transaction(connection)  # an unfinished statement would keep the lock after close()
            self._writing = None
            connection.close()

    def _close_open_transaction(self, connection: sqlite3.Connection) -> None:
        """Roll back the open transaction: left open, it would block all others as long as this process lives."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._writing = None
            connection.close()

    def refusal_of(self, error: BaseException | None) -> HoldlogError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return refusal_of(error, damage_check=self.database.damage_check)

    def _refusal(self) -> StoreError:
        return StoreError.forked() if self._owner != os.getpid() else StoreError.closed()


def _keep_for_ever(thing: object) -> None:
    """Leak a reference, so that not even the interpreter's exit finalizes the object."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
