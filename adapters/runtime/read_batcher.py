"""Batches concurrent reads of a remote store into one round trip."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import HoldlogError

Found = TypeVar("Found")
ReadWork = Callable[[Reader], Any]

LOOKS_AT_ONCE: Final = 64
"""Reads that one thread runs one after another."""
THREADS: Final = 4


class ReadBatcher:
    """Batches the reads of one event loop; use it only there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: list[tuple[ReadWork, asyncio.Future[Any]]] = []
        self._taking: set[asyncio.Task[None]] = set()

    async def take(self, look: Callable[[Reader], Found]) -> Found:
        """Return the result of `look` on a snapshot made after this call. `look` runs in a thread and shares its reader
        with other reads; equal reads return the same objects, so callers must not change them. Raises what `look`
        raises."""
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._asked.append((look, future))
        if len(self._taking) < THREADS:
            task = asyncio.create_task(self._take())
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
        return await future

    async def _take(self) -> None:
        while self._asked:
            taken, self._asked = self._asked[:LOOKS_AT_ONCE], self._asked[LOOKS_AT_ONCE:]
            found = await asyncio.to_thread(self._found, [look for look, _ in taken])
            for (_, future), result in zip(taken, found, strict=True):
                if future.done():
                    continue  # its caller was cancelled meanwhile
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _found(self, looks: Sequence[ReadWork]) -> list[Any]:
        """The result of each read, or the exception it raised."""
        found: list[Any] = []
        try:
            with self._store.snapshot() as reader:
                once = cast(Reader, MemoizedReader(reader))
                found.extend(_attempted(look, once) for look in looks)
        except Exception as error:  # of the store: it fails all remaining reads
            found += [error] * (len(looks) - len(found))
        return found


def _attempted(look: ReadWork, reader: Reader) -> Any:
    try:
        return look(reader)
    except HoldlogError as refusal:
        return refusal


class MemoizedReader:
    """A reader of one snapshot, or a part of it, that remembers the result of each call."""

    def __init__(self, asked: object) -> None:
        self._asked = asked
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = self._known.get(name)
        if found is None:
            found = getattr(self._asked, name)
            if name == "leases":
                found = self._known[name] = MemoizedReader(found)
            elif callable(found):
                found = self._known[name] = self._remembered(found)
        return found

    def _remembered(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[str, Any] = {}

        def remembered(*arguments: Any, **named: Any) -> Any:
            key = repr((arguments, named))
            if key not in known:
                known[key] = ask(*arguments, **named)
            return known[key]

        return remembered
