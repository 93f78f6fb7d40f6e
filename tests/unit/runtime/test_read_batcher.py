"""Looks at a remote store share journeys and nothing else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdlog.adapters.runtime.read_batcher import THREADS, ReadBatcher
from holdlog.adapters.stores.sqlite.memory import MemoryDatabase
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.claim import Claim
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError, UnavailableError
from tests.support import threads
from tests.support.commands import run
from tests.support.endpoint import until

FREE = Claim("a.md")


class Journeys(SqliteStore):
    """Counts its snapshots and what they are asked, and holds them up until it is `open`."""

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self.open = threading.Event()
        self.open.set()
        self.made = self.asked = 0
        self.lost = False

    @contextmanager
    def snapshot(self) -> Iterator[SqliteReader]:
        self.made += 1
        if self.lost:
            raise UnavailableError("the database is gone")
        with super().snapshot() as reader:
            assert self.open.wait(30)
            claim = reader.claim

            def counted(resource: str) -> Claim:
                self.asked += 1
                return claim(resource)

            reader.claim = counted  # type: ignore[method-assign]
            yield reader


def free(reader: Reader) -> Claim:
    return reader.claim("a.md")


async def test_many_identical_reads_cost_few_round_trips_and_queries() -> None:
    store = Journeys()
    looks = ReadBatcher(store)
    assert await asyncio.gather(*(looks.take(free) for _ in range(1_000))) == [FREE] * 1_000
    assert store.asked == store.made <= 1_000 // 64 + THREADS


async def test_batched_query_may_name_its_arguments() -> None:
    store = Journeys()
    run(store, threads.start())
    run(store, threads.append(threads.message(1), threads.message(2)))
    looks = ReadBatcher(store)

    def asked(newest: bool) -> Callable[[Reader], list[int]]:
        def look(reader: Reader) -> list[int]:
            found = reader.thread_events("t", ("message",), 0, None, 9, newest=newest)
            return [it.envelope.version for it in found]

        return look

    assert await asyncio.gather(*(looks.take(asked(newest)) for newest in (True, False, True))) == [
        [3, 2],
        [2, 3],
        [3, 2],
    ]


async def test_refused_read_refuses_no_other_of_its_batch() -> None:
    def refused(reader: Reader) -> Claim:
        raise InvalidError("key: is not right")

    looks = ReadBatcher(Journeys())
    first, second, third = await asyncio.gather(
        looks.take(free), looks.take(refused), looks.take(free), return_exceptions=True
    )
    assert (first, third) == (FREE, FREE)
    assert isinstance(second, InvalidError)


async def test_lost_store_fails_every_read_of_the_batch_and_the_next_retries() -> None:
    store = Journeys()
    store.lost = True
    looks = ReadBatcher(store)
    found = await asyncio.gather(*(looks.take(free) for _ in range(100)), return_exceptions=True)
    assert {type(it) for it in found} == {UnavailableError}
    store.lost = False
    assert await looks.take(free) == FREE


async def test_read_that_fails_by_a_bug_ends_and_so_do_later_ones() -> None:
    def broken(reader: Reader) -> Claim:
        raise ZeroDivisionError

    looks = ReadBatcher(Journeys())
    with pytest.raises(ZeroDivisionError):
        await looks.take(broken)
    assert await looks.take(free) == FREE


async def test_read_that_arrives_during_a_batch_gets_a_later_snapshot() -> None:
    store = Journeys()
    store.open.clear()
    looks = ReadBatcher(store)
    asked = [asyncio.create_task(looks.take(free)) for _ in range(THREADS)]
    while store.made < THREADS:
        before = store.made
        asked.append(asyncio.create_task(looks.take(free)))
        await until(lambda before=before: store.made > before)
    late = asyncio.create_task(looks.take(free))
    assert store.made == THREADS
    store.open.set()
    assert await late == FREE
    assert store.made == THREADS + 1
    await asyncio.gather(*asked)


async def test_cancelled_read_cancels_no_other_of_its_batch() -> None:
    store = Journeys()
    store.open.clear()
    looks = ReadBatcher(store)
    gone, stays = (asyncio.create_task(looks.take(free)) for _ in range(2))
    await until(lambda: store.made > 0)
    gone.cancel()
    store.open.set()
    assert await stays == FREE
    with pytest.raises(asyncio.CancelledError):
        await gone
