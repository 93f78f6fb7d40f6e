"""Migrate a store of an older major schema to the current one, in one transaction that excludes other writers."""

from collections.abc import Iterator
from typing import Final

import psycopg

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.stores.event_log.codec import COLUMNS, FORMAT_COLUMNS
from holdlog.adapters.stores.postgres.catalog import MADE, TABLES, columns_there, indexes_there, tables_there
from holdlog.adapters.stores.postgres.connection import SELECT_NOW, Connection
from holdlog.adapters.stores.postgres.faults import first_line, refusal_of
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import MAJOR, MINOR, PUT_META, TYPES
from holdlog.adapters.stores.postgres.shadow_tables import fold_within, take_over_within
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE, SESSION_SALT, new_session_salt
from holdlog.adapters.stores.sqlite.migrating import BEFORE_UPGRADE
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError
from holdlog.projections.fold import VIEWS

OLDER: Final = ("1", "2", "3")
"""Major schema versions that can be migrated."""
_BEFORE_SESSIONS: Final = ("1", "2")
LOCK_SECONDS: Final = 10.0
"""Seconds that the migration waits for writers, and then for readers."""


def migrate(connection: Connection, recorder: PostgresEventRecorder, old: str) -> None:
    """Migrate in the connection's current transaction.

    Events do not change: the migration adds missing columns to the log, and missing columns and rows to the views. The
    store then refuses processes of the older version. From a major before 3, the sessions of all leases count as ended;
    deadlines do not change. Raises StoreError if the migration is impossible, UnavailableError if a retry may succeed,
    both with a one-line message; the store is then unchanged.
    """
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS * 1000)}ms'")
        connection.execute(recorder.lock)
        if old == "1":  # its writers lock this table
            connection.execute(f"LOCK TABLE {EVENTS_TABLE} IN EXCLUSIVE MODE")
        for name in TABLES - tables_there(connection):
            connection.execute(MADE[name])
        fold_within(connection, recorder)  # first, because the rest also blocks readers
        adds_sessions = old in _BEFORE_SESSIONS
        for statement in (*(_ADD_SESSIONS if adds_sessions else ()), *_ADD_TICKETS, *_add_columns_of_views(connection)):
            connection.execute(statement)
        for name in MADE.keys() - TABLES - indexes_there(connection):
            connection.execute(MADE[name])
        for view in VIEWS:
            take_over_within(connection, view)
        for row in (("major", str(MAJOR)), ("minor", str(MINOR))):
            connection.execute(PUT_META, row)
        if adds_sessions:
            salt = new_session_salt()
            connection.execute("INSERT INTO meta VALUES (%s, %s)", (SESSION_SALT, salt))
            _hash_sessions(connection, salt)
    except psycopg.Error as error:
        raise _refused(old, refusal_of(error), first_line(error)) from error
    except StoreError as error:
        raise _refused(old, error, str(error)) from None


def _add_columns_of_views(connection: Connection) -> Iterator[str]:
    """Yield the statements that add missing columns."""
    for view in VIEWS:
        there = columns_there(connection, view.name)
        for column, kind in view.columns.items():
            if column not in there:
                yield f'ALTER TABLE "{view.name}" ADD COLUMN "{column}" {TYPES[kind]}'


def _hash_sessions(connection: Connection, salt: str) -> None:
    """Hash the sessions, so that a host that resumes the same session finds its claims."""
    identity = Identity(salt)
    connection.execute("ALTER TABLE leases DISABLE TRIGGER USER")  # a seal's triggers skip renewals
    for name in ("leases", "losses"):
        found = connection.execute(f"SELECT DISTINCT session FROM {name} WHERE session <> %s", (BEFORE_UPGRADE,))
        for (session,) in found.fetchall():
            hashed = identity.session("process", session)
            connection.execute(f"UPDATE {name} SET session = %s WHERE session = %s", (hashed, session))
    connection.execute("ALTER TABLE leases ENABLE TRIGGER USER")


def _refused(old: str, refusal: HoldlogError, reason: str) -> HoldlogError:
    message = f"the store has schema {old} and cannot be migrated to {MAJOR} ({reason}); it is unchanged"
    return UnavailableError(message) if isinstance(refusal, UnavailableError) else StoreError(message)


_ADD_TICKETS: Final = ("ALTER TABLE claims DROP COLUMN IF EXISTS line", "DROP INDEX IF EXISTS leases_waiting")
_ADD_SESSIONS: Final = (
    f"ALTER TABLE {EVENTS_TABLE} " + ", ".join(f"ADD COLUMN {name} {TYPES[COLUMNS[name]]}" for name in FORMAT_COLUMNS),
    f"""ALTER TABLE requests ADD COLUMN session {TYPES[str]} NOT NULL DEFAULT '', DROP CONSTRAINT requests_pkey,
    ADD PRIMARY KEY (principal, session, request_id)""",
    f"""ALTER TABLE leases ADD COLUMN receipt {TYPES[str]}, ADD COLUMN seen bigint NOT NULL DEFAULT 0,
    ADD COLUMN ended_at bigint NOT NULL DEFAULT 0""",
    f"ALTER TABLE losses ADD COLUMN receipt {TYPES[str]}",
    "DROP INDEX IF EXISTS leases_principal",  # created again, now also over sessions
    "ALTER TABLE leases DISABLE TRIGGER USER",  # a seal's triggers skip renewals
    f"""UPDATE leases SET server = '', present_until = LEAST(present_until, {SELECT_NOW}), seen = heard,
    ended_at = {SELECT_NOW}, session = COALESCE(session, '{BEFORE_UPGRADE}')""",
    "ALTER TABLE leases ENABLE TRIGGER USER",
    f"UPDATE losses SET session = '{BEFORE_UPGRADE}' WHERE session IS NULL",
)
