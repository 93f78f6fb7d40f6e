"""Stores in files, and workers that never outlive their test."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_holdlog
from tests.support.processes.claimants import CLAIMANTS, Server
from tests.support.processes.hosts import Host, store_of
from tests.support.processes.soundness import Place
from tests.support.processes.ups import Up
from tests.support.processes.workers import Worker
from tests.support.servers import passable_folder
from tests.support.slow import slow

EVERY_STORE = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
EVERY_STORE_IN_TIME = pytest.mark.parametrize("place", ["sqlite", *slow("postgres")], indirect=True)
"""Where what is tested is above the store: with PostgreSQL in `make slow`."""
Start = Callable[..., Worker]
Serve = Callable[..., Server]
StartUp = Callable[..., Up]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store that is not there yet."""
    return tmp_path / "state.db"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker: the name of its behaviour, then what it takes."""
    started: list[Worker] = []

    def begin(name: str, *arguments: Any, before: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Worker:
        worker = Worker(name, *arguments, before=before, env=env)
        started.append(worker)
        return worker

    yield begin
    for worker in started:
        worker.end()


@pytest.fixture
def claimant(start: Start) -> Start:
    """Start a worker with a behaviour of claimants.py."""

    def begin(name: str, *arguments: Any, before: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Worker:
        return start(name, *arguments, before=(*before, *CLAIMANTS), env=env)

    return begin


@pytest.fixture
def place(request: pytest.FixtureRequest, path: Path) -> Place:
    """What a store is opened by: a file, or with `EVERY_STORE` a database, too."""
    in_postgres = getattr(request, "param", "sqlite") == "postgres"
    return str(request.getfixturevalue("postgres")) if in_postgres else path


@pytest.fixture
def serve(place: Place) -> Iterator[Serve]:
    """Start a `holdlog serve` with these options."""
    started: list[Server] = []

    def begin(*options: Any, session: str = "", env: dict[str, str] | None = None) -> Server:
        started.append(Server(place, *map(str, options), session=session, env=env or {}))
        return started[-1]

    yield begin
    for server in started:
        server.wire.close()


@pytest.fixture
def base() -> Iterator[Path]:
    with passable_folder() as folder:
        yield folder


@pytest.fixture
def up(base: Path) -> Iterator[StartUp]:
    """StartUp one with these options; none outlives the test."""
    started: list[Up] = []

    def begin(*options: object) -> Up:
        started.append(Up(base, *map(str, options)))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.end()
        one.process.communicate()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a store."""
    for words in (["init", "-q"], ["config", "user.email", "a@example.org"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=tmp_path, check=True)
    open_holdlog(store_of(tmp_path)).close()
    return tmp_path


@pytest.fixture
def host(repository: Path) -> Iterator[Callable[[], Host]]:
    started: list[Host] = []

    def start() -> Host:
        started.append(Host(repository))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()
