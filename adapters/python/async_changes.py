"""`changes` of the library for coroutines: the events of a store, one after the other, from a bookmark on."""

import asyncio
import time
from collections.abc import Iterator
from math import inf
from typing import Final, Self

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.validation import number_of_seconds
from holdlog.adapters.api.values.responses import Events, EventView
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.refusals import StoreError, UnavailableError

LONGEST_WAIT: Final = 3600.0
"""Seconds that one read waits for the next event; then it reads again."""


class AsyncEventIterator:
    """Yields each matching event once, in order: `async for event in store.changes(): …`. Holds nothing open between
    two events, so there is nothing to close; a cancelled step can be repeated. For one reader at a time.

    Ends when the store is closed, or when no event came for `wait_seconds`. While the store is unavailable it tries
    again, for as long as it would wait; then raises UnavailableError. Raises InvalidError for a bookmark of another
    store or beyond the end of the log, and StoreError.
    """

    def __init__(
        self, engine: Engine, choice: EventFilter, after: int | str | None, wait_seconds: float | None
    ) -> None:
        self._engine = engine
        self._choice = choice
        self._given = after
        self._start = engine.requests.events.start(after)
        self._seconds = inf if wait_seconds is None else number_of_seconds(wait_seconds, "wait_seconds")
        self._store_id = ""
        self._position: int | None = None
        self._scanned = 0
        self._events: Iterator[EventView] = iter(())

    @property
    def bookmark(self) -> str | int | None:
        """Text that names the store and the position of the latest event, or of what was searched for more. Pass it as
        `after` to continue after that event. Before the first step: what was given as `after`."""
        return self._given if self._position is None else f"{self._store_id}:{self._position}"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventView:
        event = next(self._events, None)
        if event is None:
            page = await self._next_page()
            if page is None:
                raise StopAsyncIteration
            self._scanned, self._events = page.next_position, iter(page.events)
            event = next(self._events)
        self._position = event.position
        return event

    async def _next_page(self) -> Events | None:
        """The next page with events; None at the end."""
        due = time.monotonic() + self._seconds
        while True:
            try:
                if self._position is None:
                    self._store_id, self._scanned = await self._engine.read_async(self._start)
                self._position = self._scanned
                page = await self._read(self._scanned, due - time.monotonic())
            except UnavailableError as error:
                if time.monotonic() + error.retry_after > due:
                    raise
                await asyncio.sleep(error.retry_after)
                continue
            except StoreError:
                if self._engine.closed:
                    return None
                raise
            if page.events:
                return page
            self._position = self._scanned = page.next_position
            if page.next_position == page.bookmark and (time.monotonic() >= due or self._engine.waiting_is_over()):
                return None

    async def _read(self, after: int, seconds: float) -> Events:
        requests = self._engine.requests.events
        if seconds <= 0:
            return await self._engine.read_async(requests.page(self._choice, after, MAX_PAGE))
        call = requests.next_page(self._choice, after, MAX_PAGE)
        return await self._engine.wait_async(call._replace(seconds=min(seconds, LONGEST_WAIT)))
