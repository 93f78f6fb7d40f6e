"""Quota of keys and threads per store; they are counted occasionally, so that no write waits for a count."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.commands import AnyCommand
from holdlog.domain.ports import Reader
from holdlog.domain.record import Merge, Set, Transact, seen
from holdlog.domain.refusals import HoldlogError, OverLimitError
from holdlog.domain.threads.commands import ForkThread, StartThread

COUNTED_EVERY: Final = 10.0
"""Seconds between counts; in between, a store may exceed its quota."""

_log = logging.getLogger("holdlog")


class KeyQuota:
    """The quota of one store; `most`: keys and threads together. Existing values and threads can be changed even when
    it is exhausted."""

    def __init__(self, engine: Engine, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._most = most
        self._clock = clock
        self._full = False
        self._counted_at: float | None = None
        self._counting: asyncio.Task[None] | None = None

    async def require(self, command: AnyCommand) -> None:
        """Raise OverLimitError if the command would add a key or a thread and the quota is exhausted."""
        if not isinstance(command, Transact | StartThread | ForkThread):
            return
        if self._counting is None and (self._counted_at is None or self._clock() > self._counted_at + COUNTED_EVERY):
            self._counting = asyncio.create_task(self._count())
        if self._full and await self._engine.run_off_loop_async(partial(self._adds, command)):
            raise OverLimitError(
                f"the store's quota of {self._most} keys and threads is exhausted (--max-keys)", COUNTED_EVERY
            )

    async def _count(self) -> None:
        try:
            self._full = await asyncio.to_thread(self._is_full)
        except HoldlogError as error:
            _log.debug("could not count keys and threads: %s", error)
        finally:
            self._counted_at = self._clock()
            self._counting = None

    def _is_full(self) -> bool:
        with self._engine.store.reader() as reader:
            keys = sum(count for _, count in reader.namespaces(None, -1))
            return keys + reader.thread_count() >= self._most

    def _adds(self, command: Transact | StartThread | ForkThread) -> bool:
        with self._engine.store.reader() as reader:
            if not isinstance(command, Transact):
                return not reader.thread(command.thread).version
            return any(
                isinstance(it, Set | Merge) and not _lives(reader, it.namespace, it.key) for it in command.operations
            )


def _lives(reader: Reader, namespace: str, key: str) -> bool:
    return seen(reader.record(namespace, key), reader.at).live
