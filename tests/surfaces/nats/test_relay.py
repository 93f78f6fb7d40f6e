"""The relay publishes each event once and in order, from where the stream ends."""

import asyncio
import json
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js.api import StreamConfig

from holdlog.adapters.compose import open_holdlog, open_lead
from holdlog.adapters.nats.connection import connect
from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.lead import FileLead, SoleLead
from holdlog.adapters.nats.options import NatsOptions, StreamLimits, nats_options
from holdlog.adapters.nats.payload import read
from holdlog.adapters.nats.publishing import FENCED, Publisher
from holdlog.adapters.nats.relay import Relay, Status
from holdlog.adapters.nats.sending import Sending
from holdlog.adapters.nats.stream import Head, ensure_stream
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from tests.support.commands import HERE, put, take, transact
from tests.support.servers import NatsServer, free_port, nats_server
from tests.support.streams import PATIENCE, client, messages, positions, until
from tests.surfaces.nats.conftest import publish_all, relaying, store_id


def write(engine: Engine, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        engine.writer.run(transact(put(f"k{number % 7}", number)), NOBODY)


async def test_published_events_equal_the_log(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 20)
    engine.writer.run(transact(put("a.b *>", "x", namespace="name space")), NOBODY)
    engine.writer.run(transact(put("🦊" * 512, "x")), NOBODY)
    engine.writer.run(take("src/a.py"), HERE)
    await publish_all(engine, path, options)
    found = await messages(options, engine)
    with engine.store.reader() as reader:
        log = reader.log(0, -1)
    assert [int(message.headers["Log-Position"]) for message in found] == list(range(1, 24))
    assert [int(message.headers["Log-Previous"]) for message in found] == list(range(23))
    for message, recorded in zip(found, log, strict=True):
        event = read(message.data.decode())
        assert (event.position, event.digest) == (recorded.envelope.position, recorded.envelope.digest.hex())
        assert message.headers["Topic"] == recorded.envelope.topic
        assert message.headers["Nats-Msg-Id"] == f"{store_id(engine)}:{event.position}"
    root = options.root(store_id(engine))
    assert found[20].subject == f"{root}.record.name%20space.a%2Eb%20%2A%3E"
    assert found[22].subject == f"{root}.claim.path.src%2Fa%2Epy"


async def test_second_relay_run_continues_at_the_end_of_the_stream(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    await publish_all(engine, path, options)
    write(engine, 2)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 2, 3, 4, 5]


async def test_relay_publishes_events_as_they_happen(engine: Engine, path: Path, options: NatsOptions) -> None:
    told: list[Status] = []
    async with relaying(engine, path, options, told.append):
        await until(lambda: bool(told) and told[-1].state == "current")
        write(engine, 3)
        await until(lambda: told[-1].position == 3)
    assert await positions(options, engine) == [1, 2, 3]


async def test_concurrent_relays_publish_no_event_twice(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 5)
    relays = [Relay(engine.store, engine.notifier, SoleLead(), options) for _ in range(3)]

    running = [asyncio.create_task(relay.run()) for relay in relays]
    for number in range(30):
        await asyncio.to_thread(write, engine, 10, number)
    await until(lambda: all(relay._acknowledged.position == 305 for relay in relays))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert await positions(options, engine) == list(range(1, 306))


async def test_relay_continues_with_a_stream_that_retention_emptied(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        await connection.jetstream().purge_stream(options.stream(store_id(engine)))
    write(engine, 2)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [6, 7]


async def test_relay_continues_with_an_emptied_stream_without_a_warning(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        await connection.jetstream().purge_stream(options.stream(store_id(engine)))
    with engine.store.transaction(time.monotonic() + 5) as transaction:
        transaction.put_meta(f"relay:{options.stream(store_id(engine))}", json.dumps(["another", 3, 99]))
    write(engine, 2)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [6, 7]


async def test_relay_refills_a_deleted_stream(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        await connection.jetstream().delete_stream(options.stream(store_id(engine)))
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 2, 3, 4, 5]


async def test_relay_survives_deletion_of_the_newest_message(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        js = connection.jetstream()
        await js.delete_msg(options.stream(store_id(engine)), 5)
        await js.delete_msg(options.stream(store_id(engine)), 4)
    write(engine, 1)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 2, 3, 6]


async def test_relay_ignores_foreign_messages(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 2)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        js = connection.jetstream()
        for _ in range(2):
            await js.publish(f"{options.root(store_id(engine))}.record.n.k", b"hello")
    write(engine, 2)
    await publish_all(engine, path, options)
    found = await messages(options, engine)
    assert [(it.headers or {}).get("Log-Position") for it in found] == ["1", "2", None, None, "3", "4"]


async def test_stream_limits_come_from_the_options(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    limited = replace(options, limits=StreamLimits(max_age=3600.0, max_bytes=10_000_000, max_messages=3))
    await publish_all(engine, path, limited)
    async with client(options) as connection:
        config = (await connection.jetstream().stream_info(options.stream(store_id(engine)))).config
    assert (config.max_age, config.max_bytes, config.max_msgs) == (3600.0, 10_000_000, 3)
    assert await positions(options, engine) == [3, 4, 5]
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [3, 4, 5]


async def test_stream_of_another_store_is_refused(engine: Engine, path: Path, options: NatsOptions) -> None:
    named = replace(options, name="team")
    await publish_all(engine, path, named)
    other = open_holdlog(path.with_name("other.db"))
    try:
        with pytest.raises(NatsError, match=f"holdlog_team belongs to another store .{store_id(engine)}.*--nats-name"):
            await publish_all(other, path.with_name("other.db"), named)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (StreamConfig(name="holdlog_mine", subjects=["holdlog.mine.>"]), "was not created by holdlog"),
        (StreamConfig(name="theirs", subjects=["holdlog.mine.record.>"]), "another stream has subjects below"),
    ],
)
async def test_stream_not_created_by_holdlog_is_refused(
    engine: Engine, path: Path, options: NatsOptions, config: StreamConfig, told: str
) -> None:
    async with client(options) as connection:
        js = connection.jetstream()
        await js.add_stream(config)
        try:
            with pytest.raises(NatsError, match=told):
                await publish_all(engine, path, replace(options, name="mine"))
        finally:
            await js.delete_stream(str(config.name))


async def test_store_older_than_its_stream_is_refused(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    older = open_holdlog(":memory:")
    with older.store.transaction(time.monotonic() + 5) as transaction:
        transaction.put_meta("store_id", store_id(engine))
    write(older, 2)
    with pytest.raises(NatsError, match="at position 3 that this store does not have"):
        await publish_all(older, path, options)
    write(older, 5)
    with pytest.raises(NatsError, match="an older copy"):
        await publish_all(older, path, options)


async def test_store_older_than_its_emptied_stream_is_refused(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 5)
    await publish_all(engine, path, options)
    async with client(options) as connection:
        await connection.jetstream().purge_stream(options.stream(store_id(engine)))
    older = open_holdlog(":memory:")
    with older.store.transaction(time.monotonic() + 5) as transaction:
        transaction.put_meta("store_id", store_id(engine))
    write(older, 3)
    with pytest.raises(NatsError, match="had 2 more events than this store: the store is an older copy"):
        await publish_all(older, path, options)


async def test_value_too_large_for_nats_is_omitted(path: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.conf"
    config.write_text("max_payload: 8192")
    engine = open_holdlog(path)
    with nats_server(tmp_path / "nats", "-c", str(config)) as server:
        options = nats_options(server.url)
        engine.writer.run(transact(put("k", "x" * 20_000)), NOBODY)
        write(engine, 1)
        await publish_all(engine, path, options)
        large, small = [read(message.data.decode()) for message in await messages(options, engine)]
    engine.close()
    assert (large.omitted, large.data["value"]) == (True, None)
    assert (small.omitted, small.data["value"]) == (False, 0)


@pytest.mark.check
async def test_relay_publishes_large_values_in_short_pages(engine: Engine, path: Path, options: NatsOptions) -> None:
    for number in range(60):
        engine.writer.run(transact(put(f"k{number}", "x" * 400_000)), NOBODY)
    write(engine, 600)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == list(range(1, 661))


async def test_relay_waits_for_a_server_that_is_down(engine: Engine, path: Path, tmp_path: Path) -> None:
    write(engine, 3)
    told: list[Status] = []
    server = NatsServer(tmp_path / "nats", port=free_port())
    options = nats_options(server.url)
    try:
        async with relaying(engine, path, options, told.append):
            await until(lambda: any(status.state == "failed" for status in told))
            server.start()
            await until(lambda: told[-1].state == "current")
        assert await positions(options, engine) == [1, 2, 3]
    finally:
        server.stop()


async def test_relay_continues_after_its_server_was_killed(engine: Engine, path: Path, server: NatsServer) -> None:
    told: list[Status] = []
    options = nats_options(server.url)
    async with relaying(engine, path, options, told.append):
        write(engine, 3)
        await until(lambda: bool(told) and told[-1].position == 3)
        server.kill()
        write(engine, 3)
        await until(lambda: told[-1].state == "failed")
        server.start()
        await until(lambda: told[-1].position == 6)
    assert await positions(options, engine) == [1, 2, 3, 4, 5, 6]


async def test_relay_refills_a_stream_that_lost_its_end(engine: Engine, path: Path, server: NatsServer) -> None:
    options = nats_options(server.url)
    write(engine, 3)
    await publish_all(engine, path, options)
    server.stop()
    kept = shutil.copytree(server.folder, server.folder.with_name("kept"))
    server.start()
    write(engine, 3)
    await publish_all(engine, path, options)
    async with Subscription(options, after=0, opened=open_holdlog(path)) as events:
        assert [(await anext(events)).position for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        server.kill()
        shutil.rmtree(server.folder)
        shutil.copytree(kept, server.folder)
        server.start()
        coming = asyncio.create_task(_next_two(events))
        await until_read(options, engine)  # so it sees the same events come again
        assert await positions(options, engine) == [1, 2, 3]
        write(engine, 2)
        await publish_all(engine, path, options)
        assert await coming == [7, 8]
    assert await positions(options, engine) == [1, 2, 3, 4, 5, 6, 7, 8]


async def _next_two(events: Subscription) -> list[int]:
    return [(await anext(events)).position for _ in range(2)]


async def until_read(options: NatsOptions, engine: Engine) -> None:
    """Until somebody reads the stream."""
    async with client(options) as connection:
        js = connection.jetstream()
        for _ in range(1000):
            if await js.consumers_info(options.stream(store_id(engine))):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nobody reads it")


async def test_relay_behind_its_stream_is_fenced(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 3)
    await publish_all(engine, path, options)
    async with connect(options, "test") as connection:
        js, name = connection.jetstream(), options.stream(store_id(engine))
        config = (await js.stream_info(name)).config
        await js.update_stream(replace(config, duplicate_window=0.1))
        await asyncio.sleep(0.3)  # the server's own window, in which it knows repeated messages without the fence
        with engine.store.reader() as reader:
            (second,) = reader.log(1, 1)
        late = Sending(await Publisher(connection).open(), options, store_id(engine), Head(1, 1), 100_000)
        future, _ = await late.send(second)
        assert (await future).code in FENCED
    assert await positions(options, engine) == [1, 2, 3]


async def test_foreign_message_between_two_of_ours_causes_no_gap(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 5)
    async with connect(options, "test") as connection:
        js = connection.jetstream()
        await ensure_stream(js, options, store_id(engine))
        await js.publish(f"{options.root(store_id(engine))}.record.n.k", b"hello")
        with engine.store.reader() as reader:
            log = reader.log(0, 5)
        in_flight = Sending(await Publisher(connection).open(), options, store_id(engine), Head(0, 0), 100_000)
        answers = [(await in_flight.send(recorded))[0] for recorded in log]
        assert {(await answer).code in FENCED for answer in answers} == {True}
    await publish_all(engine, path, options)
    found = await messages(options, engine)
    assert [(it.headers or {}).get("Log-Position") for it in found] == [None, "1", "2", "3", "4", "5"]


async def test_missing_jetstream_is_reported_with_what_to_do(engine: Engine, path: Path, tmp_path: Path) -> None:
    config = tmp_path / "plain.conf"
    config.write_text('accounts: {A: {users: [{user: ann, password: "x"}]}}')  # an account without JetStream
    with nats_server(tmp_path / "nats", "-c", str(config)) as server:
        options = nats_options(server.url.replace("//", "//ann:x@"))
        with pytest.raises(NatsError, match="JetStream is not enabled"):
            await publish_all(engine, path, options)


async def test_two_relays_may_create_the_stream_concurrently(engine: Engine, options: NatsOptions) -> None:

    async def make() -> None:
        async with connect(options, "test") as connection:
            await ensure_stream(connection.jetstream(), options, store_id(engine))

    await asyncio.gather(*(make() for _ in range(5)))


def test_only_one_relay_of_a_store_leads(tmp_path: Path) -> None:
    one, other = FileLead(tmp_path / "lead"), FileLead(tmp_path / "lead")
    assert (one.take(), one.take(), other.take()) == (True, True, False)
    one.release()
    assert FileLead(tmp_path / "no" / "folder").take()
    assert (other.take(), one.take()) == (True, False)
    other.release()


def test_relays_of_one_store_to_two_names_both_lead(path: Path, options: NatsOptions) -> None:
    one, other = open_lead(path, options), open_lead(path, replace(options, name="team"))
    assert [one.take(), other.take(), open_lead(path, options).take()] == [True, True, False]
    one.release()
    other.release()


async def test_relay_once_ends_while_another_relay_publishes(engine: Engine, path: Path, options: NatsOptions) -> None:
    write(engine, 20)
    leading: list[Status] = []
    async with relaying(engine, path, options, leading.append):
        await until(lambda: bool(leading) and leading[-1].state in ("publishing", "current"))
        seen: list[Status] = []
        relay = Relay(engine.store, engine.notifier, open_lead(path, options), options, seen.append)
        async with asyncio.timeout(PATIENCE):
            await relay.run(once=True)
        assert seen[0].state == "waiting"
        assert seen[-1] == Status("current", 20)
        write(engine, 1)
        await until(lambda: leading[-1].position == 21)
    assert await positions(options, engine) == list(range(1, 22))


async def test_relay_once_publishes_when_the_leader_makes_no_progress(
    engine: Engine, path: Path, options: NatsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.nats.relay.STALLED_AFTER", 0.1)
    write(engine, 20)
    stuck = open_lead(path, options)
    assert stuck.take()
    async with asyncio.timeout(PATIENCE):
        await publish_all(engine, path, options)
    assert not open_lead(path, options).take()
    stuck.release()
    assert await positions(options, engine) == list(range(1, 21))


async def test_relay_once_ends_at_its_start_position_while_others_write(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 20)
    ended = threading.Event()

    def write_on() -> None:
        while not ended.is_set():
            write(engine, 40)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await publish_all(engine, path, options)
    finally:
        ended.set()
        await asyncio.to_thread(writer.join)
    found = await positions(options, engine)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 20


async def test_relay_once_fails_when_another_leads_and_the_stream_is_foreign(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, 1)
    lead = open_lead(path, options)
    assert lead.take()
    async with client(options) as connection:
        name = options.stream(store_id(engine))
        await connection.jetstream().add_stream(StreamConfig(name=name, subjects=["another.>"]))
    with pytest.raises(NatsError, match="not created by holdlog"):
        await publish_all(engine, path, options)
    lead.release()
