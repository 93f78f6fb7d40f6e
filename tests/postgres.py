"""A store in PostgreSQL that many examples share, one after the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.store import PostgresStore

_TABLES = "SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema = %s"


def empty(url: str) -> None:
    """Make the store as new. A schema for each example would take thirty times as long."""
    schema = url.rpartition("schema=")[2]
    with psycopg.connect(url.rpartition("&")[0], autocommit=True) as connection:
        tables = [name for (name,) in connection.execute(_TABLES, (schema,)).fetchall()]
        kept = {"meta": " WHERE name NOT IN ('store_id', 'major')"}
        connection.execute("; ".join(f'DELETE FROM "{schema}".{name}{kept.get(name, "")}' for name in tables))


@contextmanager
def emptied(url: str, clock: Callable[[], int], steady: Callable[[], int]) -> Iterator[PostgresStore]:
    """The store, opened, with nothing in it, by the test's clocks."""
    store = open_postgres(url, clock, steady)
    try:
        empty(url)
        yield store
    finally:
        store.close()
