"""Map SQLite's errors to refusals."""

import sqlite3
from typing import TYPE_CHECKING, Final

from holdlog.adapters.stores.sqlite.schema import MAJOR, MINORS_PER_MAJOR
from holdlog.domain.refusals import HoldlogError, SealedError, StoreError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.stores.sqlite.damage_check import DamageCheck


DOCTOR_FIRST: Final = (
    "run `holdlog doctor`, and keep the file and its -wal before you restore a backup, which lacks all newer events"
)
"""How to handle damage: replacing the file with a backup discards what was written since."""


class DamagedError(StoreError):
    """SQLite reports that the file is damaged, or not a database."""


def refusal_of(error: sqlite3.Error, in_doubt: bool = False, damage_check: "DamageCheck | None" = None) -> HoldlogError:
    """The refusal for an error, in SQLite's own words, such as a full disk.

    SQLite may report damage after a single failed read; only `damage_check` can confirm it.
    """
    name = getattr(error, "sqlite_errorname", None)
    if code_of(error) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return SealedError(str(error))  # the only triggers are those of a seal
    if is_damage(error) and damage_check is not None:
        return _damage(error, in_doubt, damage_check)
    return UnavailableError(f"the store reported an error: {error}{f' ({name})' if name else ''}", in_doubt=in_doubt)


def _damage(error: sqlite3.Error, in_doubt: bool, damage_check: "DamageCheck") -> HoldlogError:
    match damage_check.verdict():
        case "damaged":
            return DamagedError(f"the store is damaged ({error}, found twice); {DOCTOR_FIRST}")
        case "sound":
            line = f"the disk failed one read ({error}), and a second check found no damage; try again"
        case "unknown":
            line = f"the store could not be read ({error}); try again, and if it fails again, run `holdlog doctor`"
    return UnavailableError(line, in_doubt=in_doubt)


def is_damage(error: sqlite3.Error) -> bool:
    return code_of(error) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def require_major(user_version: int) -> None:
    """Raise StoreError for a file whose schema has another major version."""
    major = user_version // MINORS_PER_MAJOR
    if major > MAJOR:
        raise StoreError(f"the store has schema {major}, but this holdlog supports {MAJOR}; upgrade holdlog")


def is_busy(error: sqlite3.Error) -> bool:
    return code_of(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def code_of(error: sqlite3.Error) -> int:
    """SQLite's extended code; 0 for Python's own errors."""
    return getattr(error, "sqlite_errorcode", 0)
