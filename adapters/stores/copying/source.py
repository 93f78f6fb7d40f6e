"""The common part of both kinds of sources: everything except reading the snapshot."""

import time
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from holdlog.adapters.stores.event_log.sealing import LOCK_TIMEOUT, SEAL, Lay, Seal, give, seal, seal_of
from holdlog.domain.ports import Reader, Transaction

Writes = TypeVar("Writes", bound=Transaction)
Written = TypeVar("Written", bound=Transaction, covariant=True)


class Sealable(Protocol[Written]):
    """A store that can be sealed."""

    def reader(self) -> AbstractContextManager[Reader]: ...

    def transaction(self, deadline: float) -> AbstractContextManager[Written]: ...


class SealableSource(Generic[Writes]):
    """A source that can be sealed. `lay` creates the triggers of its kind of store."""

    def __init__(self, name: str, sealable: Sealable[Writes], lay: Lay[Writes]) -> None:
        self.name = name
        self._sealable = sealable
        self._lay = lay

    def sealed(self) -> Seal | None:
        with self._sealable.reader() as reader:
            return seal_of(reader.meta(SEAL))

    def seal(self, to: str) -> Seal:
        with self._sealable.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            return seal(transaction, to, self._lay)

    def give(self, to: str, done: bool) -> None:
        with self._sealable.transaction(time.monotonic() + LOCK_TIMEOUT) as transaction:
            give(transaction, to, self._lay, done)
