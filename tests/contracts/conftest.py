"""Every store, behind one fixture: what a test here says, it says of all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.opened import Opened
from holdlog.adapters.stores.memory import MemoryStore
from holdlog.adapters.stores.opening import open_sqlite
from holdlog.domain.ports import Store
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    memory = request.param == "memory"
    opened: Store = (
        MemoryStore(clock, clock.steady) if memory else open_sqlite(tmp_path / "state.db", clock, clock.steady)
    )
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What a store is opened by."""
    return MEMORY if request.param == "memory" else str(tmp_path / "state.db")


@pytest.fixture
def opened(place: str) -> Iterator[Opened]:
    holdlog = open_holdlog(place)
    yield holdlog
    holdlog.close()
