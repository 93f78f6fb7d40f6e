"""Context managers of a store: a read, and a write transaction."""

from types import TracebackType
from typing import Generic, Protocol, TypeVar

from holdlog.domain.ports import Prefetch
from holdlog.domain.refusals import HoldlogError

Reads = TypeVar("Reads")
Writes = TypeVar("Writes")


class BlockStore(Protocol[Reads, Writes]):
    """What the blocks need of a store."""

    def begin_read(self, snapshot: bool) -> Reads:
        """Borrow a connection. `snapshot`: in one read transaction."""

    def end_read(self, reader: Reads) -> None:
        """End its transaction, if any."""

    def give_back(self, reader: Reads, error: BaseException | None) -> None:
        """Take the connection back. `error`: what ended the block."""

    def begin(self, deadline: float, prefetch: Prefetch) -> Writes:
        """Begin a transaction; the caller must call `end`, unless this raises."""

    def commit(self, transaction: Writes) -> None:
        """Make the changes durable. Raises UnavailableError, with `in_doubt` if the result is unknown."""

    def fail(self, error: BaseException) -> None:
        """Drop the connection that writes if an error made it unusable."""

    def end(self) -> None:
        """Roll back what was not committed, and admit the next writer."""

    def refusal_of(self, error: BaseException) -> HoldlogError | None:
        """The refusal for an error of the database; None for other errors."""


class WriteBlock(Generic[Reads, Writes]):
    """One write transaction."""

    __slots__ = ("_deadline", "_prefetch", "_store", "_transaction")

    def __init__(self, store: BlockStore[Reads, Writes], deadline: float, prefetch: Prefetch) -> None:
        self._store = store
        self._deadline = deadline
        self._prefetch = prefetch

    def __enter__(self) -> Writes:
        self._transaction = self._store.begin(self._deadline, self._prefetch)
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._store.commit(self._transaction)
            else:
                self._store.fail(error)
        finally:
            self._store.end()
        if error is not None and (refusal := self._store.refusal_of(error)) is not None:
            raise refusal from error


class ReadBlock(Generic[Reads, Writes]):
    """A borrowed connection; `snapshot`: in one read transaction."""

    __slots__ = ("_reader", "_snapshot", "_store")

    def __init__(self, store: BlockStore[Reads, Writes], snapshot: bool) -> None:
        self._store = store
        self._snapshot = snapshot
        self._reader: Reads | None = None

    def __enter__(self) -> Reads:
        self._reader = self._store.begin_read(self._snapshot)
        return self._reader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (reader := self._reader) is not None:
            self._store.end_read(reader)
            self._reader = None  # from here on, an interrupt can only lose a connection without a transaction
            self._store.give_back(reader, error)
        if error is not None and (refusal := self._store.refusal_of(error)) is not None:
            raise refusal from error

    def __del__(self) -> None:
        if self._reader is not None:
            self.__exit__(None, None, None)  # after an interrupt outside the block
