"""What PostgreSQL's errors mean to a caller. Only the first line is told: details may hold stored values."""

import psycopg
from psycopg import errors

from holdlog.adapters.stores.sealing import SEALED_STATE
from holdlog.domain.refusals import HoldlogError, SealedError, StoreError, UnavailableError


def refusal_of(error: psycopg.Error, in_doubt: bool = False) -> HoldlogError:
    if error.sqlstate == SEALED_STATE:
        return SealedError(first_line(error))
    match error:
        case errors.LockNotAvailable():
            return UnavailableError("another server holds the log's lock; try again")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return StoreError(f"the database refused the login: {first_line(error)}")
        case errors.InvalidCatalogName():
            return StoreError(f"{first_line(error)}; create it, or name another")
        case errors.InsufficientPrivilege():
            return StoreError(f"the database refused: {first_line(error)}")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StoreError(f"the store's tables are gone: {first_line(error)}")
        case _:
            return UnavailableError(f"the database could not do it: {first_line(error)}", in_doubt=in_doubt)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is of no use any more."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, errors.LockNotAvailable | errors.QueryCanceled | errors.DiskFull | errors.OutOfMemory
    )


def first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
