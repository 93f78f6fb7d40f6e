"""Stores of older schemas, as the builds before wrote them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import psycopg
from psycopg import sql

from holdlog.adapters.stores.event_log import codec, recording
from holdlog.adapters.stores.event_log.codec import FORMAT_COLUMNS, EncodedEvent
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.domain.envelope import Basis, digest
from holdlog.domain.message import Caller, Event

FIXTURES: Final = Path(__file__).parent / "fixtures"
SCHEMA_1: Final = FIXTURES / "schema1.sql"
SCHEMA_2: Final = FIXTURES / "schema2.sql"
TABLES_2: Final = FIXTURES / "schema2_postgres.sql"
SCHEMA_3: Final = FIXTURES / "schema3.sql"
TABLES_3: Final = FIXTURES / "schema3_postgres.sql"
NOW: Final = 1_763_640_060_000_000
STEADY: Final = 5_060_000_000
"""The clocks at the end of `SCHEMA_2` and `SCHEMA_3`: microseconds UTC, and of leases."""


def lay(path: Path, fixture: Path) -> Path:
    """Make a file of the fixture."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(fixture.read_text())
    path.chmod(0o600)
    return path


def lay_in_postgres(url: str, schema_of: Path = SCHEMA_2, tables: Path = TABLES_2, version: str = "2.2") -> None:
    """Make tables of an older schema with the rows of its fixture; leases go by the clock of the database from now
    on."""
    place = database_target(url)
    with closing(sqlite3.connect(":memory:")) as fixture, psycopg.connect(place.url) as connection:
        fixture.executescript(schema_of.read_text())
        schema = sql.Identifier(place.schema)
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
        connection.execute(tables.read_text())
        for (table,) in fixture.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            rows = fixture.execute(f'SELECT * FROM "{table}"')
            names = [column[0] if column[0] != "rowid" else "notification_id" for column in rows.description]
            insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            )
            connection.cursor().executemany(insert, rows.fetchall())
        connection.execute("SELECT setval('refusals_id_seq', (SELECT MAX(id) FROM refusals))")
        connection.execute("DELETE FROM meta WHERE name = 'boot_id'")
        connection.execute("INSERT INTO meta VALUES ('major', %s), ('minor', %s)", version.split("."))
        now = f"(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {STEADY}"
        connection.execute(f"UPDATE leases SET deadline = deadline + {now}, heard = heard + {now}")
        connection.execute(f"UPDATE leases SET present_until = present_until + {now} WHERE present_until > 0")


@contextmanager
def format_1() -> Iterator[None]:
    """Stores that are open in this process write events as release 0.1 did."""
    with patch.object(recording, "encode", _seal_1):
        yield


def _seal_1(
    event: Event, stream: str, version: int, previous: bytes, basis: Basis, at: int, clock: int, caller: Caller
) -> EncodedEvent:
    found = codec.encode(event, stream, version, previous, basis, at, at, caller)
    hashed = None if found.salt is None else codec.payload_hash(found.salt, found.payload or "")
    chained = digest(previous, stream, version, found.topic, at, caller, found.state.decode(), hashed)
    return found._replace(digest=chained, **dict.fromkeys(FORMAT_COLUMNS))
