"""A subscriber sees each event once, in order, and none is missing."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.errors import EventsLostError, NatsError
from holdlog.adapters.nats.options import NatsOptions, StreamLimits, nats_options
from holdlog.adapters.nats.payload import CloudEvent, read, text_of
from holdlog.adapters.python.subscriber import Subscription, subscribe
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import InvalidError
from tests.support.commands import HERE, put, take, transact
from tests.support.servers import NatsServer, nats_server
from tests.support.streams import client, positions, until
from tests.surfaces.nats.conftest import publish_all, relaying, store_id
from tests.surfaces.nats.test_relay import write

PATIENCE = 20.0


async def some(events: Subscription, count: int) -> list[CloudEvent]:
    """The next events. Fails when they do not come."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(events) for _ in range(count)]


def mine(options: NatsOptions, engine: Engine) -> NatsOptions:
    """The options of a subscriber without the store."""
    return replace(options, name=store_id(engine))


async def test_subscriber_yields_exactly_the_log(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 10)
    engine.writer.run(take("src/a.py"), HERE)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), after=0) as events:
        found = await some(events, 11)
    with engine.store.reader() as reader:
        assert [event.text for event in found] == [text_of(store_id(engine), it) for it in reader.log(0, -1)]
    assert events.position == 11


async def test_subscriber_starts_after_a_position(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 30)
    await publish_all(engine, path, options)
    for after in (0, 1, 17, 29):
        async with Subscription(mine(options, engine), after=after) as events:
            assert [event.position for event in await some(events, 1)] == [after + 1]


async def test_subscriber_starts_now_by_default(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 3)
    async with relaying(engine, path, options):
        await publish_all_known(engine, options)
        async with Subscription(mine(options, engine)) as events:
            coming = asyncio.create_task(some(events, 2))
            await until(lambda: events.position == 3)
            await asyncio.to_thread(write, engine, 2)
            assert [event.position for event in await coming] == [4, 5]


async def publish_all_known(engine: Engine, options: NatsOptions) -> None:
    """Wait until a running relay published all."""
    with engine.store.reader() as reader:
        newest = reader.position()
    async with Subscription(mine(options, engine), after=newest - 1) as events:
        await some(events, 1)


async def test_subscriber_filters_by_subject_while_its_position_advances(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    for number in range(5):
        engine.writer.run(transact(put("a.b", number, namespace="one"), put("k", number, namespace="two")), NOBODY)
    engine.writer.run(take("src/a.py"), HERE)
    await publish_all(engine, path, options)
    for pattern in ("record.one.*", "record.*.a%2Eb", f"{options.root(store_id(engine))}.record.one.>"):
        async with Subscription(mine(options, engine), [pattern], after=0) as events:
            assert [event.position for event in await some(events, 5)] == [1, 3, 5, 7, 9]
    async with Subscription(mine(options, engine), ["claim.>", "record.two.*"], after=7) as events:
        assert [event.position for event in await some(events, 3)] == [8, 10, 11]


async def test_bookmarks_advance_the_position_of_an_idle_subscriber(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), ["claim.>"], after=0, bookmarks=0.05) as events:
        (mark,) = await some(events, 1)
    assert (mark.is_bookmark, mark.type, mark.position) == (True, "holdlog.Bookmark", 5)
    assert read(mark.text) == mark


async def test_subscriber_fills_a_gap_from_the_log(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 10)
    limited = replace(options, limits=StreamLimits(max_messages=3))
    await publish_all(engine, path, limited)
    assert await positions(options, engine) == [8, 9, 10]
    async with Subscription(options, after=2, opened=open_holdlog(path)) as events:
        assert [event.position for event in await some(events, 8)] == list(range(3, 11))
    async with Subscription(options, ["record.*.k0"], after=2, opened=open_holdlog(path)) as events:
        assert [event.position for event in await some(events, 1)] == [8]


async def test_subscriber_reads_the_log_when_the_stream_is_empty(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 4)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        await connection.jetstream().purge_stream(options.stream(store_id(engine)))
    async with Subscription(options, after=1, opened=open_holdlog(path)) as events:
        assert [event.position for event in await some(events, 3)] == [2, 3, 4]


async def test_gap_without_access_to_the_store_is_an_error_with_the_position(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 10)
    await publish_all(engine, path, replace(options, limits=StreamLimits(max_messages=3)))
    async with Subscription(mine(options, engine), after=2) as events:
        with pytest.raises(EventsLostError, match="after position 2 up to 7") as lost:
            await some(events, 1)
    assert (lost.value.after, lost.value.until) == (2, 7)


async def test_values_too_large_for_nats_are_read_from_the_log(path: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.conf"
    config.write_text("max_payload: 8192")
    engine = open_holdlog(path)
    with nats_server(tmp_path / "nats", "-c", str(config)) as server:
        options = nats_options(server.url)
        engine.writer.run(transact(put("k", "x" * 20_000)), NOBODY)
        await publish_all(engine, path, options)
        async with Subscription(options, after=0, opened=open_holdlog(path)) as events:
            (event,) = await some(events, 1)
    engine.close()
    assert (event.omitted, event.data["value"]) == (False, "x" * 20_000)


async def test_durable_subscriber_continues_where_it_was(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 10)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), after=0, durable="robot") as events:
        assert [event.position for event in await some(events, 4)] == [1, 2, 3, 4]
    async with Subscription(mine(options, engine), after=0, durable="robot") as events:
        assert [event.position for event in await some(events, 2)] == [5, 6]
    async with Subscription(mine(options, engine), durable="another") as events:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(events)


async def test_failed_event_is_delivered_again_to_a_durable_subscriber(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)

    async def fail() -> None:
        async with Subscription(mine(options, engine), after=0, durable="robot") as events:
            async for event in events:
                if event.position == 3:
                    raise LookupError

    with pytest.raises(LookupError):
        await fail()
    async with Subscription(mine(options, engine), durable="robot") as events:
        assert [event.position for event in await some(events, 1)] == [3]


async def test_durable_name_has_one_subscriber(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), after=0, durable="robot") as first:
        await some(first, 1)
        async with Subscription(mine(options, engine), after=0, durable="robot") as second:
            await some(second, 1)
            with pytest.raises(NatsError, match="another subscriber uses the durable name robot"):
                await some(first, 5)


async def test_subscriber_waits_for_a_killed_server(engine: Engine, path: Path, server: NatsServer) -> None:
    options = nats_options(server.url)
    async with relaying(engine, path, options), Subscription(options, after=0, opened=open_holdlog(path)) as events:
        write(engine, 3)
        assert [event.position for event in await some(events, 3)] == [1, 2, 3]
        server.kill()
        write(engine, 3)
        server.start()
        assert [event.position for event in await some(events, 3)] == [4, 5, 6]
        write(engine, 1)
        assert [event.position for event in await some(events, 1)] == [7]


@pytest.mark.check
async def test_subscriber_follows_a_recreated_stream(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), after=0) as events:
        await some(events, 3)
        async with client(options) as connection:
            await connection.jetstream().delete_stream(options.stream(store_id(engine)))
        write(engine, 2)
        await publish_all(engine, path, options)
        assert [event.position for event in await some(events, 2)] == [4, 5]


async def test_subscriber_may_start_before_the_stream_exists(engine: Engine, path: Path, options: NatsOptions) -> None:
    async with Subscription(mine(options, engine), after=0) as events:
        coming = asyncio.create_task(some(events, 2))
        await asyncio.sleep(0)
        write(engine, 2)
        await publish_all(engine, path, options)
        assert [event.position for event in await coming] == [1, 2]


async def test_subscriber_needs_a_store_name_only_among_several(engine: Engine, path: Path, server: NatsServer) -> None:
    options = nats_options(server.url)
    write(engine, 1)
    await publish_all(engine, path, options)
    async with subscribe(server.url, after=0) as events:
        assert [event.position for event in await some(events, 1)] == [1]
    other = open_holdlog(path.with_name("other.db"))
    await publish_all(other, path.with_name("other.db"), replace(options, name="team"))
    other.close()
    async with subscribe(server.url, after=0) as events:
        with pytest.raises(NatsError, match=f"choose one of {store_id(engine)}, team"):
            await some(events, 1)
    async with subscribe(server.url, after=0, store=path) as events:
        assert [event.position for event in await some(events, 1)] == [1]


async def test_subscriber_stays_with_its_store_when_others_publish_after_an_outage(
    engine: Engine, path: Path, server: NatsServer
) -> None:
    options = nats_options(server.url)
    write(engine, 1)
    await publish_all(engine, path, options)
    other = open_holdlog(path.with_name("other.db"))
    write(other, 5)
    async with subscribe(server.url, after=0) as events:
        assert [event.position for event in await some(events, 1)] == [1]
        await publish_all(other, path.with_name("other.db"), options)
        server.kill()
        server.start()
        write(engine, 1)
        await publish_all(engine, path, options)
        assert [event.source for event in await some(events, 1)] == [f"urn:uuid:{store_id(engine)}"]
    other.close()


@pytest.mark.check
async def test_stream_recreated_by_another_store_is_refused(engine: Engine, path: Path, options: NatsOptions) -> None:
    named = replace(options, name="taken")
    write(engine, 1)
    await publish_all(engine, path, named)
    other = open_holdlog(path.with_name("other.db"))
    write(other, 5)
    async with Subscription(named, after=0) as events:
        await some(events, 1)
        async with client(options) as connection:
            await connection.jetstream().delete_stream(named.stream(""))
        await publish_all(other, path.with_name("other.db"), named)
        with pytest.raises(NatsError, match="holdlog_taken does not belong to this store"):
            await some(events, 1)
    other.close()


@pytest.mark.check
async def test_cancelled_subscriber_ends_while_messages_arrive(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 300)
    await publish_all(engine, path, options)

    async def read(turns: int) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel_after(left: int) -> None:
            loop.call_soon(cancel_after, left - 1) if left else task.cancel()

        async with Subscription(mine(options, engine), after=0) as events:
            async for event in events:
                if event.position == 100:
                    cancel_after(turns)

    for turns in range(20):  # of the event loop: one of them is that in which the next message comes
        reading = asyncio.create_task(read(turns))
        await asyncio.wait({reading}, timeout=PATIENCE)
        assert reading.cancelled()


@pytest.mark.parametrize("how", ["delete", "purge"])
async def test_durable_subscriber_without_its_consumer_starts_over(
    how: str, engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    async with Subscription(mine(options, engine), after=0, durable="robot") as events:
        await some(events, 2)
    async with client(options) as connection:
        bucket = await connection.jetstream().key_value(f"{options.stream(store_id(engine))}_places")
        await getattr(bucket, how)("robot")
        async with Subscription(mine(options, engine), after=0, durable="robot") as events:
            assert [event.position for event in await some(events, 2)] == [1, 2]
            await getattr(bucket, how)("robot")
            assert [event.position for event in await some(events, 1)] == [3]
        await bucket.put("robot", b"mine")
    with pytest.raises(NatsError, match="the position of the durable name robot cannot be read; delete that key"):
        await some(Subscription(mine(options, engine), durable="robot"), 1)


@pytest.mark.parametrize("bad", [{"after": -1}, {"durable": "a b"}, {"durable": ""}])
def test_invalid_subscriber_arguments_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidError, match=next(iter(bad))):
        subscribe("nats://127.0.0.1:4222", **bad)  # type: ignore[arg-type]
