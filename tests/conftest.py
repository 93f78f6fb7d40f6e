"""What all tests share: an environment of their own, the database server, and stores of each kind."""

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import DeadlockDetected

import holdlog
from tests.support.library import Blocking
from tests.support.servers import Nats, Postgres, create_user

_numbers = itertools.count()

GIT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "ann"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "ann@example.org"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""A developer's own git may have no identity, sign commits, or run hooks."""


def pytest_configure(config: pytest.Config) -> None:
    """Also restores the handler of Ctrl-C, which a shell ignores for what it runs in the background."""
    os.environ.update(GIT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        create_user()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs PostgreSQL is left to `make rest`: a worker takes seconds to start a server."""
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if {"postgres", "postgres_server"} & {*getattr(item, "fixturenames", ()), *map(str, parameters)}:
            item.add_marker(pytest.mark.rest)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for the worker."""
    with tempfile.TemporaryDirectory(prefix="holdlog-doors-") as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder, "postgres"))
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """One server for the worker; streams and subjects need names of the test's own."""
    server = Nats(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a store that does not exist yet."""
    schema = f"t{os.getpid()}_{next(_numbers)}"
    yield f"{postgres_server.url}?schema={schema}"
    for _ in range(3):  # a query of a handle that the test has left may lock its tables in another order
        with suppress(DeadlockDetected), psycopg.connect(postgres_server.url, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
            break


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """The file of a store that does not exist yet."""
    return tmp_path / "state.db"


in_postgres = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))
"""One worker pays for the server."""


@pytest.fixture(params=["file", "memory", "async", in_postgres])
def kind(request: pytest.FixtureRequest) -> str:
    """What the library door runs on: the synchronous library on three stores, the asynchronous one on a file."""
    return str(request.param)


both_stores = pytest.mark.parametrize("kind", ["file", in_postgres], indirect=True)
"""For tests with several handles of one store."""


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens a handle of the test's store; it is closed with the test."""
    places = {"memory": lambda: ":memory:", "postgres": lambda: request.getfixturevalue("postgres")}
    place = places.get(kind, lambda: request.getfixturevalue("db"))()
    with ExitStack() as handles:

        def open_one(**options: Any) -> Any:
            store = Blocking(place, **options) if kind == "async" else holdlog.StateStore(place, **options)
            handles.callback(store.stop if kind == "async" else store.close)
            return store

        yield open_one


@pytest.fixture
def store(open_store: Callable[..., Any]) -> Any:
    return open_store()
