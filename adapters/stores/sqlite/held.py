"""What a hook needs to know about leases in a store file, without the rest of the store.

Standard library only and quick to import: the hook's fast path uses it. It reads, and never creates a file.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system import platform

BUSY_SECONDS: Final = 0.2

_SELECT_META: Final = "SELECT name, value FROM meta WHERE name IN ('session_salt', 'boot_id')"
_SELECT_HELD: Final = (
    "SELECT 1 FROM leases WHERE resource = ? AND version = ? AND kind = 'held' AND agent = ? AND session = ?"
    " AND principal IS NULL AND deadline - length / 2 > ?"
)
_SELECT_ANY: Final = "SELECT 1 FROM leases WHERE session = ? UNION ALL SELECT 1 FROM losses WHERE session = ? LIMIT 1"

_SELECT_RESOURCES: Final = "SELECT DISTINCT resource FROM leases WHERE kind = 'held' ORDER BY resource"


class LeaseFile:
    """The leases of an open store file. `salt`: that of its sessions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = dict(connection.execute(_SELECT_META).fetchall())
        self.salt = str(found.get("session_salt", ""))
        self._is_this_boot = found.get("boot_id") == platform.boot_id()

    def holds(self, resource: str, version: int, agent: str, session: str) -> bool:
        """Whether the session holds this grant, with more than half of its lease left."""
        parameters = (resource, version, agent, session, platform.steady())
        return self._is_this_boot and self._connection.execute(_SELECT_HELD, parameters).fetchone() is not None

    def is_idle(self, session: str) -> bool:
        """Whether the session neither holds nor awaits anything, and has no unreported loss."""
        return self._connection.execute(_SELECT_ANY, (session, session)).fetchone() is None

    def resources(self) -> list[str]:
        """What is held."""
        return [str(name) for (name,) in self._connection.execute(_SELECT_RESOURCES)]


@contextmanager
def lease_file(path: Path) -> Iterator[LeaseFile]:
    """Open the leases of the store file. Raises sqlite3.Error."""
    _require_files(path)
    uri = f"file:{''.join(f'%{byte:02X}' for byte in os.fsencode(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as connection:
        yield LeaseFile(connection)


def _require_files(path: Path) -> None:
    """Require that SQLite opens only regular files: a pipe would block it, and no signal could end that. Raises
    sqlite3.OperationalError."""
    for suffix in ("", "-wal", "-journal"):
        with suppress(OSError):
            if not stat.S_ISREG(os.stat(f"{path}{suffix}").st_mode):
                raise sqlite3.OperationalError(f"{path}{suffix} is not a regular file")
