"""Batches concurrent reads of a remote store into one round trip."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import HoldlogError

Found = TypeVar("Found")
ReadWork = Callable[[Reader], Any]

READS_AT_ONCE: Final = 64
"""Reads that one thread runs one after another."""
THREADS: Final = 4


class ReadBatcher:
    """Batches the reads of one event loop; use it only there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: list[tuple[ReadWork, asyncio.Future[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, read: Callable[[Reader], Found]) -> Found:
        """Return the result of `read` on a snapshot made after this call. `read` runs in a thread and shares its reader
        with other reads. Equal reads return the same objects, so callers must not change them. Raises what `read`
        raises."""
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._pending.append((read, future))
        if len(self._tasks) < THREADS:
            task = asyncio.create_task(self._take())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _take(self) -> None:
        while self._pending:
            taken, self._pending = self._pending[:READS_AT_ONCE], self._pending[READS_AT_ONCE:]
            found = await asyncio.to_thread(self._found, [read for read, _ in taken])
            for (_, future), result in zip(taken, found, strict=True):
                if future.done():
                    continue  # its caller was cancelled meanwhile
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _found(self, reads: Sequence[ReadWork]) -> list[Any]:
        """The result of each read, or the exception it raised."""
        found: list[Any] = []
        try:
            with self._store.snapshot() as reader:
                once = cast(Reader, MemoizedReader(reader))
                found.extend(_attempted(read, once) for read in reads)
        except Exception as error:  # of the store: it fails all remaining reads
            found += [error] * (len(reads) - len(found))
        return found


def _attempted(read: ReadWork, reader: Reader) -> Any:
    try:
        return read(reader)
    except HoldlogError as refusal:
        return refusal


class MemoizedReader:
    """A reader of one snapshot, or a part of it, that remembers the result of each call."""

    def __init__(self, reader: object) -> None:
        self._reader = reader
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = self._known.get(name)
        if found is None:
            found = getattr(self._reader, name)
            if name == "leases":
                found = self._known[name] = MemoizedReader(found)
            elif callable(found):
                found = self._known[name] = self._remembered(found)
        return found

    def _remembered(self, method: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[str, Any] = {}

        def remembered(*arguments: Any, **named: Any) -> Any:
            key = repr((arguments, named))
            if key not in known:
                known[key] = method(*arguments, **named)
            return known[key]

        return remembered
