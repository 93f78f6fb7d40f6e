"""The relay removes redacted texts from the stream, and publishes nothing twice."""

import asyncio
from dataclasses import replace
from pathlib import Path

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.nats.payload import read
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY, Caller
from tests.support.commands import put, redact, transact
from tests.support.servers import NatsServer
from tests.support.streams import PATIENCE, messages, positions, until
from tests.surfaces.nats.conftest import Status, publish_all, relaying, store_id

SECRET = "sk-1234567890"


def write(engine: Engine, key: str, value: object, reason: str | None = None) -> None:
    engine.writer.run(transact(put(key, value)), Caller(reason=reason))


def stored(folder: Path) -> bool:
    """Whether a file of the NATS server contains the secret."""
    return any(SECRET.encode() in it.read_bytes() for it in folder.rglob("*") if it.is_file())


async def test_message_of_a_redacted_event_is_removed_and_nothing_is_published_twice(
    engine: Engine, path: Path, tmp_path: Path, server: NatsServer
) -> None:
    options = nats_options(server.url)
    for value in (1, SECRET, 3):
        write(engine, "k", value)
    write(engine, "other", 4, reason=SECRET)
    await publish_all(engine, path, options)
    assert stored(tmp_path / "nats")
    redact(engine.store, 2)
    redact(engine.store, 4, "reason")
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 3, 5, 6]
    assert not stored(tmp_path / "nats")
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 3, 5, 6]


async def test_relay_continues_when_its_newest_message_was_removed(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    write(engine, "a", 1)
    write(engine, "k", SECRET)
    await publish_all(engine, path, options)
    redact(engine.store, 2)
    await publish_all(engine, path, options)
    redact(engine.store, 3, "reason", reason="it, too")  # of the redaction: the newest message
    write(engine, "a", 2)
    await publish_all(engine, path, options)
    assert await positions(options, engine) == [1, 4, 5]


async def test_running_relay_removes_messages_and_goes_on(engine: Engine, path: Path, options: NatsOptions) -> None:
    seen: list[Status] = []
    async with relaying(engine, path, options, seen.append):
        write(engine, "k", SECRET)
        await until(lambda: bool(seen) and seen[-1].position == 1)
        redact(engine.store, 1)
        write(engine, "k", 2)
        await until(lambda: seen[-1].position == 3)
    assert await positions(options, engine) == [2, 3]


async def test_event_that_was_redacted_before_it_was_published_has_no_value(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    engine.writer.run(transact(put("k", SECRET)), NOBODY)
    redact(engine.store, 1)
    write(engine, "k", 2)
    await publish_all(engine, path, options)
    events = {event.position: event for event in (read(it.data.decode()) for it in await messages(options, engine))}
    assert all(SECRET not in event.text for event in events.values())
    assert (events[1].redacted, events[1].data["value"]) == (True, None)
    assert sorted(events) == [1, 2, 3]


async def publish_and_redact_the_second(engine: Engine, path: Path, options: NatsOptions) -> None:
    """Publish three values, redact the second, and publish that."""
    for value in (1, SECRET, 3):
        write(engine, "k", value)
    await publish_all(engine, path, options)
    redact(engine.store, 2)
    await publish_all(engine, path, options)


async def test_subscriber_without_the_store_continues_after_removed_messages(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    await publish_and_redact_the_second(engine, path, options)
    async with asyncio.timeout(PATIENCE), Subscription(replace(options, name=store_id(engine)), after=0) as events:
        assert [(await anext(events)).position for _ in range(3)] == [1, 3, 4]


async def test_subscriber_with_the_store_reads_a_removed_event_from_the_log(
    engine: Engine, path: Path, options: NatsOptions
) -> None:
    await publish_and_redact_the_second(engine, path, options)
    async with asyncio.timeout(PATIENCE), Subscription(options, after=0, opened=open_holdlog(path)) as events:
        found = [await anext(events) for _ in range(4)]
    assert [(it.position, it.redacted) for it in found] == [(1, False), (2, True), (3, False), (4, False)]
