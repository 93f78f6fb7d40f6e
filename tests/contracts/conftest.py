"""Every store, behind one fixture: what a test here says, it says of all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.ports import Store
from tests.support.clock import Clock
from tests.support.slow import slow

IN_A_FILE_IN_TIME = pytest.mark.parametrize("place", ["sqlite", *slow("memory", "postgres")], indirect=True)
"""Where what is tested is above the store and takes long: with the other stores in `make slow`."""

STORE_IN_A_FILE_IN_TIME = pytest.mark.parametrize("store", ["sqlite", *slow("memory", "postgres")], indirect=True)
"""The same, of a store."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    engine: Store
    match request.param:
        case "memory":
            engine = open_memory(clock, clock.steady)
        case "sqlite":
            engine = open_sqlite(tmp_path / "state.db", clock, clock.steady)
        case _:
            engine = open_postgres(request.getfixturevalue("postgres"), clock, clock.steady)
    yield engine
    engine.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What a store is opened by."""
    match request.param:
        case "memory":
            return MEMORY
        case "sqlite":
            return str(tmp_path / "state.db")
        case _:
            return str(request.getfixturevalue("postgres"))


@pytest.fixture
def engine(place: str) -> Iterator[Engine]:
    holdlog = open_holdlog(place)
    yield holdlog
    holdlog.close()
