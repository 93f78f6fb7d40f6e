"""A NATS server for the tests of a file, and stores whose events go there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog, open_lead
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.nats.relay import Relay, Status
from holdlog.adapters.runtime.engine import Engine
from tests.support.processes.soundness import Place
from tests.support.servers import NatsServer, nats_server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """For tests that leave it running; each has a store, and so a stream, of its own."""
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """For tests that kill it."""
    with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def options(shared_server: NatsServer) -> NatsOptions:
    return nats_options(shared_server.url)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def place(request: pytest.FixtureRequest, path: Path) -> Place:
    """What a store is opened by: a file, or with `EVERY_STORE` a database, too."""
    in_postgres = getattr(request, "param", "sqlite") == "postgres"
    return str(request.getfixturevalue("postgres")) if in_postgres else path


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    holdlog = open_holdlog(path)
    yield holdlog
    holdlog.close()


async def publish_all(engine: Engine, path: Place, options: NatsOptions) -> None:
    """Until the stream has all that the log has."""
    await Relay(engine.store, engine.notifier, open_lead(path, options), options).run(once=True)


@asynccontextmanager
async def relaying(
    engine: Engine, path: Place, options: NatsOptions, tell: Callable[[Status], None] | None = None
) -> AsyncIterator[None]:
    """A relay that publishes while the block runs."""
    running = asyncio.create_task(Relay(engine.store, engine.notifier, open_lead(path, options), options, tell).run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def store_id(engine: Engine) -> str:
    with engine.store.reader() as reader:
        found = reader.meta("store_id")
    assert found
    return found
