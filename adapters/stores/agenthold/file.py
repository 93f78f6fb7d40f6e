"""A file of agenthold, read-only: its two tables, which must agree with each other."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.stores.sqlite.faults import code_of, is_busy
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.adapters.stores.sqlite.schema import APPLICATION_ID, tables_there, version_of
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.domain.times import microseconds

KNOWN: Final = "agenthold 0.3 to 0.10"
TABLES: Final = frozenset({"state_records", "state_history"})
_SQLITES_OWN: Final = frozenset({"sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})
_COLUMNS: Final = {
    "state_records": "namespace key value version updated_by updated_at",
    "state_history": "id namespace key value version updated_by updated_at event_type",
}
_EVENT_TYPE: Final = "event_type"
"""Column that early versions lack: their history has no deletions."""
_EVENTS: Final = ("write", "delete")
_LOCK_SECONDS: Final = 5.0

_CHANGES: Final = "SELECT id, namespace, key, value, version, updated_by, updated_at, {} FROM state_history ORDER BY id"
_NEWEST: Final = "SELECT MAX(id) FROM state_history GROUP BY namespace, key"
_DIFFERENT: Final = f"""SELECT COUNT(*) FROM state_records AS r LEFT JOIN state_history AS h
    ON h.namespace = r.namespace AND h.key = r.key AND h.id IN ({_NEWEST})
    WHERE h.id IS NULL OR {{}} != 'write' OR (h.value, h.version, h.updated_by, h.updated_at)
    IS NOT (r.value, r.version, r.updated_by, r.updated_at)"""
_WRITTEN: Final = f"SELECT COUNT(*) FROM state_history WHERE {{}} = 'write' AND id IN ({_NEWEST})"


class PeerChange(NamedTuple):
    """A row of the history. `value`: JSON text. `at`: microseconds UTC."""

    namespace: str
    key: str
    value: str
    version: int
    by: str
    at: int
    is_deletion: bool


class AgentholdFile:
    """A snapshot of the file: what its servers write meanwhile is not in it."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self._name = name
        self._connection = connection
        columns = {row[1] for row in connection.execute("PRAGMA table_info(state_history)")}
        self._event_type = _EVENT_TYPE if _EVENT_TYPE in columns else "'write'"

    def count(self) -> int:
        return self._number("SELECT COUNT(*) FROM state_history")

    def values(self) -> int:
        """The number of current values, claims and agents included."""
        return self._number("SELECT COUNT(*) FROM state_records")

    def changes(self) -> Iterator[PeerChange]:
        """The history, in the order in which it was written. Raises StoreError for a row that agenthold cannot have
        written."""
        with _refusals(self._name):
            for number, *row, at, kind in self._connection.execute(_CHANGES.format(self._event_type)):
                namespace, key, value, version, by = row
                if not all(isinstance(it, str) for it in (namespace, key, value, by, at)) or kind not in _EVENTS:
                    raise self._damaged(f"row {number} of its history is not of {KNOWN}")
                yield PeerChange(namespace, key, value, version, by, self._time(at, number), kind == "delete")

    def require_sound(self) -> None:
        """Raise StoreError unless the history ends with the current values."""
        with _refusals(self._name):
            found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged("SQLite finds damage in it")
        different = self._number(_DIFFERENT.format(self._event_type))
        if different or self._number(_WRITTEN.format(self._event_type)) != self.values():
            raise self._damaged("its history does not end with its current values")

    def _number(self, statement: str) -> int:
        with _refusals(self._name):
            return int(self._connection.execute(statement).fetchone()[0])

    def _time(self, text: str, number: int) -> int:
        try:
            time = datetime.fromisoformat(text)
            return microseconds(time if time.tzinfo else time.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            raise self._damaged(f"row {number} of its history has no valid time") from None

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self._name} cannot be imported: {what}; nothing was imported")


@contextmanager
def open_agenthold(path: Path, name: str) -> Iterator[AgentholdFile]:
    """Open a file of agenthold without changing it; its servers may run. `name`: its path for people. Raises
    StoreError, UnavailableError."""
    if not path.is_file():
        raise StoreError(f"there is no file {name}; check the path")
    with _refusals(name):
        connection = sqlite3.connect(uri_of(path, "ro"), uri=True, isolation_level=None, timeout=_LOCK_SECONDS)
    with closing(connection):
        with _refusals(name):
            connection.execute("BEGIN")
            _require_known(name, connection)
        yield AgentholdFile(name, connection)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if is_busy(error):
            raise UnavailableError(f"{name} is locked by another program; try again") from error
        if code_of(error) & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise StoreError(f"{name} cannot be opened ({error}); check that you may read it and its folder") from None
        raise StoreError(f"{name} is damaged or not a file of agenthold ({error}); nothing was imported") from None


def _require_known(name: str, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        raise StoreError(f"{name} is a holdlog store; to copy it: holdlog copy")
    tables = tables_there(connection)
    if not tables >= TABLES:
        raise StoreError(f"{name} is not a file of agenthold")
    columns = {table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] for table in sorted(TABLES)}
    known = {table: names.split() for table, names in _COLUMNS.items()}
    if _EVENT_TYPE not in columns["state_history"]:
        known["state_history"].remove(_EVENT_TYPE)
    if tables - TABLES - _SQLITES_OWN or columns != known or version_of(connection):
        raise StoreError(f"{name} was written by another version of agenthold; holdlog imports files of {KNOWN}")
