"""A store to copy from, and its contents."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from holdlog.adapters.stores.event_log.sealing import LOCK_TIMEOUT, SEAL, CreateTriggers, Seal, give, seal, seal_of
from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sql.text import NONE
from holdlog.domain.ports import Store
from holdlog.projections.projection import Row, Table


class Contents:
    """Everything in a store. `unit`: in a transaction; `steady`: its begin, on the store's clock of leases."""

    def __init__(self, unit: SqlReader, steady: int) -> None:
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

    def rows(self, table: Table) -> Iterator[Row]:
        """All rows of a table, in order, read one at a time."""
        order = ", ".join(list(table.columns)[: table.key]) or "id"
        return self._kept(self._unit.stream(f"{select_from(table)} ORDER BY {order}", NONE))

    def events(self) -> Iterator[Row]:
        """All events, in the order of the log: each the fields of `EncodedEvent`."""
        return self._kept(self._log.all_by_position(self._unit))

    def events_by_stream(self) -> Iterator[Row]:
        """All events, in order of streams and versions."""
        return self._kept(self._log.all_by_stream(self._unit))

    def _kept(self, stream: Iterator[Row]) -> Iterator[Row]:
        self._streams.append(stream)
        return stream


class CopySource:
    """An open store to copy from. `name`: its location, without passwords. `begin`: called with the reader of a
    snapshot; returns the time on the store's clock of leases. `create_triggers`: those of a sealed store."""

    def __init__(self, name: str, store: Store, begin: Callable[[Any], int], create_triggers: CreateTriggers) -> None:
        self.name = name
        self._store = store
        self._begin = begin
        self._create_triggers = create_triggers

    @contextmanager
    def contents(self) -> Iterator[Contents]:
        """Open a snapshot of the store."""
        with self._store.snapshot() as reader:
            assert isinstance(reader, SqlReader)
            steady = self._begin(reader)
            reader.position()  # the first read begins the snapshot
            with closing(Contents(reader, steady)) as contents:
                yield contents

    def sealed(self) -> Seal | None:
        """The store's seal; None if it is not sealed."""
        with self._store.reader() as reader:
            return seal_of(reader.meta(SEAL))

    def seal(self, to: str) -> Seal:
        """Seal the store: nothing can be appended once this returns. Raises StoreError if another store already got its
        id."""
        with self._store.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            return seal(transaction, to, self._create_triggers)

    def give(self, to: str, done: bool) -> None:
        """Give the store's id to the store at `to`. Raises StoreError if another store already got it."""
        with self._store.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            give(transaction, to, self._create_triggers, done)
