"""What the outside must offer, a sentence per method."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from holdlog.domain.claim import Claim, ClaimEvent
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.record import Record, RecordEvent


class RecordChange(NamedTuple):
    """An event decided for a record as it was before."""

    before: Record
    event: RecordEvent


class ClaimChange(NamedTuple):
    """An event decided for a claim as it was before."""

    before: Claim
    event: ClaimEvent


Change = RecordChange | ClaimChange


class Reader(Protocol):
    """Reads the views and the log. What is not there reads as its empty state, never as an error.

    `limit` is a number of rows; below 0 = all of them. A record is as its last event left it: what is due at a time
    tells `record.seen`.
    """

    @property
    def at(self) -> int:
        """The time that reads go by, the same for all of them: microseconds UTC, never before that of an event."""

    def position(self) -> int:
        """The position of the newest event; 0 when there is none."""

    def record(self, namespace: str, key: str) -> Record:
        """One record as it is now."""

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        """The records of a namespace that have a value at `at` (or else: had one) and keys that start with `prefix`, by
        key, after a key."""

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """Namespaces with records that have a value at `at`, and how many of them, by name, after a name."""

    def next_value_end(self) -> int | None:
        """When the next value is due, or has been for a while: microseconds UTC; None when all live on."""

    def claim(self, resource: str) -> Claim:
        """One claim as it is now."""

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        """The claims that are held now, by resource, after a resource."""

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        """The events of one stream, newest first, below a version. Raises StoreError for an unknown topic."""

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        """The events of all streams in order, above a position. Raises StoreError for an unknown topic."""


class Transaction(Reader, Protocol):
    """Reads and writes that become durable together, or not at all.

    `at`: its time, microseconds UTC, never before that of an earlier event. `wrote`: there is something to commit.
    """

    at: int
    wrote: bool

    def due_records(self, limit: int) -> list[Record]:
        """Records whose values are due at `at` and still live, those first that were due first."""

    def append(self, changes: Sequence[Change], caller: Caller) -> int:
        """Record the events and put the rows of their views; answers with the position of the last."""

    def repeated(self, caller: Caller) -> tuple[bytes, str] | None:
        """Fingerprint and outcome that were remembered under the caller's request_id in the last 24 hours."""

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str) -> None:
        """Keep an outcome (JSON) under the caller's request_id."""

    def note_refusals(self, refusals: Sequence["Refusal"]) -> None:
        """Keep the newest 10 000 refusals for an auditor; outside the log and its promises."""


class Refusal(NamedTuple):
    """Who was refused what, when (microseconds UTC); never a value."""

    at: int
    code: str
    what: str
    by: str
    session: str | None


class Store(Protocol):
    """One log with its views, shared with other processes."""

    def reader(self) -> AbstractContextManager[Reader]:
        """Reads of the newest state, each for itself."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Reads that all see the log at one position."""

    def transaction(self, deadline: float) -> AbstractContextManager[Transaction]:
        """Writes that are durable when the block ends. `deadline` (`time.monotonic` seconds) bounds the wait to begin.

        Raises UnavailableError. When the block raises, nothing happened.
        """

    def let_go(self) -> None:
        """After an interrupt: undo and release whatever this thread still has of a transaction."""

    def close(self) -> None:
        """Let go of everything; what was acknowledged is kept."""

    def abandon(self) -> None:
        """In a forked child: refuse all calls from now on, and touch nothing that the parent uses."""


class Bell(Protocol):
    """A hint that the log grew: may be lost, doubled or late. The log is the truth."""

    def ring(self) -> None:
        """Tell everybody, here and in other processes, to look again."""

    def listen(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake` (from any thread) on each ring, and now and then for no reason, while the block runs."""
