"""Fixtures for the doors."""

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import both_stores as both_stores
from tests.conftest import in_postgres as in_postgres
from tests.conftest import nats_server as nats_server
from tests.support.faults import Faults
from tests.support.hosts import Session, repository, write
from tests.support.mcp import Stdio
from tests.support.programs import Done, HttpServer, run
from tests.support.workers import Worker

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty folder that commands and servers run in. It is no git repository."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def command(db: Path, work: Path) -> Callable[..., Done]:
    """Runs `holdlog …` on the test's store, in `work`. Options as of `programs.run`."""

    def call(*words: str | Path, **options: Any) -> Done:
        env = {"HOLDLOG_DB": str(db)} | options.pop("env", {})
        return run(*words, env=env, **{"cwd": work} | options)

    return call


@pytest.fixture
def stdio(db: Path, work: Path) -> Iterator[Callable[..., Stdio]]:
    """Starts a stdio server on the test's store, in `work`, with options. `more` as of `Stdio`."""
    clients = list[Stdio]()

    def start(*options: str | Path, **more: Any) -> Stdio:
        where = () if "--db" in options else ("--db", db)
        clients.append(Stdio(*where, *options, **{"cwd": work} | more))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()


@pytest.fixture
def http(db: Path) -> Iterator[Callable[..., HttpServer]]:
    """Starts a server over HTTP on the test's store, with options."""
    servers = list[HttpServer]()

    def start(*options: str, **more: Any) -> HttpServer:
        servers.append(HttpServer(more.pop("db", db), *options, **more))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.close()


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A server over HTTP, without tokens, in a git repository. Its tests share it (`xdist_group("http")`)."""
    folder = tmp_path_factory.mktemp("open")
    subprocess.run(["git", "init", "-q", folder / "work"], check=True)
    env = {"XDG_STATE_HOME": str(folder / "state")}
    server = HttpServer(folder / "state.db", "--tools", "all", "--max-wait", "300", env=env, cwd=folder / "work")
    yield server
    server.close()


@pytest.fixture(scope="session")
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `open_stdio`: a repository with a few files, and its store, `state.db`."""
    folder = tmp_path_factory.mktemp("work")
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name in ("src/a.py", "src/b.py", "src/{x}.py", "src/[id].py"):
        write(folder / name, "x = 1\n")
    return folder


@pytest.fixture(scope="session")
def open_stdio(open_folder: Path) -> Iterator[Stdio]:
    """A stdio server with all tools. Its tests share it (`xdist_group("stdio")`) and use names of their own."""
    client = Stdio("--db", open_folder / "state.db", "--tools", "all", cwd=open_folder)
    yield client
    client.kill()


@pytest.fixture
def name() -> str:
    """A name that no other test of the worker uses."""
    return f"t{next(_numbers)}"


@pytest.fixture
def worker() -> Iterator[Callable[..., Worker]]:
    """Starts a process that runs a function of support/work.py; none outlives the test."""
    workers = list[Worker]()

    def start(name: str, *arguments: Any, **options: Any) -> Worker:
        workers.append(Worker(name, *arguments, **options))
        return workers[-1]

    yield start
    for each in workers:
        each.end()


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    """What the system does to processes that start with its `env`, and to their calls on files in `tmp_path/store`."""
    (tmp_path / "store").mkdir(mode=0o700)
    return Faults(tmp_path / "store", tmp_path / "faults")


@pytest.fixture
def path(faults: Faults, tmp_path: Path) -> Path:
    """The file of a store in that folder."""
    return tmp_path / "store" / "state.db"


@pytest.fixture
def serve(worker: Callable[..., Worker], path: Path, faults: Faults) -> Callable[..., Worker]:
    """Starts a process on `path` that makes the calls of the library that it is told. `more`: its session."""

    def start(*more: str) -> Worker:
        process = worker("serve", path, *more, env=faults.env)
        process.hear()
        return process

    return start


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a store, for hooks."""
    return repository(tmp_path / "repo")


@pytest.fixture
def one(root: Path) -> Session:
    """A session of Claude Code in `root`."""
    return Session(root, "s-1")


@pytest.fixture
def two(root: Path) -> Session:
    """Another session there."""
    return Session(root, "s-2")
