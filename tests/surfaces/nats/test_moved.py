"""A store that moves goes on in its stream: nothing doubled, nothing missing, and its old place only reads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog, open_lead
from holdlog.adapters.nats import relay
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.relay import Relay, Status
from holdlog.adapters.python.copying import copy
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from tests.support.places import Place, places
from tests.support.streams import positions, until
from tests.surfaces.nats.conftest import publish_all, relaying, store_id
from tests.surfaces.nats.test_relay import write
from tests.surfaces.nats.test_subscriber import mine, some


@pytest.fixture(params=["file", "schema"])
def target(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: str) -> Iterator[Place]:
    with places(tmp_path, postgres_server) as somewhere:
        yield somewhere(request.param)


async def test_relay_and_subscriber_of_a_moved_store_continue(
    engine: Engine, path: Path, target: Place, options: NatsOptions
) -> None:
    write(engine, 20)
    told: list[Status] = []
    async with relaying(engine, path, options, told.append):
        await until(lambda: bool(told) and told[-1].position == 20)
        async with Subscription(mine(options, engine), after=0) as events:
            found = await some(events, 15)
            write(engine, 5)
            report = await asyncio.to_thread(copy, path, target, seal=True)
            await until(lambda: told[-1].position == 25)  # the old relay reads on to the end
            moved = open_holdlog(target)
            try:
                assert store_id(moved) == report.store_id == store_id(engine)
                write(moved, 10)
                await publish_all(moved, path.with_name("moved.db"), options)
                found += await some(events, 20)
                assert await positions(options, moved) == list(range(1, 36))
            finally:
                moved.close()
        assert told[-1].error is None
    assert [event.position for event in found] == list(range(1, 36))


async def test_relay_of_a_sealed_store_keeps_its_position_and_pauses(
    engine: Engine, path: Path, tmp_path: Path, options: NatsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ANCHOR_AFTER", 0.0)
    write(engine, 3)
    copy(path, tmp_path / "moved.db", seal=True)
    await Relay(engine.store, engine.notifier, open_lead(path, options), options).run(once=True)
    assert await positions(options, engine) == [1, 2, 3]
