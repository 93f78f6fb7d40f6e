"""Spaces: each a store of its own beside the main one, opened when somebody needs it."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from holdlog.adapters.call import Settings
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.opened import Opened
from holdlog.domain.refusals import InvalidError, StoreError

SPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
MOST_OPEN: Final = 64
"""Spaces that stay open although nobody uses them."""


class Spaces:
    """The main store and its spaces, for coroutines of one loop. Raises refusals as `open_holdlog` does."""

    def __init__(self, place: Path | str, main: Opened, settings: Settings) -> None:
        self.main = main
        self._place = place
        self._settings = settings
        self._opened: dict[str, Opened] = {}
        self._used: Counter[str] = Counter()
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def enter(self, name: str | None) -> AsyncIterator[Opened]:
        """The store of a space, or the main one; it stays open while the block runs."""
        if name is None:
            yield self.main
            return
        self._used[name] += 1
        try:
            yield self._opened.get(name) or await self._open(name)
        finally:
            self._used[name] -= 1
            await self._close_idle()

    def place_of(self, name: str) -> Path | str:
        """Where the store of a space is. Raises InvalidError."""
        if not SPACE.fullmatch(name):
            raise InvalidError("space: must have lower-case letters, digits and '-' only, and 48 at most")
        if isinstance(self._place, Path):
            return self._place.with_name(self._place.name + ".spaces") / f"{name}.db"
        if self._place == MEMORY:
            return MEMORY
        raise StoreError("spaces of a PostgreSQL store: to come")

    def finish_waiting(self) -> None:
        """Calls that wait, in whichever space, are answered."""

    async def close(self) -> None:
        for opened in self._opened.values():
            await asyncio.to_thread(opened.close)

    async def _open(self, name: str) -> Opened:
        async with self._opening:
            if name not in self._opened:
                opened = await asyncio.to_thread(open_holdlog, self.place_of(name), self._settings)
                opened.keeps = False
                self._opened[name] = opened
            return self._opened[name]

    async def _close_idle(self) -> None:
        idle = [name for name in self._opened if not self._used[name]]
        for name in idle[: max(0, len(self._opened) - MOST_OPEN)]:
            await asyncio.to_thread(self._opened.pop(name).close)
