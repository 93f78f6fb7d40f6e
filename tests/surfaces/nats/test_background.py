"""A server works without NATS, publishes when it is there, and wakes its waiters when it hears of something."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_holdlog, publish_to_nats
from holdlog.adapters.nats.background import BackgroundRelay
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from tests.processes.conftest import EVERY_STORE
from tests.support.commands import put, transact
from tests.support.processes.claimants import Server
from tests.support.processes.soundness import Place
from tests.support.processes.workers import until
from tests.support.servers import NatsServer, free_port
from tests.support.slow import slow
from tests.support.streams import client
from tests.surfaces.nats.conftest import store_id
from tests.surfaces.nats.test_subscriber import some

Serve = Callable[..., Server]


@pytest.fixture
def serve(place: Place) -> Iterator[Serve]:
    """Start a `holdlog serve` with these options."""
    started: list[Server] = []

    def begin(*options: Any, env: dict[str, str] | None = None) -> Server:
        started.append(Server(place, *map(str, options), session="s", env=env or {}))
        return started[-1].open()

    yield begin
    for server in started:
        server.wire.close()


@pytest.mark.check
@EVERY_STORE
@pytest.mark.parametrize("outage", [0.0, *slow(60.0)])
async def test_tools_work_while_nats_is_down_and_nothing_is_lost(
    place: Place, tmp_path: Path, serve: Serve, outage: float
) -> None:
    """It is down when the server starts, and again for `outage` seconds or some calls in between. The subscriber has
    nothing but NATS."""
    nats = NatsServer(tmp_path / "nats", port=free_port())
    server = serve("--nats", nats.url)
    engine = open_holdlog(place)
    options = nats_options(nats.url, name=store_id(engine))
    engine.close()
    calls = itertools.count(1)

    def call() -> None:
        """As ever: what comes of it is what comes of it without NATS."""
        number = next(calls)
        written = server("set", namespace="n", key="k", value=number, updated_by="a", expected_version=number - 1)
        assert (written["status"], written["version"]) == ("ok", number)
        assert server("get", namespace="n", key="k")["value"] == number

    for _ in range(3):
        call()
    try:
        nats.start()
        async with Subscription(options, after=0) as events:
            assert [event.data["value"] for event in await some(events, 3)] == [1, 2, 3]
            nats.kill()
            until_then, missed = time.monotonic() + outage, 0
            while missed < 20 or time.monotonic() < until_then:
                await asyncio.to_thread(call)
                missed += 1
                if outage:
                    await asyncio.sleep(0.1)  # a load, not a wait for anything
            nats.start()
            call()
            found = await some(events, missed + 1)
            assert [event.data["value"] for event in found] == list(range(4, missed + 5))
            assert [event.position for event in found] == list(range(4, missed + 5))
            assert server("claim", resource="custom://deploy", agent="ann")["status"] == "claimed"
            (claimed,) = await some(events, 1)
            assert claimed.data["resource"] == "custom://deploy"
        assert server.wire.process.stdin is not None
        server.wire.process.stdin.close()
        code, said, _ = server.wire.ended()
        assert code == 0
        assert all(any(words in line for line in said) for words in ("cannot be reached", "NATS is available again")), (
            said
        )
        assert len(said) <= 6
    finally:
        nats.stop()


@pytest.mark.check
def test_server_logs_once_that_nats_is_down_and_never_a_password(path: Path, serve: Serve) -> None:
    port = free_port()
    server = serve("--nats", f"nats://ann:s3cret@127.0.0.1:{port}")
    line = server.wire.line("stderr").decode()
    assert f"nats://127.0.0.1:{port} cannot be reached" in line
    assert "s3cret" not in line
    server.end()


@pytest.mark.check
def test_server_with_wrong_nats_credentials_works_and_logs_it(path: Path, tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "c.conf").write_text('authorization: {user: ann, password: "right"}')
    nats = NatsServer(tmp_path / "nats", "-c", str(tmp_path / "c.conf")).start()
    try:
        server = serve("--nats", nats.url, env={"HOLDLOG_NATS_USER": "ann", "HOLDLOG_NATS_PASSWORD": "s3cret"})
        assert "refuses the credentials" in server.wire.line("stderr").decode()
        assert server("set", namespace="n", key="k", value=1, updated_by="a", expected_version=0)["status"] == "ok"
        server.end()
    finally:
        nats.stop()


@pytest.fixture
def beside(options: NatsOptions) -> Iterator[tuple[Engine, BackgroundRelay]]:
    """A store in memory, and NATS beside it."""
    engine = open_holdlog(":memory:")
    nats = publish_to_nats(engine, ":memory:", options)
    yield engine, nats
    nats.stop()
    engine.close()


async def test_nats_notifications_wake_waiters(options: NatsOptions, beside: tuple[Engine, BackgroundRelay]) -> None:
    engine, nats = beside
    until(lambda: nats.status.state == "current")
    rung = threading.Event()
    with engine.notifier.listen(rung.set):
        async with client(options) as connection:
            for _ in range(2):  # the first ring may come from its being connected
                rung.clear()
                for _ in range(500):
                    await connection.publish(f"{options.root(store_id(engine))}.record.n.k", b"{}")
                    await asyncio.sleep(0.01)
                    if rung.is_set():
                        break
                assert rung.is_set()


def test_stopping_the_nats_connection_leaves_nothing_behind(options: NatsOptions) -> None:
    engine = open_holdlog(":memory:")
    before = threading.active_count()
    nats = publish_to_nats(engine, ":memory:", options)
    engine.writer.run(transact(put("k", 1)), NOBODY)
    until(lambda: nats.status.position == 1)
    nats.stop()
    until(lambda: threading.active_count() <= before)
    publish_to_nats(engine, ":memory:", options).stop()
    engine.close()


def test_foreign_stream_is_reported_and_retried(
    options: NatsOptions, beside: tuple[Engine, BackgroundRelay], caplog: pytest.LogCaptureFixture
) -> None:
    _, first = beside
    until(lambda: first.status.state == "current")
    with caplog.at_level(logging.WARNING, "holdlog.nats"):
        named = replace(options, name="taken")
        stores = [open_holdlog(":memory:") for _ in range(2)]
        nats = []
        for store in stores:
            nats.append(publish_to_nats(store, ":memory:", named))
            until(lambda: nats[-1].status.state != "connecting" or bool(caplog.messages))
        until(lambda: any("belongs to another store" in text for text in caplog.messages))
    for it, store in zip(nats, stores, strict=True):
        it.stop()
        store.close()
