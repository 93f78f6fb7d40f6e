"""Check whether SQLite finds damage a second time: it also reports damage when a disk fails a single read."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

from holdlog.adapters.stores.sqlite.faults import is_damage
from holdlog.adapters.stores.sqlite.recorder import uri_of

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of the largest store that is read completely while a caller waits, which takes about a second."""
REMEMBERED: Final = 5.0
"""Seconds for which confirmed damage is reported without another check."""

Verdict = Literal["damaged", "sound", "unknown"]


class DamageCheck:
    """Reads a store through a separate connection. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._damaged_until = 0.0

    def verdict(self) -> Verdict:
        """Check the file. `unknown`: the store is too large to read while a caller waits, or cannot be read now."""
        with self._lock:
            if time.monotonic() < self._damaged_until:
                return "damaged"
            verdict = self._check()
            if verdict == "damaged":
                self._damaged_until = time.monotonic() + REMEMBERED
            return verdict

    def _check(self) -> Verdict:
        try:
            if self._path.stat().st_size > LARGEST:
                return "unknown"
            # Read-only: closing such a connection writes nothing, so it needs no write lock.
            with closing(sqlite3.connect(uri_of(self._path, "ro"), uri=True, isolation_level=None)) as connection:
                found = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        except sqlite3.Error as error:
            return "damaged" if is_damage(error) else "unknown"
        except OSError:
            return "unknown"
        return "sound" if found == ["ok"] else "damaged"
