"""Everything above a position, and whatever comes after it, for ever."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from holdlog.adapters.events.choice import EventFilter
from holdlog.adapters.events.paging import EventPage, read_page
from holdlog.adapters.events.tail import RenderedEvent, tail_of
from holdlog.adapters.opened import Engine

PAGE: Final = 100
"""Events that are read and encoded at once."""


class Came(NamedTuple):
    """`position`: up to which everything that was chosen was told, with these events."""

    events: list[RenderedEvent]
    position: int


async def follow(opened: Engine, choice: EventFilter, after: int, every: float) -> AsyncGenerator[Came, None]:
    """Each event once, in order. An empty answer, which only moves the position on, comes when the end of the log is
    reached, and after `every` seconds without an event. It ends when all waiting is over (`Opened.finish_waiting`).

    Who takes slowly is told from pages of the log, who has everything from the one reader that all share. Raises
    InvalidError for a position beyond the end, UnavailableError, StoreError. Close it (`contextlib.aclosing`).
    """
    position = after
    while not opened.waiting_is_over():
        page = await _page(opened, choice, position)
        position = page.looked
        if page.events:
            yield _came(opened, page)
        if position < page.end:
            continue
        yield Came([], position)
        with tail_of(opened).join(choice, position) as backlog:
            while position < backlog.begins:
                page = await _page(opened, choice, position)
                position = page.looked
                if page.events:
                    yield _came(opened, page)
            while not opened.waiting_is_over():
                events = await backlog.take(every)
                if backlog.overflowed:
                    break
                fresh = [happened for happened in events if happened.position > position]
                position = max(position, backlog.position)
                yield Came(fresh, position)


async def _page(opened: Engine, choice: EventFilter, after: int) -> EventPage:
    def read() -> EventPage:
        with opened.store.reader() as reader:
            return read_page(reader, choice, after, PAGE)

    return await asyncio.to_thread(read)


def _came(opened: Engine, page: EventPage) -> Came:
    return Came([RenderedEvent(recorded, opened.requests.spelled) for recorded in page.events], page.looked)
