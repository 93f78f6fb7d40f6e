"""What a hook needs to know about leases and changed files in a store file, without the rest of the store.

Standard library only and quick to import: the hook's fast path uses it. It reads, and never creates a file.
"""

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from holdlog.adapters.operating_system import platform

BUSY_SECONDS: Final = 0.2

_CLAIM: Final = "claim:"
_FILE: Final = "file://"
_SELECT_META: Final = "SELECT name, value FROM meta WHERE name IN ('session_salt', 'boot_id')"
_SELECT_HELD: Final = (
    "SELECT 1 FROM leases WHERE resource = ? AND version = ? AND kind = 'held' AND agent = ? AND session = ?"
    " AND principal IS NULL AND deadline - length / 2 > ?"
)
_SELECT_HOLDS: Final = (
    "SELECT leases.resource, leases.agent, leases.principal, leases.session, leases.server, leases.heard, events.at"
    " FROM leases LEFT JOIN stored_events AS events ON events.rowid = leases.position"
    " WHERE leases.kind = 'held' AND leases.deadline > ?"
)
_SELECT_CHANGE: Final = (
    "SELECT state, principal, session, at FROM stored_events WHERE originator_id = ? AND topic = 'FileChanged'"
    " ORDER BY originator_version DESC LIMIT 1"
)
_SELECT_CHANGES: Final = (
    "SELECT originator_id, state, principal, session, at FROM stored_events"
    " WHERE rowid > (SELECT MAX(rowid) FROM stored_events) - ? AND topic = 'FileChanged' ORDER BY rowid DESC"
)
_SELECT_BELOW: Final = (
    "SELECT DISTINCT originator_id FROM stored_events WHERE originator_id > ? AND originator_id < ? LIMIT ?"
)
_SELECT_NEXT: Final = (
    "SELECT originator_id FROM stored_events WHERE originator_id > ? AND originator_id < ? ORDER BY originator_id"
    " LIMIT 1"
)
MAX_RECENT: Final = 3_000
"""The newest events, among which changes of files are looked for: no index has them, and 3,000 take 2 ms."""
MAX_BELOW: Final = 10_000
"""Resources below one folder."""
_SELECT_WAITING: Final = """SELECT held.agent, ticket.resource, ticket.version, ticket.agent, ticket.session
    FROM leases AS ticket CROSS JOIN leases AS held ON held.session = :session AND held.kind = 'held'
    AND held.principal IS NULL AND held.deadline > :now
    WHERE ticket.kind = 'waits' AND +ticket.deadline > :now AND (ticket.resource = held.resource
    OR held.resource LIKE '%/' AND instr(ticket.resource || '/', held.resource) = 1
    OR ticket.resource LIKE '%/' AND instr(held.resource || '/', ticket.resource) = 1)"""
"""As `overlap` in resource.py. Tickets first, and by their partial index: mostly, nobody waits."""
_SELECT_ANY: Final = "SELECT 1 FROM leases WHERE session = ? UNION ALL SELECT 1 FROM losses WHERE session = ? LIMIT 1"

_SELECT_RESOURCES: Final = "SELECT DISTINCT resource FROM leases WHERE kind = 'held' ORDER BY resource"


class HeldResource(NamedTuple):
    """A claim that is held. `server`: as in Lease. `since`: microseconds UTC. `idle`: seconds since the last call of
    its agent."""

    resource: str
    agent: str
    principal: str | None
    session: str | None
    server: str
    since: int
    idle: float


class ChangedResource(NamedTuple):
    """The last change of a file that hooks recorded. `at`: microseconds UTC. `sha256`: None if it was removed."""

    agent: str
    principal: str | None
    session: str | None
    at: int
    sha256: str | None


class WaitingTicket(NamedTuple):
    """A ticket of the queue. `holder`: the agent whose claim it waits for."""

    holder: str
    resource: str
    version: int
    agent: str
    session: str | None


class LeaseFile:
    """The leases and changed files of an open store file. `salt`: that of its sessions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = dict(connection.execute(_SELECT_META).fetchall())
        self.salt = str(found.get("session_salt", ""))
        self._is_this_boot = found.get("boot_id") == platform.boot_id()

    def holds(self, resource: str, version: int, agent: str, session: str) -> bool:
        """Whether the session holds this grant, with more than half of its lease left."""
        parameters = (resource, version, agent, session, platform.steady())
        return self._is_this_boot and self._connection.execute(_SELECT_HELD, parameters).fetchone() is not None

    def waiting(self, session: str) -> list[WaitingTicket]:
        """The tickets that wait for what the session holds."""
        if not self._is_this_boot:
            return []
        parameters = {"session": session, "now": platform.steady()}
        return list(map(WaitingTicket._make, self._connection.execute(_SELECT_WAITING, parameters)))

    def is_idle(self, session: str) -> bool:
        """Whether the session neither holds nor awaits anything, and has no unreported loss."""
        return self._connection.execute(_SELECT_ANY, (session, session)).fetchone() is None

    def resources(self) -> list[str]:
        """What is held."""
        return [str(name) for (name,) in self._connection.execute(_SELECT_RESOURCES)]

    def all_held(self) -> list[HeldResource]:
        """All that is held."""
        now = platform.steady()
        rows = self._connection.execute(_SELECT_HOLDS, (now,)).fetchall() if self._is_this_boot else []
        return [
            HeldResource(resource, agent, principal, session, server, at or 0, max(0, now - called_at) / 1_000_000)
            for resource, agent, principal, session, server, called_at, at in rows
        ]

    def last_change(self, resource: str) -> ChangedResource | None:
        """The last change of the file that a resource names."""
        row = self._connection.execute(_SELECT_CHANGE, (_stream_of(resource),)).fetchone()
        if row is None:
            return None
        return _changed(*row)

    def latest_changes(self) -> dict[str, ChangedResource]:
        """The last changes of files among the newest events, by resource, the newest first."""
        found = dict[str, ChangedResource]()
        for stream, *row in self._connection.execute(_SELECT_CHANGES, (MAX_RECENT,)):
            resource = unquote(stream.removeprefix(_CLAIM))
            if resource not in found:
                found[resource] = _changed(*row)
        return found

    def changed_below(self, folder: str) -> list[str]:
        """The resources below a folder, which ends with a slash, that were ever claimed or changed."""
        stream = _stream_of(folder)
        rows = self._connection.execute(_SELECT_BELOW, (stream, f"{stream[:-1]}0", MAX_BELOW)).fetchall()  # 0 follows /
        return [unquote(row[0].removeprefix(_CLAIM)) for row in rows]

    def workspaces(self) -> list[str]:
        """The names of the workspaces, other than the default one, in which something was ever claimed or changed."""
        found, start = list[str](), _stream_of(_FILE)
        after, end = start, f"{start[:-1]}0"
        while (row := self._connection.execute(_SELECT_NEXT, (after, end)).fetchone()) is not None:
            name = row[0].removeprefix(start).partition("/")[0]
            found.append(unquote(name))
            after = f"{start}{name}0"
        return found


def _changed(state: str, principal: str | None, session: str | None, at: int) -> ChangedResource:
    event = json.loads(state)
    return ChangedResource(event["agent"], principal, session, at, event.get("sha256"))


def _stream_of(resource: str) -> str:
    """As `claim_stream` in domain/names.py, which takes long to import."""
    return f"{_CLAIM}{quote(resource, safe='/')}"


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
