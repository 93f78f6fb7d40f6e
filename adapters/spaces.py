"""Spaces: each a store of its own beside the main one, opened when somebody needs it, closed when nobody does."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.call import Settings
from holdlog.adapters.compose import MEMORY, file_of, open_holdlog
from holdlog.adapters.machine.location import is_url
from holdlog.adapters.opened import Opened
from holdlog.domain.refusals import HoldlogError, InvalidError, UnavailableError

SPACE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""As short as the schemas of PostgreSQL need it: docs/decisions/0024-one-server-for-many.md."""
MOST_IDLE: Final = 32
MOST_IDLE_IN_DATABASE: Final = 4
"""Spaces that stay open although nobody uses them: each holds files, in a database connections."""
MOST_OPEN: Final = 256
MOST_OPEN_IN_DATABASE: Final = 16


class Spaces:
    """The main store and its spaces, for coroutines of one loop. `prepare`: called with each store before its first
    use. Spaces in memory stay open: nothing else keeps what is in them."""

    def __init__(
        self,
        place: Path | str,
        main: Opened,
        settings: Settings,
        prepare: Callable[[Opened], None] = lambda opened: None,
    ) -> None:
        self.main = main
        self._place = place
        self._settings = settings
        self._prepare = prepare
        remote = isinstance(place, str) and is_url(place)
        self._most_idle = MOST_IDLE_IN_DATABASE if remote else MOST_IDLE
        self._most_open = MOST_OPEN_IN_DATABASE if remote else MOST_OPEN
        self._spaces: dict[str, _Space] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._ended = False

    @asynccontextmanager
    async def enter(self, name: str | None) -> AsyncIterator[Opened]:
        """The store of a space, or the main one; it stays open while the block runs.

        Raises InvalidError for a name that is none; StoreError or UnavailableError when that space cannot be had now.
        """
        if name is None:
            yield self.main
            return
        space = await self._entered(name)
        try:
            yield await asyncio.shield(space.opening)
        finally:
            space.users -= 1
            self._left(name, space)

    def place_of(self, name: str) -> Path | str:
        """Where the store of a space is. Raises InvalidError."""
        if not SPACE.fullmatch(name):
            raise InvalidError("space: must have lower-case letters, digits and '-' only, and 32 at most")
        if self._place == MEMORY:
            return MEMORY
        if isinstance(self._place, str) and is_url(self._place):
            from holdlog.adapters.stores.postgres.place import place_of_space

            return place_of_space(self._place, name)
        path = file_of(self._place)
        return path.with_name(path.name + ".spaces") / f"{name}.db"

    def finish_waiting(self) -> None:
        """Calls that wait, in whichever space, are answered at once, and so are those that would from now on."""
        self._ended = True
        for opened in (self.main, *filter(None, (space.opened for space in self._spaces.values()))):
            opened.finish_waiting()

    async def close(self) -> None:
        """All but the main one."""
        self._ended = True
        for name, space in list(self._spaces.items()):
            with suppress(HoldlogError):
                await asyncio.shield(space.opening)
            self._close(name, space)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _entered(self, name: str) -> "_Space":
        while (space := self._spaces.get(name)) is not None and space.closing is not None:
            await asyncio.shield(space.closing)  # its files are let go of before they are opened again
        if space is None:
            place = self.place_of(name)
            if len(self._spaces) >= self._most_open and not self._make_room():
                raise UnavailableError(f"{self._most_open} spaces are in use, which is the most; try again")
            opening = asyncio.ensure_future(asyncio.to_thread(self._open, place))
            space = self._spaces[name] = _Space(opening)
        space.users += 1
        return space

    def _open(self, place: Path | str) -> Opened:
        if isinstance(place, Path):
            place.parent.mkdir(mode=0o700, exist_ok=True)
        opened = open_holdlog(place, self._settings, what="http")
        opened.keeps = False
        self._prepare(opened)
        if self._ended:
            opened.finish_waiting()
        return opened

    def _left(self, name: str, space: "_Space") -> None:
        """Nothing may be awaited here: whoever enters meanwhile would find what is about to be closed."""
        if space.users:
            return
        if space.opening.done() and space.opened is None:
            self._spaces.pop(name, None)  # it could not be opened; the next one tries again
            return
        self._spaces[name] = self._spaces.pop(name)  # the one that was used last is closed last
        idle = [(it, found) for it, found in self._spaces.items() if not found.users and found.closing is None]
        for it, found in idle[: max(0, len(idle) - self._most_idle)]:
            self._close(it, found)

    def _make_room(self) -> bool:
        return False

    def _close(self, name: str, space: "_Space") -> None:
        opened = space.opened
        if opened is None:
            self._spaces.pop(name, None)
        elif space.closing is None and self._place != MEMORY:
            pass


class _Space:
    """`users`: blocks that are in it. `closing`: set once nobody may enter it any more."""

    def __init__(self, opening: "asyncio.Future[Opened]") -> None:
        self.opening = opening
        self.closing: asyncio.Task[None] | None = None
        self.users = 0

    @property
    def opened(self) -> Opened | None:
        """None while it is being opened, and when that failed."""
        if not self.opening.done() or self.opening.cancelled() or self.opening.exception() is not None:
            return None
        return self.opening.result()
