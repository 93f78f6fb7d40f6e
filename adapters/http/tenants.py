"""Tenants: each has a store next to the main one, opened on demand and closed when unused."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.compose import MEMORY, file_of, open_holdlog
from holdlog.adapters.operating_system.location import is_url
from holdlog.adapters.operating_system.private import require_private
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.observer import CommandObserver
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.refusals import InvalidError, UnavailableError
from holdlog.domain.token import space_name

MOST_IDLE: Final = 32
MOST_IDLE_IN_DATABASE: Final = 4
"""Unused spaces that stay open: each holds files, or database connections."""
MOST_OPEN: Final = 256
MOST_OPEN_IN_DATABASE: Final = 24

_log = logging.getLogger("holdlog")


class Tenants:
    """The main store and its tenants, for coroutines of one loop. `most_open`: stores open at once, in use or not;
    `prepare`: called with the store of each tenant before its first use. Stores in memory stay open: closing one would
    lose its contents."""

    def __init__(
        self,
        location: Path | str,
        main: Engine,
        settings: Settings,
        most_open: int | None = None,
        prepare: Callable[[Engine], None] = lambda engine: None,
    ) -> None:
        self.main = main
        self._location = location
        self._settings = settings
        self._prepare = prepare
        remote = main.store.remote
        self._most_open = most_open or (MOST_OPEN_IN_DATABASE if remote else MOST_OPEN)
        self._most_idle = MOST_IDLE_IN_DATABASE if remote else MOST_IDLE
        if location == MEMORY:
            self._most_idle = self._most_open
        self._spaces: dict[str, _Space] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._ended = False
        self._watch: CommandObserver | None = None
        self._own_names: Callable[[AnyCommand, Caller], Awaitable[None]] | None = None

    def engines(self) -> list[Engine]:
        """The main store, and the tenants that are open."""
        return [self.main, *filter(None, (space.engine for space in list(self._spaces.values())))]

    def watched(self, watch: CommandObserver) -> None:
        """From now on, report the commands of all writers to the observer, including writers of tenants opened
        later."""
        self._watch = watch
        for engine in self.engines():
            engine.writer.watch = watch

    def require_own_names(self, require: Callable[[AnyCommand, Caller], Awaitable[None]]) -> None:
        """From now on, await the check before each write and claim, including those in tenants opened later."""
        self._own_names = require
        for engine in self.engines():
            engine.own_names = require

    @asynccontextmanager
    async def enter(self, name: str | None) -> AsyncIterator[Engine]:
        """The store of a tenant, or the main one; it stays open while the block runs.

        Raises InvalidError for an invalid name; StoreError or UnavailableError when that tenant cannot be opened now.
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

    def location_of(self, name: str) -> Path | str:
        """The location of a tenant's store. Raises InvalidError."""
        try:
            space_name(name)
        except ValueError as error:
            raise InvalidError(f"space: {error}") from None
        if self._location == MEMORY:
            return MEMORY
        if isinstance(self._location, str) and is_url(self._location):
            from holdlog.adapters.stores.postgres.target import location_of_space

            return location_of_space(self._location, name)
        path = file_of(self._location)
        return path.with_name(path.name + ".spaces") / f"{name}.db"

    def finish_waiting(self) -> None:
        """Make all current and future blocking calls of all tenants return at once."""
        self._ended = True
        for engine in self.engines():
            engine.finish_waiting()

    async def close(self) -> None:
        """Close all but the main store."""
        self._ended = True
        for name, space in list(self._spaces.items()):
            self._close(name, space)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _entered(self, name: str) -> "_Space":
        while (space := self._spaces.get(name)) is not None and space.closing is not None:
            await asyncio.shield(space.closing)  # its files are closed before they are opened again
        if space is None or space.failed:
            location = self.location_of(name)
            self._evict()
            opening = asyncio.ensure_future(asyncio.to_thread(self._open, location))
            space = self._spaces[name] = _Space(opening)
        space.users += 1
        return space

    def _open(self, location: Path | str) -> Engine:
        if isinstance(location, Path):
            require_private(location.parent)  # first: opening the store would follow a symbolic link
        engine = open_holdlog(location, self._settings, what="http")
        engine.lease_maintenance.apply_retention()
        engine.writer.watch = self._watch
        engine.own_names = self._own_names
        self._prepare(engine)
        if self._ended:
            engine.finish_waiting()
        return engine

    def _left(self, name: str, space: "_Space") -> None:
        """Leave a tenant, and close idle ones above the limit. Must not await: another caller could enter one
        meanwhile."""
        if space.users or self._spaces.get(name) is not space:
            return
        del self._spaces[name]
        if not space.failed:  # else the next caller tries again
            self._spaces[name] = space  # the most recently used is closed last
            idle = self._idle()
            for other in idle[: max(0, len(idle) - self._most_idle)]:
                self._close(other, self._spaces[other])

    def _evict(self) -> None:
        """Close an idle tenant to open another. Raises UnavailableError when all are in use."""
        if sum(space.closing is None for space in self._spaces.values()) < self._most_open:
            return
        idle = [] if self._location == MEMORY else self._idle()
        if not idle:
            raise UnavailableError(f"{self._most_open} spaces are in use, which is the limit (--max-spaces); try again")
        self._close(idle[0], self._spaces[idle[0]])

    def _idle(self) -> list[str]:
        """Idle tenants, least recently used first."""
        return [name for name, space in self._spaces.items() if not space.users and space.closing is None]

    def _close(self, name: str, space: "_Space") -> None:
        """Close a tenant. No caller can enter it from now on."""
        if space.closing is None:
            space.closing = asyncio.create_task(self._closed(name, space))
            self._closing.add(space.closing)
            space.closing.add_done_callback(self._closing.discard)

    async def _closed(self, name: str, space: "_Space") -> None:
        try:
            engine = await space.opening
            await asyncio.to_thread(engine.close)
        except Exception as error:
            _log.warning("could not close the space %s properly: %s", name, error)
        finally:
            if self._spaces.get(name) is space:
                del self._spaces[name]


class _Space:
    """A tenant whose store is open, or being opened. `users`: blocks that use it. `closing`: set once no caller may
    enter it any more."""

    def __init__(self, opening: "asyncio.Future[Engine]") -> None:
        self.opening = opening
        self.closing: asyncio.Task[None] | None = None
        self.users = 0

    @property
    def failed(self) -> bool:
        return self.opening.done() and self.engine is None

    @property
    def engine(self) -> Engine | None:
        """The engine; None while it is being opened, and when that failed."""
        if not self.opening.done() or self.opening.cancelled() or self.opening.exception() is not None:
            return None
        return self.opening.result()
