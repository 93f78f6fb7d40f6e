"""What a store is. There are two: a SQLite file (or memory), and a schema of PostgreSQL."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

from holdlog.domain.moment import Caller
from holdlog.domain.state import Reads, State

LOCK_SECONDS: Final = 5.0
"""How long a command waits for a write lock, of this process or of the store."""
MARK_AFTER: Final = 5_000_000
"""Microseconds. A process records the time of a commit at most this often. So a longer gap is a silence of all."""


class Head(NamedTuple):
    """The end of the log. `at`: the time of its last event, in microseconds since 1970."""

    position: int
    digest: bytes
    at: int


class Request(NamedTuple):
    """A remembered request. `fingerprint` identifies its arguments, `result` is JSON; both are empty if the result was
    redacted. `position`: the end of the log after it. `at`: microseconds since 1970. Key: `find_key`."""

    position: int
    at: int
    fingerprint: str
    result: str


def find_key(caller: Caller) -> tuple[str, str]:
    """Principal and request id."""
    return caller.principal or "", caller.request_id or ""


class Batch:
    """A transaction between `begin` and `commit`: what its commands read, and what they add. Pure Python. `at`: its
    time, in microseconds since 1970. `steady`: the clock of leases, in microseconds."""

    __slots__ = ("at", "head", "refusals", "remembered", "requests", "rows", "state", "steady")

    def __init__(self, head: Head, at: int, steady: int, state: State) -> None:
        self.head = head
        self.at = max(at, head.at + 1)  # no two transactions have the same time, even if the clock was set back
        self.steady = steady
        self.state = state
        self.requests: dict[tuple[str, str], Request] = {}
        """By principal and request id."""
        self.remembered: list[tuple[str, str]] = []
        """Keys of `requests` that this transaction adds."""
        self.refusals: list[Any] = []
        """New rows of the table `refusals`."""
        self.rows: list[Any] = []
        """New rows of the table `events`."""


class Reader(Protocol):
    """Where queries read: the store, or a snapshot of it."""

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        """The rows of one of the queries in stores/sql.py."""

    def now(self) -> int:
        """The clock by which values expire: microseconds since 1970."""

    def steady(self) -> int:
        """The clock of leases: microseconds."""

    def snapshot(self) -> "AbstractContextManager[Reader]":
        """A reader of one state of the store, for several queries."""


class Snapshot:
    """A reader of one state of the store. `execute` runs a query in a transaction and returns its rows."""

    def __init__(self, execute: Callable[[str, dict[str, Any]], Any], now: int, steady: int) -> None:
        self._execute = execute
        self._now = now
        self._steady = steady

    def read(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return list(self._execute(query, parameters))

    def now(self) -> int:
        return self._now

    def steady(self) -> int:
        return self._steady

    def snapshot(self) -> AbstractContextManager[Reader]:
        return nullcontext(self)


class Listener(Protocol):
    """A thread that follows the commits of other processes."""

    def close(self) -> None:
        """Stop the thread. Waits for its current call of `wake`."""


class Store(Reader, Protocol):
    """The log with its views. Raises UnavailableError and StoreError from each method."""

    is_local: bool
    """Whether a read of one row takes microseconds, so that an event loop may do it."""

    def begin(self, reads: Sequence[tuple[Reads, Caller]]) -> Batch:
        """Take the write lock within LOCK_SECONDS, begin a transaction and read what the commands need. The caller
        must call `commit` or `abort`."""

    def execute(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        """Run a statement that both databases understand between `begin` and `commit`. Returns the rows of a query."""

    def append(self, batch: Batch) -> None:
        """Write the rows of the batch without committing: more may follow. If that fails, undo the transaction."""

    def commit(self, batch: Batch) -> None:
        """Write the rows of the batch and what it changed in the views, durably; release the write lock and wake other
        processes."""

    def abort(self) -> None:
        """Undo and release whatever this thread has begun, after an error or an interrupt."""

    def backup(self, path: str) -> Head:
        """Write a whole copy of the store to an empty file, while others write. Returns the end of its log."""

    def erase(self) -> None:
        """Remove copies of redacted texts outside of the tables, such as in the write-ahead log. Raises
        UnavailableError if other processes prevent it."""

    def list_damage(self) -> list[str]:
        """What is wrong in the database below the tables, one line for each problem. Reads the whole database."""

    def listen(self, wake: Callable[..., None]) -> Listener:
        """Call `wake` after commits of other processes, and if notifications, or with True commits, may be lost."""

    def close(self) -> None:
        """Release everything, after the current transaction has ended."""
