"""The store in a PostgreSQL database that servers on many hosts share."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import psycopg

from holdlog.adapters.operating_system import platform
from holdlog.adapters.operating_system.deadline import Deadline
from holdlog.adapters.stores.postgres.catalog import SELECT_SIZE
from holdlog.adapters.stores.postgres.connection import (
    CONNECT_SECONDS,
    Connection,
    connect,
    has_failed,
    is_idle,
    is_over,
)
from holdlog.adapters.stores.postgres.faults import first_line, is_lost, refusal_of
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.target import DatabaseTarget
from holdlog.adapters.stores.postgres.timeout_connection import SILENT_SECONDS, TimeoutConnection
from holdlog.adapters.stores.postgres.transaction import PostgresReader, PostgresTransaction
from holdlog.domain.ports import NOTHING, Prefetch, Scrubbed
from holdlog.domain.redaction import UNFINISHED
from holdlog.domain.refusals import ConnectionLostError, HoldlogError, StoreError, UnavailableError

IDLE_READERS: Final = 16
FIRST_PAUSE: Final = 0.02
LAST_PAUSE: Final = 1.0
"""Maximum seconds between attempts to connect; each pause is twice the one before."""
RESOLVE_SECONDS: Final = 15.0
"""Seconds to find out the fate of a commit whose answer was lost: enough for most restarts of a database
(docs/decisions/0045-lost-commits.md)."""

_VACUUM: Final = (
    "PostgreSQL keeps former versions of rows until they are vacuumed: to overwrite them, run VACUUM FULL in the"
    " database of the store; its write-ahead log, replicas and dumps keep them longer"
)

Clock = Callable[[], int]


class PostgresStore:
    """An open store (see opening.py). Thread-safe; must not be used across a fork.

    `clock` and `steady`, in microseconds, are the database's unless tests pass others.
    """

    remote = True

    def __init__(self, target: DatabaseTarget, clock: Clock | None = None, steady: Clock | None = None) -> None:
        self.target = target
        self.recorder = PostgresEventRecorder(target, self)
        self._clock = clock
        self._steady = steady
        self._offset = 0
        self._idle: deque[Connection] = deque()
        self._writing: PostgresTransaction | None = None
        self._lock = _OwnedLock()
        self._owner = os.getpid()
        self._closed = False

    # --- clocks

    def now(self) -> int:
        """The database's clock, as last known here: microseconds UTC."""
        return self._clock() if self._clock else platform.elapsed() + self._offset

    def steady(self) -> int:
        """The clock of leases."""
        return self._steady() if self._steady else platform.elapsed() + self._offset

    def observe_clock(self, now: int) -> None:
        self._offset = now - platform.elapsed()

    # --- the port

    def reader(self, snapshot: bool = False) -> PostgresReader:
        self._usable()
        now = self.now()
        connection = self.borrow()
        if snapshot:
            try:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            except psycopg.Error as error:
                connection.close()
                raise refusal_of(error) from error
        return PostgresReader(connection, self.recorder, now, self)

    def snapshot(self) -> PostgresReader:
        return self.reader(snapshot=True)

    def transaction(self, deadline: float, prefetch: Callable[[], Prefetch] | None = None) -> PostgresTransaction:
        self._usable()
        return self._begin(deadline, prefetch() if prefetch else NOTHING)

    def size(self) -> int:
        with self.reader() as reader:
            return int(reader.connection.execute(SELECT_SIZE, ()).fetchall()[0][0])

    def scrub(self) -> Scrubbed:
        with self.transaction(time.monotonic() + CONNECT_SECONDS) as transaction:
            transaction.later("DELETE FROM meta WHERE name = :name", {"name": UNFINISHED})
        return Scrubbed(remaining=(_VACUUM,))

    def rollback_interrupted(self) -> None:
        if self._lock.is_mine():
            self.end()

    def close(self) -> None:
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        if self._writing is not None and self._lock.acquire(timeout=1.0):
            self._writing.connection.close()
            self._lock.release()
        while self._idle:
            self._idle.pop().close()

    def detach_after_fork(self) -> None:
        """In a forked child: abandon the sockets, because closing them properly would end the parent's connections."""
        self._closed = True
        _inherited.append((self._writing, list(self._idle)))

    # --- connections

    def connect(self, deadline: float) -> TimeoutConnection:
        """Connect, retrying until the deadline (`time.monotonic` seconds). Raises UnavailableError, StoreError."""
        pause = FIRST_PAUSE
        while True:
            try:
                return connect(self.target)
            except psycopg.Error as error:
                refusal = refusal_of(error)
                if isinstance(refusal, StoreError) or time.monotonic() + pause >= deadline:
                    raise refusal from error
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    def borrow(self) -> Connection:
        while self._idle:
            with suppress(IndexError):
                connection = self._idle.pop()
                if not is_over(connection):
                    return connection
                connection.close()
        made = self.connect(time.monotonic() + CONNECT_SECONDS)
        made.silence = SILENT_SECONDS
        return made

    def end_read(self, reader: PostgresReader) -> None:
        try:
            if not is_idle(reader.connection):
                reader.connection.execute("COMMIT")  # after a ROLLBACK psycopg forgets all prepared statements
        except psycopg.Error:
            reader.connection.close()

    def give_back(self, reader: PostgresReader, error: BaseException | None) -> None:
        connection = reader.connection
        lost = isinstance(error, psycopg.Error) and is_lost(error)
        if not (lost or self._closed or connection.closed) and len(self._idle) < IDLE_READERS:
            self._idle.append(connection)
        else:
            connection.close()

    # --- one write at a time

    def _begin(self, deadline: float, prefetch: Prefetch) -> PostgresTransaction:
        """Acquire the lock and begin; the caller must call `end`. On UnavailableError or StoreError the lock is
        released."""
        if self._lock.is_mine() or not Deadline(deadline).acquire(self._lock):
            raise UnavailableError("another thread is writing to the store; try again")
        try:
            self._usable()
            while True:
                stopped = 0.0
                try:
                    if self._writing is None or is_over(self._writing.connection):
                        self.forget()
                        connection = self.connect(deadline)
                        connection.silence = SILENT_SECONDS
                        self._writing = PostgresTransaction(connection, self.recorder, self, self._clock, self._steady)
                    stopped = _stopped(self._writing)
                    self.observe_clock(self._writing.begin(deadline, prefetch))
                    return self._writing
                except psycopg.Error as error:
                    if (meanwhile := _stopped(self._writing) - stopped) > 0:
                        deadline += meanwhile  # the database timed out, but this process did not run meanwhile
                        self.forget()
                        continue
                    if not is_lost(error):
                        raise refusal_of(error) from error
                    self.forget()  # nothing was written yet: retry on a new connection
                    if time.monotonic() + FIRST_PAUSE >= deadline:
                        raise refusal_of(error) from error
                    time.sleep(FIRST_PAUSE)
        except BaseException:
            self.end()
            raise

    def commit(self, transaction: PostgresTransaction) -> None:
        """Commit. Raises UnavailableError, in doubt only if the transaction's fate cannot be determined."""
        try:
            transaction.commit()
        except psycopg.Error as error:
            if not is_lost(error):
                raise refusal_of(error) from error
            self.forget()
            if transaction.wrote and not self._resolved(transaction, error):
                raise refusal_of(error) from error

    def end(self) -> None:
        """Roll back what was not committed, and admit the next writer."""
        try:
            writing = self._writing
            if writing is not None and has_failed(writing.connection):
                self.forget()  # psycopg may consider statements prepared that followed the error in its pipeline
            elif writing is not None and not is_idle(writing.connection):
                with suppress(psycopg.Error):
                    writing.connection.pgconn.exec_(b"ROLLBACK")  # psycopg's own would forget all prepared statements
                if not is_idle(writing.connection):
                    self.forget()
        finally:
            self._lock.release()

    def _resolved(self, transaction: PostgresTransaction, lost: psycopg.Error) -> bool:
        """Whether the transaction whose answer was lost was committed. Raises UnavailableError in doubt.

        While this process holds the log's lock, no other transaction writes: ours has ended, and its last event is
        in the log or never will be. (PostgreSQL's status of the transaction does not prove it: after a crash, it reuses
        the numbers of transactions that left nothing on disk.) Without events, or without a unique digest, there is no
        proof.
        """
        deadline = time.monotonic() + RESOLVE_SECONDS
        while transaction.grew and (left := deadline - time.monotonic()) > 0:
            with suppress(psycopg.Error, UnavailableError, StoreError), self.connect(deadline) as connection:
                connection.execute("BEGIN")
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{max(1, round(left * 1000))}ms",))
                connection.execute(self.recorder.lock)
                unit = PostgresReader(connection, self.recorder, 0)
                found = self.recorder.digest_at(transaction.position(), unit) == transaction.last_digest
                if not found or transaction.is_unique:
                    return found
                break  # the same command of another process may have made the event
            time.sleep(FIRST_PAUSE)
        kind = UnavailableError if transaction.grew else ConnectionLostError
        raise kind(f"the connection was lost at the commit: {first_line(lost)}", in_doubt=True) from lost

    def forget(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            with suppress(psycopg.Error):
                writing.connection.close()

    def fail(self, error: BaseException) -> None:
        if isinstance(error, psycopg.Error) and is_lost(error):
            self.forget()

    def refusal_of(self, error: BaseException | None) -> HoldlogError | None:
        return refusal_of(error) if isinstance(error, psycopg.Error) else None

    def _usable(self) -> None:
        if self._closed:
            raise StoreError.forked() if self._owner != os.getpid() else StoreError.closed()


_inherited: list[Any] = []
"""Connections of a parent process, never closed here."""


def _stopped(writing: PostgresTransaction | None) -> float:
    """Seconds that this process was stopped while it waited for this connection."""
    return writing.connection.stopped if writing and isinstance(writing.connection, TimeoutConnection) else 0.0


class _OwnedLock:
    """A lock that knows its owner from the moment of acquisition, whatever interrupts follow. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, *, timeout: float) -> bool:
        return not self.is_mine() and self._lock.acquire(timeout=max(0.0, timeout))

    def release(self) -> None:
        self._lock.release()

    def is_mine(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]
