"""Yield all events above a position, and new ones as they are committed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.events.paging import EventPage, read_page
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.tail import RenderedEvent, tail_of

PAGE: Final = 100
"""Events that are read and encoded at once."""


class NewEvents(NamedTuple):
    """A batch of matching events. `position`: every match up to here has now been yielded."""

    events: list[RenderedEvent]
    position: int


async def follow(engine: Engine, choice: EventFilter, after: int, every: float) -> AsyncGenerator[NewEvents, None]:
    """Yield each matching event once, in order. A batch without events, which only advances the position, comes at the
    end of the log and after `every` seconds without an event. Ends when `Engine.finish_waiting` is called.
    A slow consumer reads pages of the log; consumers that have caught up share one reader. Raises InvalidError for a
    position beyond the end, UnavailableError, StoreError. Callers must close the generator (`contextlib.aclosing`).
    """
    position = after
    while not engine.waiting_is_over():
        page = await _page(engine, choice, position)
        position = page.scanned
        if page.events:
            yield NewEvents(page.events, page.scanned)
        if position < page.end:
            continue
        yield NewEvents([], position)
        with tail_of(engine).join(choice, position) as backlog:
            while position < backlog.begins:
                page = await _page(engine, choice, position)
                position = page.scanned
                if page.events:
                    yield NewEvents(page.events, page.scanned)
            while not engine.waiting_is_over():
                events = await backlog.take(every)
                if backlog.overflowed:
                    break
                fresh = [event for event in events if event.position > position]
                position = max(position, backlog.position)
                yield NewEvents(fresh, position)


async def _page(engine: Engine, choice: EventFilter, after: int) -> EventPage[RenderedEvent]:
    spelled = engine.requests.rules.spelled

    def read() -> EventPage[RenderedEvent]:
        with engine.store.reader() as reader:
            return read_page(reader, choice, after, PAGE, lambda recorded: RenderedEvent(recorded, spelled))

    return await asyncio.to_thread(read)
