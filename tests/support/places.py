"""Places where a store can be, of each kind."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.ports import Store

Place = Path | str
Somewhere = Callable[[str], Place]

_numbers = itertools.count()


@contextmanager
def places(folder: Path, server: str) -> Iterator[Somewhere]:
    """Names a place of a kind, `file` or `schema`, where nothing stands yet."""
    schemas: list[str] = []

    def somewhere(kind: str) -> Place:
        number = next(_numbers)
        if kind == "file":
            return folder / f"state{number}.db"
        schemas.append(f"copy{os.getpid()}_{number}")
        return f"{server}&schema={schemas[-1]}"

    yield somewhere
    with psycopg.connect(server, autocommit=True) as connection:
        for schema in schemas:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def engine(place: Place) -> "AbstractContextManager[Store]":
    """The store there, closed with the block."""
    return closing(open_sqlite(place) if isinstance(place, Path) else open_postgres(place))


def stands(place: Place) -> bool:
    """Whether there is anything."""
    if isinstance(place, Path):
        return os.path.lexists(place)
    server, _, schema = place.partition("&schema=")
    with psycopg.connect(server) as connection:
        row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return row is not None


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]
