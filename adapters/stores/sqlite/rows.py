"""One connection to the store: reads its rows as records, claims and events, and writes them in a transaction."""

import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from eventsourcing.sqlite import SQLiteCursor

from holdlog.adapters.stores.event_log.codec import decode
from holdlog.adapters.stores.event_log.recording import ChangeRecorder
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.adapters.stores.sqlite.faults import require_major
from holdlog.adapters.stores.sqlite.leases import SqliteLeases, SqliteLeaseWrites
from holdlog.adapters.stores.sqlite.recorder import SqliteEventRecorder
from holdlog.adapters.stores.sqlite.schema import EVENTS_TABLE, SELECT_EVENTS, beyond, select_from
from holdlog.adapters.stores.sqlite.threads import SqliteThreads
from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.resource import covering
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Change, HistoryEntry, Refusal
from holdlog.domain.record import Record
from holdlog.domain.token import Token
from holdlog.projections import fold
from holdlog.projections.agents import AGENTS
from holdlog.projections.claims import CLAIMS
from holdlog.projections.current import CURRENT
from holdlog.projections.projection import Row, Table
from holdlog.projections.tokens import TOKENS

MAX_NAMES: Final = 500
"""Maximum in one statement."""

_SELECT_RECORD: Final = f"{select_from(CURRENT)} WHERE namespace = ? AND key = ?"
_SELECT_RECORDS: Final = (
    f"{select_from(CURRENT)} WHERE namespace = ? AND key >= ? AND key < ? AND key > ?"
    " AND (live = 1 AND IFNULL(expires_at > ?, 1)) = ? ORDER BY key LIMIT ?"
)
_SELECT_NAMESPACES: Final = (
    "SELECT namespace, COUNT(*) FROM current WHERE namespace > ? AND live = 1 AND IFNULL(expires_at > ?, 1)"
    " GROUP BY namespace ORDER BY 1 LIMIT ?"
)
_LIVE_AND_ENDING: Final = "live = 1 AND expires_at IS NOT NULL"  # the index's exact condition; else it is not used
_SELECT_DUE: Final = (
    f"{select_from(CURRENT)} WHERE {_LIVE_AND_ENDING} AND expires_at <= ? ORDER BY expires_at, namespace, key LIMIT ?"
)
_SELECT_NEXT_END: Final = f"SELECT MIN(expires_at) FROM current WHERE {_LIVE_AND_ENDING}"
_SELECT_CLAIM: Final = f"{select_from(CLAIMS)} WHERE resource = ?"
_ACTIVE: Final = "(held > 0 OR waiting > 0)"
_SELECT_CLAIMS: Final = f"{select_from(CLAIMS)} WHERE resource > ? AND {_ACTIVE} ORDER BY resource LIMIT ?"
_SELECT_BELOW: Final = f"{select_from(CLAIMS)} WHERE resource >= ? AND resource < ? AND {_ACTIVE}"
_SELECT_QUEUED: Final = f"{select_from(CLAIMS)} WHERE waiting > 0"
_SELECT_AGENT: Final = f"{select_from(AGENTS)} WHERE agent = ?"
_SELECT_TOKEN: Final = f"{select_from(TOKENS)} WHERE name = ?"
_SELECT_TOKENS: Final = f"{select_from(TOKENS)} WHERE name > ? ORDER BY name LIMIT ?"
_SELECT_HISTORY: Final = (
    f"{SELECT_EVENTS} WHERE originator_id = ? AND originator_version < ? ORDER BY originator_version DESC LIMIT ?"
)
_SELECT_LOG: Final = f"{SELECT_EVENTS} WHERE rowid > ? ORDER BY rowid LIMIT ?"
_SELECT_ENTRIES: Final = (
    f"SELECT rowid, originator_id, topic, at FROM {EVENTS_TABLE} WHERE rowid > ? ORDER BY rowid LIMIT ?"
)
_SELECT_LAST: Final = f"SELECT at FROM {EVENTS_TABLE} ORDER BY rowid DESC LIMIT 1"
_SELECT_STATE: Final = f"SELECT ({_SELECT_LAST}), (SELECT value FROM meta WHERE name = '{SEAL}')"
_SELECT_DIGEST: Final = f"SELECT digest FROM {EVENTS_TABLE} WHERE originator_id = ? AND originator_version = ?"
_SELECT_REQUEST: Final = (
    "SELECT fingerprint, outcome FROM requests WHERE principal = ? AND session = ? AND request_id = ? AND at >= ?"
)
_INSERT_REQUEST: Final = (
    "INSERT INTO requests (principal, session, request_id, at, fingerprint, outcome) VALUES (?, ?, ?, ?, ?, ?)"
)


class SqliteReader(SqliteThreads):
    """Reads through one connection. `now`: the clock, read before anything else."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self.connection = connection
        self._now = now
        self._at: int | None = None

    @property
    def at(self) -> int:
        # Read on demand: most records never expire.
        if self._at is None:
            self._at = max(self._now, self.last_time())
        return self._at

    def last_time(self) -> int:
        """Time of the newest event; 0 if there is none."""
        row = self.connection.execute(_SELECT_LAST).fetchone()
        return row[0] if row else 0

    @property
    def leases(self) -> SqliteLeases:
        return SqliteLeases(self.connection)

    def position(self) -> int:
        row = self.connection.execute(f"SELECT MAX(rowid) FROM {EVENTS_TABLE}").fetchone()
        return row[0] or 0

    def record(self, namespace: str, key: str) -> Record:
        row = self.connection.execute(_SELECT_RECORD, (namespace, key)).fetchone()
        return Record(namespace, key) if row is None else self._states(CURRENT, [row])[0]

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        parameters = (namespace, prefix, _beyond(prefix), after or "", self.at, int(not deleted), limit)
        return self._states(CURRENT, self.connection.execute(_SELECT_RECORDS, parameters))

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        return self.connection.execute(_SELECT_NAMESPACES, (after or "", self.at, limit)).fetchall()

    def next_value_end(self) -> int | None:
        end: int | None = self.connection.execute(_SELECT_NEXT_END).fetchone()[0]
        return end

    def claim(self, resource: str) -> Claim:
        row = self.connection.execute(_SELECT_CLAIM, (resource,)).fetchone()
        return Claim(resource) if row is None else self._states(CLAIMS, [row])[0]

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        return self._states(CLAIMS, self.connection.execute(_SELECT_CLAIMS, (after or "", limit)))

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        names = list(dict.fromkeys(name for resource in resources for name in covering(resource)))
        found = [
            row for start in range(0, len(names), MAX_NAMES) for row in self._named(names[start : start + MAX_NAMES])
        ]
        for resource in resources:
            if resource.endswith("/"):
                found += self.connection.execute(_SELECT_BELOW, (resource, _beyond(resource))).fetchall()
        return self._states(CLAIMS, found)

    def queued(self) -> list[Claim]:
        return self._states(CLAIMS, self.connection.execute(_SELECT_QUEUED))

    def agents(self, names: Sequence[str]) -> list[Profile]:
        rows = (self.connection.execute(_SELECT_AGENT, (name,)).fetchone() for name in names)
        return self._states(AGENTS, (row for row in rows if row is not None))

    def token(self, name: str) -> Token:
        row = self.connection.execute(_SELECT_TOKEN, (name,)).fetchone()
        return Token(name) if row is None else self._states(TOKENS, [row])[0]

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        return self._states(TOKENS, self.connection.execute(_SELECT_TOKENS, (after or "", limit)))

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        """The states of rows of a view."""
        return list(map(fold.decoder(view), rows))

    def _named(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        return self.connection.execute(_select_named(len(names)), names).fetchall()

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        below = sys.maxsize if before is None else before
        return [decode(row) for row in self.connection.execute(_SELECT_HISTORY, (stream, below, limit))]

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        return [decode(row) for row in self.rows(after, limit)]

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        return [HistoryEntry(*row) for row in self.connection.execute(_SELECT_ENTRIES, (after, limit))]

    def meta(self, name: str) -> str | None:
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def rows(self, after: int, limit: int) -> sqlite3.Cursor:
        """Rows of the log in the form that `codec.decode` takes."""
        return self.connection.execute(_SELECT_LOG, (after, limit))


class SqliteTransaction(SqliteReader):
    """The single write connection; `begin` starts a new transaction."""

    at = 0  # set by `begin`; not a property here

    def __init__(
        self,
        connection: sqlite3.Connection,
        recorder: SqliteEventRecorder,
        clock: Callable[[], int],
        steady: Callable[[], int],
    ) -> None:
        super().__init__(connection, now=0)
        self._leases = SqliteLeaseWrites(connection)
        self._recorder = recorder
        self._clock = clock
        self._steady = steady
        self._cursor = SQLiteCursor(connection.cursor())
        connection.execute("PRAGMA busy_timeout = 0")  # the store waits instead, fairly and up to its own deadline
        self.steady = 0
        self.clock = 0
        """The writer's clock, microseconds UTC; `at` is never before the newest event."""
        self.sealed: str | None = None
        self._last: int | None = None  # time of the newest event, if known
        self.grew = False
        self.topics: list[str] = []
        self._wrote = False

    def forget(self) -> None:
        """Forget cached facts, because another process may have written since."""
        self._last = None

    def begin(self) -> None:
        """Begin a transaction. Raises sqlite3.Error; StoreError if a newer holdlog changed the file's major version
        meanwhile."""
        self.connection.execute("BEGIN IMMEDIATE")
        if self._last is None:
            require_major(self.connection.execute("PRAGMA user_version").fetchone()[0])
            last, seal = self.connection.execute(_SELECT_STATE).fetchone()
            self._last = last or 0
            self.sealed = line_of(seal)
        self.clock = self._clock()
        self.at = max(self.clock, self._last)
        self.steady = self._steady()
        self._changes = ChangeRecorder(self._read_digest, self.at, self.clock)
        self.grew = False
        self.topics = []
        self.wrote = False

    @property
    def leases(self) -> SqliteLeaseWrites:
        return self._leases

    @property
    def wrote(self) -> bool:
        return self._wrote or self._leases.wrote

    @wrote.setter
    def wrote(self, wrote: bool) -> None:
        self._wrote = self._leases.wrote = wrote

    def committed(self) -> None:
        """Remember the time of the newest event, which is certain only after the commit."""
        if self.grew:
            self._last = self.at

    def due_records(self, limit: int) -> list[Record]:
        return self._states(CURRENT, self.connection.execute(_SELECT_DUE, (self.at, limit)))

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        events, rows = self._changes.record(changes, caller)
        positions = self._recorder._insert_events(self._cursor, [], sealed=events, puts=rows)
        self.wrote = self.grew = True
        self.topics += [event.topic for event in events]
        self._last = None
        return positions

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        return [self._changes.state_of(view, row) for row in rows]

    def _read_digest(self, stream: str, version: int) -> bytes:
        found: bytes = self.connection.execute(_SELECT_DIGEST, (stream, version)).fetchone()[0]
        return found

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        oldest = self.at - REQUEST_SECONDS * 1_000_000
        parameters = (caller.principal or "", session, caller.request_id, oldest)
        found: tuple[bytes, str] | None = self.connection.execute(_SELECT_REQUEST, parameters).fetchone()
        return found

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        self.connection.execute("DELETE FROM requests WHERE at < ?", (self.at - REQUEST_SECONDS * 1_000_000,))
        parameters = (caller.principal or "", session, caller.request_id, self.at, fingerprint, outcome)
        self.connection.execute(_INSERT_REQUEST, parameters)
        self.wrote = True

    def put_meta(self, name: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        self.wrote = True

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        insert = "INSERT INTO refusals (at, code, what, by, session) VALUES (?, ?, ?, ?, ?)"
        self.connection.executemany(insert, refusals)
        self.connection.execute("DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - ?", (REFUSALS_KEPT,))
        self.wrote = True


@cache
def _select_named(count: int) -> str:
    return f"{select_from(CLAIMS)} WHERE resource IN ({', '.join('?' * count)})"


def _beyond(prefix: str) -> str | bytes:
    """The first value after all texts that start with the prefix; SQLite sorts any BLOB after all texts."""
    return beyond(prefix) or b""
