"""Who follows the log passes from its pages to its end without a gap and without a double."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.runtime import following, tail
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.following import NewEvents, follow
from holdlog.domain.refusals import InvalidError, StoreError
from tests.support.commands import PATIENCE, change, put, until_async, write

LONG = 50.0


async def end_of(coming: AsyncGenerator[NewEvents, None]) -> list[int]:
    """The positions of all events up to the end of the log; who follows is then about to wait there."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE):
        while (came := await anext(coming)).events:
            found += [happened.position for happened in came.events]
    return found


async def some(coming: AsyncGenerator[NewEvents, None], count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += [happened.position for happened in (await anext(coming)).events]
    return found


def grow(engine: Engine, count: int, ring: bool = True) -> None:
    for number in range(count):
        write(engine.store, f"k{number}", number)
    if ring:
        engine.notifier.notify()


async def test_follower_of_the_log_gets_past_pages_and_then_new_events(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAGE", 3)
    grow(engine, 10)
    async with aclosing(follow(engine, EventFilter(), 2, LONG)) as coming:
        assert await end_of(coming) == list(range(3, 11))
        waiting = asyncio.ensure_future(some(coming, 2))
        await until_async(lambda: bool(tail._tails))
        change(engine.store, put("a", 1), put("b", 1))
        engine.notifier.notify()
        assert await waiting == [11, 12]
    assert tail._tails == {}
    assert engine.notifier._wakers == []


async def test_follower_gets_events_written_between_its_last_page_and_its_wait(engine: Engine) -> None:
    async with aclosing(follow(engine, EventFilter(), 0, LONG)) as coming:
        assert await end_of(coming) == []
        grow(engine, 3, ring=False)
        assert await some(coming, 3) == [1, 2, 3]


async def test_follower_behind_the_shared_reader_reads_the_gap(engine: Engine) -> None:
    async with (
        aclosing(follow(engine, EventFilter(), 0, LONG)) as one,
        aclosing(follow(engine, EventFilter(), 0, LONG)) as other,
    ):
        assert await end_of(one) == await end_of(other) == []
        waiting = asyncio.ensure_future(some(one, 5))
        await until_async(lambda: bool(tail._tails))
        grow(engine, 5)
        assert await waiting == [1, 2, 3, 4, 5]
        assert await some(other, 5) == [1, 2, 3, 4, 5]
        grow(engine, 1)
        assert (await some(one, 1), await some(other, 1)) == ([6], [6])


async def test_follower_ahead_of_the_shared_reader_gets_no_event_twice(engine: Engine) -> None:
    async with (
        aclosing(follow(engine, EventFilter(), 0, LONG)) as one,
        aclosing(follow(engine, EventFilter(), 0, 0.01)) as other,
    ):
        assert await end_of(one) == []
        waiting = asyncio.ensure_future(some(one, 4))
        await until_async(lambda: bool(tail._tails))
        grow(engine, 3, ring=False)
        found = await end_of(other)
        following_on = asyncio.ensure_future(some(other, 1))
        grow(engine, 1)
        assert await waiting == [1, 2, 3, 4]
        assert found + await following_on == [1, 2, 3, 4]


async def test_follower_that_reads_too_slowly_continues_from_the_log(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "BACKLOG_BYTES", 2_000)
    async with aclosing(follow(engine, EventFilter(), 0, LONG)) as coming:
        assert await end_of(coming) == []
        grow(engine, 1, ring=False)
        assert await some(coming, 1) == [1]
        grow(engine, 50)
        (backlog,) = next(iter(tail._tails.values()))._backlogs
        await until_async(lambda: backlog.overflowed)
        assert backlog._events == []
        assert await some(coming, 50) == list(range(2, 52))


async def test_answer_without_events_still_advances_the_position(engine: Engine) -> None:
    async with aclosing(follow(engine, EventFilter(namespace="m"), 0, 0.01)) as coming:
        assert await anext(coming) == NewEvents([], 0)
        grow(engine, 3)
        async with asyncio.timeout(PATIENCE):
            while (came := await anext(coming)).position < 3:
                assert came.events == []


async def test_following_the_log_ends_at_shutdown_and_when_the_store_closes(engine: Engine) -> None:
    async with aclosing(follow(engine, EventFilter(), 0, LONG)) as coming:
        await end_of(coming)
        waiting = asyncio.ensure_future(anext(coming, None))
        await until_async(lambda: bool(tail._tails))
        engine.close()
        with pytest.raises(StoreError, match="closed"):
            await asyncio.wait_for(waiting, PATIENCE)
    engine.finish_waiting()
    async with aclosing(follow(engine, EventFilter(), 0, LONG)) as coming:
        assert await anext(coming, None) is None


async def test_following_from_beyond_the_end_of_the_log_is_refused(engine: Engine) -> None:
    async with aclosing(follow(engine, EventFilter(), 1, LONG)) as coming:
        with pytest.raises(InvalidError, match="the log ends at position"):
            await anext(coming)
