"""Context manager of a store: a read."""

from types import TracebackType
from typing import Generic, Protocol, TypeVar

from holdlog.domain.refusals import HoldlogError

Reads = TypeVar("Reads")


class ReadStore(Protocol[Reads]):
    """What a read needs of a store."""

    def begin_read(self, snapshot: bool) -> Reads:
        """Borrow a connection. `snapshot`: in one read transaction."""

    def end_read(self, reader: Reads) -> None:
        """End its transaction, if any."""

    def give_back(self, reader: Reads, error: BaseException | None) -> None:
        """Take the connection back. `error`: what ended the block."""

    def refusal_of(self, error: BaseException) -> HoldlogError | None:
        """The refusal for an error of the database; None for other errors."""


class ReadBlock(Generic[Reads]):
    """A borrowed connection; `snapshot`: in one read transaction."""

    __slots__ = ("_reader", "_snapshot", "_store")

    def __init__(self, store: ReadStore[Reads], snapshot: bool) -> None:
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
