"""Map PostgreSQL's errors to refusals. Only the first line is reported: details may contain stored values."""

import re
from typing import Final

import psycopg
from psycopg import errors

from holdlog.adapters.stores.event_log.sealing import SEALED_STATE
from holdlog.domain.refusals import (
    ConnectionLostError,
    HoldlogError,
    InvalidError,
    SealedError,
    StoreError,
    UnavailableError,
)

_CONNECTING: Final = ("connection failed: ", "connection is bad: ", "failed to resolve host", "connection timeout")
_LOGIN: Final = re.compile(
    'authentication failed|no password supplied|no pg_hba.conf entry|role ".*" does not exist|not permitted to log in'
)
_DATABASE: Final = re.compile('database ".*" does not exist')
_OPTIONS: Final = re.compile("^invalid .* value|SSL was required|does not support SSL|certificate|unrecognized .*param")


def refusal_of(error: psycopg.Error, in_doubt: bool = False) -> HoldlogError:
    if error.sqlstate == SEALED_STATE:
        return SealedError(first_line(error))
    match error:
        case errors.LockNotAvailable():
            return UnavailableError("another session holds a lock on the store; try again")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return StoreError(f"the database refused the login: {first_line(error)}")
        case psycopg.OperationalError(sqlstate=None) if first_line(error).startswith(_CONNECTING):
            return _connection_refusal(first_line(error))
        case errors.InvalidCatalogName():
            return StoreError(f"{first_line(error)}; create it, or use another database")
        case errors.InsufficientPrivilege():
            return StoreError(
                f"the database refused: {first_line(error)}; grant the right to the role, or use another role"
            )
        case errors.ReservedName():
            return StoreError(f"the database refused: {first_line(error)}; use another ?schema=")
        case errors.ReadOnlySqlTransaction():
            return UnavailableError(f"the database is read-only; use its primary: {first_line(error)}")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StoreError(f"the store's tables are missing: {first_line(error)}; run `holdlog doctor`")
        case errors.ProgramLimitExceeded() if error.diag.constraint_name:
            names = "namespace and key, or thread_id and key"
            return InvalidError(
                f"{names}: together are too long for an index of PostgreSQL (2,704 bytes); use shorter names"
            )
        case _:
            kind = ConnectionLostError if is_lost(error) and not in_doubt else UnavailableError
            return kind(f"the database reported an error: {first_line(error)}", in_doubt=in_doubt)


def _connection_refusal(text: str) -> HoldlogError:
    """The refusal for a failed connection attempt, for which libpq has no code. An unrecognized failure may be
    temporary, so it is retried."""
    for start in _CONNECTING[:2]:
        text = text.removeprefix(start)
    text = text.rpartition("FATAL:  ")[2]
    if _LOGIN.search(text):
        return StoreError(f"the database refused the login: {text}")
    if _DATABASE.search(text):
        return StoreError(f"{text}; create it, or use another database")
    if _OPTIONS.search(text):
        return StoreError(f"the URL has a wrong option: {text}")
    return UnavailableError(f"the database cannot be reached: {text}")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is unusable."""
    if isinstance(error, _STALE_STATEMENT):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, _STATEMENT_ERRORS
    )


def first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


_STALE_STATEMENT = (errors.FeatureNotSupported, errors.InvalidSqlStatementName)
"""The connection's prepared statement no longer exists, or the types of its table changed. A new connection prepares
it again."""
_STATEMENT_ERRORS = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DiskFull,
    errors.OutOfMemory,
    errors.ProgramLimitExceeded,
)
"""Operational errors of one statement, after which the connection is still usable."""
