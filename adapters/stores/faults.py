"""What SQLite's errors mean to a caller."""

import sqlite3

from holdlog.adapters.stores.schema import MAJOR, MINORS_PER_MAJOR
from holdlog.domain.refusals import HoldlogError, SealedError, StoreError, UnavailableError


def refusal_of(error: sqlite3.Error, in_doubt: bool = False) -> HoldlogError:
    """The cause in SQLite's own words: a full disk is told as a full disk."""
    name = getattr(error, "sqlite_errorname", None)
    if code_of(error) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return SealedError(str(error))  # the only triggers are those of a seal
    if code_of(error) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"the store is damaged ({error}); restore it from a backup")
    return UnavailableError(f"the store could not do it: {error}{f' ({name})' if name else ''}", in_doubt=in_doubt)


def require_major(user_version: int) -> None:
    """Raises StoreError for a file whose schema has another major version."""
    major = user_version // MINORS_PER_MAJOR
    if major > MAJOR:
        raise StoreError(f"the store has schema {major}, this holdlog knows {MAJOR}; upgrade holdlog")


def is_busy(error: sqlite3.Error) -> bool:
    return code_of(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def code_of(error: sqlite3.Error) -> int:
    """SQLite's extended code; 0 where the error is Python's own."""
    return getattr(error, "sqlite_errorcode", 0)
