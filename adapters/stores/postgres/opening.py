"""Open a store in PostgreSQL, and create it if it is missing."""

import time
import uuid
import zlib

import psycopg
from psycopg import sql

from holdlog.adapters.stores.postgres.catalog import MADE, indexes_there, tables_there
from holdlog.adapters.stores.postgres.connection import SELECT_NOW, Connection
from holdlog.adapters.stores.postgres.faults import refusal_of
from holdlog.adapters.stores.postgres.migrating import OLDER, migrate
from holdlog.adapters.stores.postgres.schema import ADDED, CREATE, MAJOR, MINOR, PUT_META, is_behind, require_major
from holdlog.adapters.stores.postgres.store import Clock, PostgresStore
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.adapters.stores.sql.tables import SESSION_SALT, new_session_salt
from holdlog.domain.refusals import StoreError

LOCK_TIMEOUT = 10.0
"""Seconds to wait for a database to start."""


def open_postgres(url: str, clock: Clock | None = None, steady: Clock | None = None) -> PostgresStore:
    """Open the store, or create it in its schema. Raises StoreError with a one-line message with what to do;
    UnavailableError if the database does not answer."""
    target = database_target(url)
    store = PostgresStore(target, clock, steady)
    connection = store.connect(time.monotonic() + LOCK_TIMEOUT)
    try:
        require_utf8(connection)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the server's default is
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_of(target.schema),))
            if not _is_there(connection, target.schema):
                create(connection, target.schema, str(uuid.uuid4()))
            else:
                found = dict(
                    connection.execute("SELECT name, value FROM meta WHERE name IN ('major', 'minor')").fetchall()
                )
                if found.get("major") in OLDER:
                    migrate(connection, store.recorder, found["major"])
                elif found.get("major") == str(MAJOR) and is_behind(found.get("minor")):
                    _add_what_is_new(connection)
        row = connection.execute(f"SELECT {SELECT_NOW}, (SELECT value FROM meta WHERE name = 'major')").fetchone()
        assert row is not None
        store.observe_clock(row[0])
        require_major(row[1])
    except psycopg.Error as error:
        store.close()
        raise refusal_of(error) from error
    except BaseException:
        store.close()
        raise
    finally:
        connection.close()
    return store


def _add_what_is_new(connection: Connection) -> None:
    """Create the tables and indexes that later minor versions added. Servers of earlier minor versions still work with
    the store."""
    missing = ADDED.keys() - tables_there(connection) - indexes_there(connection)
    for statement in (it for name, it in MADE.items() if name in missing):
        connection.execute(statement)
    connection.execute(PUT_META, ("minor", str(MINOR)))


def store_exists(url: str) -> bool:
    """Whether there is a store. Raises as `open_postgres`."""
    target = database_target(url)
    connection = PostgresStore(target).connect(time.monotonic() + LOCK_TIMEOUT)
    try:
        require_utf8(connection)
        return _is_there(connection, target.schema)
    except psycopg.Error as error:
        raise refusal_of(error) from error
    finally:
        connection.close()


def require_utf8(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"the database has the encoding {encoding}; create one with UTF8")


def _is_there(connection: Connection, schema: str) -> bool:
    rows = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,))
    tables = {name for (name,) in rows.fetchall()}
    if not tables:
        return False
    if {"meta", "stored_events", "leases"} <= tables:
        return True
    raise StoreError(f"the schema {schema} has tables that are not holdlog's; use another ?schema=")


def lock_of(schema: str) -> int:
    """Number of the lock that a process holds while it creates tables: concurrent DDL is not safe."""
    return zlib.crc32(f"holdlog {schema}".encode())


def create(connection: Connection, schema: str, store_id: str) -> None:
    """Create all tables of a store, empty."""
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    for statement in CREATE:
        connection.execute(statement)
    meta = "INSERT INTO meta VALUES ('store_id', %s), ('major', %s), ('minor', %s), (%s, %s)"
    connection.execute(meta, (store_id, str(MAJOR), str(MINOR), SESSION_SALT, new_session_salt()))
