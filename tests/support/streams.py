"""What stands in a stream, read by a client that knows nothing of holdlog."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import TimeoutError as Empty
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.runtime.engine import Engine
from tests.surfaces.nats.conftest import store_id

PATIENCE = 30.0


@asynccontextmanager
async def client(options: NatsOptions) -> AsyncIterator[Client]:
    connection = await nats.connect(list(options.servers), max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    try:
        yield connection
    finally:
        await connection.close()


async def messages(options: NatsOptions, engine: Engine) -> list[Any]:
    """All messages of a store's stream, in the stream's order."""
    root, stream = options.root(store_id(engine)), options.stream(store_id(engine))
    async with client(options) as connection:
        js = connection.jetstream()
        wanted = (await js.stream_info(stream)).state.messages
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        pull = await js.pull_subscribe(f"{root}.>", stream=stream, config=config)
        found: list[Any] = []
        while len(found) < wanted:
            try:
                found += await pull.fetch(500, timeout=5)
            except Empty:
                break
        return found


async def positions(options: NatsOptions, engine: Engine) -> list[int]:
    return [int(message.headers["Log-Position"]) for message in await messages(options, engine)]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)
