"""One write transaction. The message that begins it also fetches what it will read; the message that commits it also
sends what it writes."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from psycopg import ClientCursor

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.event_log.recording import ChangeRecorder
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.leases import PostgresLeaseWrites
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.rows import SELECT_DUE, SELECT_NOW, Connection, PostgresReader
from holdlog.adapters.stores.postgres.schema import require_major
from holdlog.adapters.stores.postgres.threads import EXECUTE_THREADS, PREPARE_THREADS
from holdlog.adapters.stores.sqlite.schema import EVENTS_TABLE, select_from
from holdlog.domain.message import Caller
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Change, Prefetch, Refusal
from holdlog.domain.record import Record
from holdlog.domain.refusals import UnavailableError
from holdlog.domain.threads.thread import ResultAppended, Thread
from holdlog.projections.current import CURRENT
from holdlog.projections.projection import Put, Row, Table
from holdlog.projections.threads import THREADS

_PREPARE_PREFETCH: Final = f"""PREPARE prefetch (text[], text[], text[]) AS
    SELECT {SELECT_NOW}, pg_current_xact_id()::text,
    (SELECT value FROM meta WHERE name = 'major'), (SELECT value FROM meta WHERE name = '{SEAL}'),
    last.notification_id, last.at,
    ARRAY(SELECT DISTINCT agent FROM leases WHERE agent = ANY($1)), record.*
    FROM (VALUES (1)) AS one
    LEFT JOIN (SELECT notification_id, at FROM {EVENTS_TABLE} ORDER BY notification_id DESC LIMIT 1) AS last ON true
    LEFT JOIN ({select_from(CURRENT)} WHERE (namespace, key) IN (SELECT * FROM unnest($2, $3))) AS record ON true"""
"""What every batch reads: the state of the log, which of some agents have leases, and some records."""
_BEFORE_PREFETCH: Final = 3
"""Statements that precede the prefetch in the message that begins a transaction."""
_SELECT_DIGEST: Final = f"SELECT digest FROM {EVENTS_TABLE} WHERE originator_id = %s AND originator_version = %s"
_SELECT_REQUEST: Final = """SELECT fingerprint, outcome FROM requests
    WHERE principal = %s AND session = %s AND request_id = %s AND at >= %s"""
_INSERT_REQUEST: Final = """INSERT INTO requests (principal, session, request_id, at, fingerprint, outcome)
    VALUES (%s, %s, %s, %s, %s, %s)"""


class PostgresTransaction(PostgresReader):
    """The single write connection; `begin` starts a new transaction. `clock` and `steady` are for tests; without them,
    the database's clock. Raises psycopg.Error."""

    at = 0  # set by `begin`; not a property here

    def __init__(
        self,
        connection: Connection,
        recorder: PostgresEventRecorder,
        clock: Callable[[], int] | None,
        steady: Callable[[], int] | None,
    ) -> None:
        super().__init__(connection, now=0)
        connection.execute(_PREPARE_PREFETCH)
        self._knows_threads = False
        self._recorder = recorder
        self._clock = clock
        self._steady = steady
        self._leases = PostgresLeaseWrites(self)
        lock = recorder.lock.replace("%", "%%")
        self._begin = f"BEGIN; SET LOCAL lock_timeout = %s; {lock}; EXECUTE prefetch(%s, %s, %s)"
        self.last_digest = b""
        """Digest of the last event, once there is one."""
        self.steady = 0
        self.clock = 0
        """The database's clock, microseconds UTC; `at` is never before the newest event."""
        self.sealed: str | None = None
        self.number = ""
        """PostgreSQL's number of the transaction: with it and the last event, its fate can be determined later."""

    def begin(self, deadline: float, prefetch: Prefetch) -> int:
        """Acquire the log's lock, and read the clock and what the commands will read. Returns the database's clock.

        Raises psycopg.Error; UnavailableError if the lock is not free in time; StoreError for another schema.
        """
        left = round((deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise UnavailableError("timed out waiting for the database; try again")
        agents = arrays((str,), [(agent,) for agent in prefetch.agents])
        records = arrays((str, str), list(prefetch.records))
        begin, parameters = self._begin, [f"{left}ms", *agents, *records]
        if prefetch.threads:
            self._prepare_threads()
            begin = f"{begin}; {EXECUTE_THREADS}"
            parameters += [
                *arrays((str,), [(it,) for it in prefetch.threads]),
                *arrays((str, str), list(prefetch.results)),
            ]
        cursor = ClientCursor(self.connection)  # all in one message: a pipeline costs 100 µs more
        cursor.execute(begin, parameters)
        for _ in range(_BEFORE_PREFETCH):
            cursor.nextset()
        rows = cursor.fetchall()
        now, self.number, major, seal, position, last, busy = rows[0][:7]
        require_major(major)
        self.clock = self._clock() if self._clock else now
        self.at = max(self.clock, last or 0)
        self._changes = ChangeRecorder(self._read_digest, self.at, self.clock)
        self._know_threads(prefetch, cursor)
        found: list[Record] = self._states(CURRENT, [row[7:] for row in rows if row[7] is not None])
        self._records = {it: Record(*it) for it in prefetch.records}
        self._records |= {(it.namespace, it.key): it for it in found}
        self.sealed = line_of(seal)
        self._idle = set(prefetch.agents).difference(busy)
        self.steady = self._steady() if self._steady else now
        self._position = position or 0
        self.wrote = self.grew = False
        self.topics: list[str] = []
        self._events: list[EncodedEvent] = []
        self._puts: list[Put] = []
        self._later: list[tuple[str, Any]] = []
        return int(now)

    def _prepare_threads(self) -> None:
        if self._knows_threads:
            return
        try:
            for statement in PREPARE_THREADS:
                self.connection.execute(statement)
        except BaseException:
            self.connection.close()  # one may already exist, and none can be created twice
            raise
        self._knows_threads = True

    def _know_threads(self, prefetch: Prefetch, cursor: "ClientCursor[tuple[Any, ...]]") -> None:
        self._threads = {it: Thread(it) for it in prefetch.threads}
        self._results: dict[tuple[str, str], int] = {}
        if prefetch.threads:
            cursor.nextset()
            self._threads |= {it.thread: it for it in self._states(THREADS, cursor)}
            cursor.nextset()
            self._results = {(thread, name): version or 0 for thread, name, version in cursor}

    def commit(self) -> None:
        """Commit. Raises psycopg.Error."""
        with self.connection.pipeline():
            self._send()
            if self.grew:
                self._recorder._notify_channel(self.connection.cursor())
            self.connection.execute("COMMIT")

    # --- writes are sent together, before any read that could see them

    def _send(self) -> None:
        if self._events:
            self._recorder._insert_events(
                self.connection.cursor(),
                [],
                sealed=self._events,
                puts=self._puts,
                first=self._position - len(self._events) + 1,
            )
            self._events, self._puts = [], []
        for statement, parameters in self._later:
            self.connection.execute(statement, parameters, prepare=True)
        self._later = []

    def rows(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        if self._events or self._later:
            with self.connection.pipeline():
                self._send()
                return super().rows(statement, parameters)
        return super().rows(statement, parameters)

    def later(self, statement: str, parameters: Any) -> None:
        self._later.append((statement, parameters))

    def holds_nothing(self, agent: str) -> bool:
        return agent in self._idle

    def has_lease(self, agent: str) -> None:
        self._idle.discard(agent)

    # --- the domain's port

    @property
    def leases(self) -> PostgresLeaseWrites:
        return self._leases

    def position(self) -> int:
        return self._position

    def record(self, namespace: str, key: str) -> Record:
        address = (namespace, key)
        if address not in self._records:
            self._records[address] = super().record(namespace, key)
        return self._records[address]

    def thread(self, thread: str) -> Thread:
        if thread not in self._threads:
            self._threads[thread] = super().thread(thread)
        return self._threads[thread]

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        if wanted is None or any((thread, name) not in self._results for name in wanted):
            return super().checksums(thread, after, wanted)
        return [name for name in wanted if self._results[thread, name] > after]

    def due_records(self, limit: int) -> list[Record]:
        return self._states(CURRENT, self.rows(f"{SELECT_DUE} LIMIT %s", (self.at, limit)))

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        first = self._position + 1
        events, rows = self._changes.record(changes, caller)
        self._events += events
        self._puts += rows
        self.topics += [event.topic for event in events]
        self.last_digest = events[-1].digest
        for _, event, after, _ in changes:
            if isinstance(after, Record):
                self._records[after.namespace, after.key] = after
            elif isinstance(after, Thread):
                self._threads[after.thread] = after
                if isinstance(event, ResultAppended):
                    self._results[after.thread, event.checksum] = after.version
        self._position += len(changes)
        self.wrote = self.grew = True
        return range(first, self._position + 1)

    def _states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        return [self._changes.state_of(view, row) for row in rows]

    def _read_digest(self, stream: str, version: int) -> bytes:
        found: bytes = self.rows(_SELECT_DIGEST, (stream, version))[0][0]
        return found

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        oldest = self.at - REQUEST_SECONDS * 1_000_000
        found = self.rows(_SELECT_REQUEST, (caller.principal or "", session, caller.request_id, oldest))
        return (found[0][0], found[0][1]) if found else None

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        self.later("DELETE FROM requests WHERE at < %s", (self.at - REQUEST_SECONDS * 1_000_000,))
        parameters = (caller.principal or "", session, caller.request_id, self.at, fingerprint, outcome)
        self.later(_INSERT_REQUEST, parameters)
        self.wrote = True

    def put_meta(self, name: str, value: str) -> None:
        put = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        self.later(put, (name, value))
        self.wrote = True

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        insert = (
            "INSERT INTO refusals (at, code, what, by, session)"
            " SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[])"
        )
        self.later(insert, arrays((int, str, str, str, str), refusals))
        self.later("DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - %s", (REFUSALS_KEPT,))
        self.wrote = True
