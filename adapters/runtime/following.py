"""Everything above a position, and whatever comes after it, for ever."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.events.paging import EventPage, read_page
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.tail import RenderedEvent, tail_of

PAGE: Final = 100
"""Events that are read and encoded at once."""


class Came(NamedTuple):
    """`position`: up to which everything that was chosen was told, with these events."""

    events: list[RenderedEvent]
    position: int


async def follow(engine: Engine, choice: EventFilter, after: int, every: float) -> AsyncGenerator[Came, None]:
    """Each event once, in order. An empty answer, which only moves the position on, comes when the end of the log is
    reached, and after `every` seconds without an event. It ends when all waiting is over (`Opened.finish_waiting`).

    Who takes slowly is told from pages of the log, who has everything from the one reader that all share. Raises
    InvalidError for a position beyond the end, UnavailableError, StoreError. Close it (`contextlib.aclosing`).
    """
    position = after
    while not engine.waiting_is_over():
        page = await _page(engine, choice, position)
        position = page.looked
        if page.events:
            yield _came(engine, page)
        if position < page.end:
            continue
        yield Came([], position)
        with tail_of(engine).join(choice, position) as backlog:
            while position < backlog.begins:
                page = await _page(engine, choice, position)
                position = page.looked
                if page.events:
                    yield _came(engine, page)
            while not engine.waiting_is_over():
                events = await backlog.take(every)
                if backlog.overflowed:
                    break
                fresh = [happened for happened in events if happened.position > position]
                position = max(position, backlog.position)
                yield Came(fresh, position)


async def _page(engine: Engine, choice: EventFilter, after: int) -> EventPage:
    def read() -> EventPage:
        with engine.store.reader() as reader:
            return read_page(reader, choice, after, PAGE)

    return await asyncio.to_thread(read)


def _came(engine: Engine, page: EventPage) -> Came:
    return Came([RenderedEvent(recorded, engine.requests.spelled) for recorded in page.events], page.looked)
