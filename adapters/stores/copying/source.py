"""A store to copy from, and its contents."""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from holdlog.adapters.stores.copying.carried import Carried, Row
from holdlog.adapters.stores.event_log.sealing import LOCK_TIMEOUT, SEAL, Lay, Seal, give, seal, seal_of
from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.adapters.stores.sql.text import NONE
from holdlog.domain.ports import Reader, Transaction

Writes = TypeVar("Writes", bound=Transaction)
Written = TypeVar("Written", bound=Transaction, covariant=True)


class Sealable(Protocol[Written]):
    """A store that can be sealed."""

    def reader(self) -> AbstractContextManager[Reader]: ...

    def transaction(self, deadline: float) -> AbstractContextManager[Written]: ...


class Contents:
    """Everything in a store. `unit`: in a transaction; `steady`: its begin, on the store's clock of leases."""

    def __init__(self, unit: SqlReader, steady: int = 0) -> None:
        self.steady = steady
        self._unit = unit
        self._log = unit.recorder
        self._streams: list[Iterator[Row]] = []

    def close(self) -> None:
        """Close streams that were not read to the end: in PostgreSQL, each keeps a cursor open."""
        for stream in self._streams:
            if isinstance(stream, Generator):
                stream.close()

    def meta(self) -> Mapping[str, str]:
        """All rows of the table `meta`, by name."""
        return dict(self._unit.rows("SELECT name, value FROM meta", NONE))

    def count(self) -> int:
        """The number of events."""
        return self._log.count(self._unit)

    def rows(self, table: Carried) -> Iterator[Row]:
        """All rows of a table, in order, read one at a time."""
        columns = ", ".join(table.columns)
        return self._kept(self._unit.stream(f"SELECT {columns} FROM {table.name} ORDER BY {table.order}", NONE))

    def events(self) -> Iterator[Row]:
        """All events, in the order of the log: each the fields of `EncodedEvent`."""
        return self._kept(self._log.all_by_position(self._unit))

    def events_by_stream(self) -> Iterator[Row]:
        """All events, in order of streams and versions."""
        return self._kept(self._log.all_by_stream(self._unit))

    def put_events(self, rows: Sequence[Row]) -> None:
        self._log.restore(rows, self._unit)

    def _kept(self, stream: Iterator[Row]) -> Iterator[Row]:
        self._streams.append(stream)
        return stream


class CopySource(ABC, Generic[Writes]):
    """An open store to copy from. `name`: its location, without passwords; `lay` creates the triggers of its kind of
    store."""

    def __init__(self, name: str, sealable: Sealable[Writes], lay: Lay[Writes]) -> None:
        self.name = name
        self._sealable = sealable
        self._lay = lay

    @abstractmethod
    def contents(self) -> AbstractContextManager[Contents]:
        """Open a snapshot of the store."""

    def sealed(self) -> Seal | None:
        """The store's seal; None if it is not sealed."""
        with self._sealable.reader() as reader:
            return seal_of(reader.meta(SEAL))

    def seal(self, to: str) -> Seal:
        """Seal the store: nothing can be appended once this returns. Raises StoreError if another store already got its
        id."""
        with self._sealable.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            return seal(transaction, to, self._lay)

    def give(self, to: str, done: bool) -> None:
        """Give the store's id to the store at `to`. Raises StoreError if another store already got it."""
        with self._sealable.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            give(transaction, to, self._lay, done)
