"""Reads through one connection, and one write transaction. The message that begins a transaction also fetches what it
will read; the message that commits it also sends what it writes."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from psycopg import ClientCursor

from holdlog.adapters.stores.event_log.codec import EncodedEvent
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.adapters.stores.postgres.arrays import arrays
from holdlog.adapters.stores.postgres.connection import SELECT_NOW, Connection
from holdlog.adapters.stores.postgres.recorder import PostgresEventRecorder
from holdlog.adapters.stores.postgres.schema import DROP, PUT, key_of, require_major
from holdlog.adapters.stores.sql.leases import SqlLeaseWrites
from holdlog.adapters.stores.sql.reader import BorrowingReader, ReadStore
from holdlog.adapters.stores.sql.recorder import SELECT_LAST
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.adapters.stores.sql.text import NONE, Parameters, for_postgres
from holdlog.adapters.stores.sql.threads import SqlThreads
from holdlog.adapters.stores.sql.transaction import SqlTransaction, WriteStore
from holdlog.domain.claims.lease import Lease, Who
from holdlog.domain.message import Caller
from holdlog.domain.ports import Change, Prefetch
from holdlog.domain.record import Record
from holdlog.domain.refusals import UnavailableError
from holdlog.domain.threads.thread import ResultAppended, Thread
from holdlog.projections.current import CURRENT
from holdlog.projections.projection import Put, Row, RowChange, Table
from holdlog.projections.threads import ITEMS, THREADS

FETCHED: Final = 200
"""Rows of a stream that are fetched at once."""
_numbers = count()
_PREPARE_PREFETCH: Final = f"""PREPARE prefetch (text[], text[], text[]) AS
    SELECT {SELECT_NOW},
    (SELECT value FROM meta WHERE name = 'major'), (SELECT value FROM meta WHERE name = '{SEAL}'),
    last.notification_id, last.at,
    ARRAY(SELECT DISTINCT agent FROM leases WHERE agent = ANY($1)), record.*
    FROM (VALUES (1)) AS one
    LEFT JOIN ({SELECT_LAST}) AS last ON true
    LEFT JOIN ({select_from(CURRENT)} WHERE (namespace, key) IN (SELECT * FROM unnest($2, $3))) AS record ON true"""
"""What every batch reads: the state of the log, which of some agents have leases, and some records."""
_BEFORE_PREFETCH: Final = 3
"""Statements that precede the prefetch in the message that begins a transaction."""
# Bound the rows as one range of the index of names: with separate conditions on its two columns, the planner might
# choose the other key.
_NEWEST: Final = (
    f"SELECT version FROM {ITEMS.name} WHERE thread = wanted.thread AND kind = 'result' AND name <> ''"
    f" AND (name, version) >= (wanted.name, 0) AND (name, version) <= (wanted.name, {sys.maxsize})"
    " ORDER BY name DESC, version DESC LIMIT 1"
)
_PREPARE_THREADS: Final = (
    f"PREPARE prefetch_threads (text[]) AS {select_from(THREADS)} WHERE thread = ANY($1)",
    f"""PREPARE prefetch_results (text[], text[]) AS
    SELECT thread, name, ({_NEWEST}) FROM unnest($1, $2) AS wanted (thread, name)""",
)
"""What batches with thread commands read first: the threads' states, and the newest version of each result."""
_EXECUTE_THREADS: Final = "EXECUTE prefetch_threads(%s); EXECUTE prefetch_results(%s, %s)"
_SELECT_RESULTS: Final = (
    f"SELECT name, ({_NEWEST})"
    " FROM (SELECT :thread::text AS thread, name FROM unnest(:names::text[]) AS name) AS wanted"
)


class PostgresStatements(SqlThreads):
    """Runs the shared statements on a connection."""

    connection: Connection

    def rows(self, statement: str, parameters: Parameters) -> list[Row]:
        return self.connection.execute(for_postgres(statement), parameters, prepare=True).fetchall()

    def rows_in(self, statement: str, names: Sequence[object], parameters: Parameters = NONE) -> list[Row]:
        return self.rows(statement, {**parameters, "names": list(names)}) if names else []

    def stream(self, statement: str, parameters: Parameters) -> Iterator[Row]:
        with self.connection.cursor(f"stream_{next(_numbers)}") as cursor:
            cursor.itersize = FETCHED
            yield from cursor.execute(for_postgres(statement), parameters)

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        if wanted is None:
            return super().checksums(thread, after, wanted)
        found = self.rows_in(_SELECT_RESULTS, wanted, {"thread": thread})
        return [name for name, version in found if version is not None and version > after]


class PostgresReader(PostgresStatements, BorrowingReader):
    """Reads through one connection. `now`: microseconds UTC by the database's clock, read before anything else."""

    def __init__(
        self, connection: Connection, recorder: PostgresEventRecorder, now: int, store: ReadStore | None = None
    ) -> None:
        super().__init__(recorder, now)
        self.connection = connection
        self._store = store  # last: `__del__` uses the connection


class _LeaseWrites(SqlLeaseWrites):
    """Skips calls of agents that are known to have no lease."""

    def __init__(self, transaction: "PostgresTransaction") -> None:
        super().__init__(transaction)
        self.idle: set[str] = set()

    def put(self, leases: Iterable[Lease]) -> None:
        written = list(leases)
        self.idle.difference_update(lease.agent for lease in written)
        super().put(written)

    def record_call(self, who: Who, server: str, now: int) -> None:
        if who.agent not in self.idle:
            super().record_call(who, server, now)


class PostgresTransaction(PostgresStatements, SqlTransaction):
    """The single write connection; `begin` starts a new transaction. `clock` and `steady` are for tests; without them,
    the database's clock. Raises psycopg.Error."""

    def __init__(
        self,
        connection: Connection,
        recorder: PostgresEventRecorder,
        store: WriteStore,
        clock: Callable[[], int] | None,
        steady: Callable[[], int] | None,
    ) -> None:
        super().__init__(recorder, store)
        self.connection = connection
        connection.execute(_PREPARE_PREFETCH)
        self._knows_threads = False
        self._notify = recorder.notify
        self._clock = clock
        self._steady = steady
        self.leases = self._lease_writes = _LeaseWrites(self)
        lock = recorder.lock.replace("%", "%%")
        self._begin = f"BEGIN; SET LOCAL lock_timeout = %s; {lock}; EXECUTE prefetch(%s, %s, %s)"
        self.last_digest = b""
        """Digest of the last event, once there is one: it proves a commit if `is_unique`."""
        self.is_unique = False
        """Whether no other transaction can have that digest: it covers a salt, or a time that no other event has."""

    def begin(self, deadline: float, prefetch: Prefetch) -> int:
        """Acquire the log's lock, and read the clock and what the commands will read. Returns the database's clock.

        Raises psycopg.Error; UnavailableError if the lock is not free in time; StoreError for another schema.
        """
        rows, cursor = self._fetched(deadline, prefetch)
        now, major, seal, position, last, busy = rows[0][:6]
        require_major(major)
        self.sealed = line_of(seal)
        clock = self._clock() if self._clock else now
        self.started(clock, self._steady() if self._steady else now, last or 0)
        self._know_threads(prefetch, cursor)
        found: list[Record] = self.states(CURRENT, [row[6:] for row in rows if row[6] is not None])
        self._records = {it: Record(*it) for it in prefetch.records}
        self._records |= {(it.namespace, it.key): it for it in found}
        self._lease_writes.idle = set(prefetch.agents).difference(busy)
        self._position = position or 0
        self._events: list[EncodedEvent] = []
        self._changed: list[RowChange] = []
        self._later: list[tuple[str, Any]] = []
        return int(now)

    def _fetched(self, deadline: float, prefetch: Prefetch) -> tuple[list[Row], "ClientCursor[Row]"]:
        left = round((deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise UnavailableError("timed out waiting for the database; try again")
        agents = arrays((str,), [(agent,) for agent in prefetch.agents])
        records = arrays((str, str), list(prefetch.records))
        begin, parameters = self._begin, [f"{left}ms", *agents, *records]
        if prefetch.threads:
            self._prepare_threads()
            begin = f"{begin}; {_EXECUTE_THREADS}"
            parameters += [
                *arrays((str,), [(it,) for it in prefetch.threads]),
                *arrays((str, str), list(prefetch.results)),
            ]
        cursor = ClientCursor(self.connection)  # all in one message: a pipeline costs 100 µs more
        cursor.execute(begin, parameters)
        for _ in range(_BEFORE_PREFETCH):
            cursor.nextset()
        return cursor.fetchall(), cursor

    def _prepare_threads(self) -> None:
        if self._knows_threads:
            return
        try:
            for statement in _PREPARE_THREADS:
                self.connection.execute(statement)
        except BaseException:
            self.connection.close()  # one may already exist, and none can be created twice
            raise
        self._knows_threads = True

    def _know_threads(self, prefetch: Prefetch, cursor: "ClientCursor[Row]") -> None:
        self._threads = {it: Thread(it) for it in prefetch.threads}
        self._results: dict[tuple[str, str], int] = {}
        if prefetch.threads:
            cursor.nextset()
            self._threads |= {it.thread: it for it in self.states(THREADS, cursor)}
            cursor.nextset()
            self._results = {(thread, name): version or 0 for thread, name, version in cursor}

    def commit(self) -> None:
        """Commit. Raises psycopg.Error."""
        with self.connection.pipeline():
            self._send()
            if self.grew:
                self.connection.execute(self._notify)
            self.connection.execute("COMMIT")

    # --- writes are sent together, before any read that could see them

    def _send(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.recorder.insert_events(events, unit=self)
            found: dict[str, tuple[Table, dict[Row, Row | None]]] = {}
            for change in self._changed:  # one statement writes a row once
                _, of_view = found.setdefault(change.table.name, (change.table, {}))
                of_view[change.key] = change.row if isinstance(change, Put) else None
            for view, of_view in found.values():
                if dropped := [key for key, row in of_view.items() if row is None]:
                    kinds = list(key_of(view).values())
                    self.connection.execute(DROP[view.name], arrays(kinds, dropped), prepare=True)
                if rows := [row for row in of_view.values() if row is not None]:
                    self.connection.execute(*PUT[view.name].of(rows), prepare=True)
            self._changed = []
        for statement, parameters in self._later:
            self.connection.execute(statement, parameters, prepare=True)
        self._later = []

    def rows(self, statement: str, parameters: Parameters) -> list[Row]:
        if self._events or self._later:
            with self.connection.pipeline():
                self._send()
                return super().rows(statement, parameters)
        return super().rows(statement, parameters)

    def later(self, statement: str, parameters: Parameters) -> None:
        self._later.append((for_postgres(statement), parameters))
        self.wrote = True

    def changes(self, statement: str, parameters: Parameters) -> bool:
        changed = bool(self.rows(f"{statement} RETURNING 1", parameters))
        self.wrote = self.wrote or changed
        return changed

    def put(self, table: Table, rows: list[Row]) -> None:
        by_key = {row[: table.key]: row for row in rows} if table.key else dict(enumerate(rows))
        if by_key:  # one statement writes a row once
            self._later.append(PUT[table.name].of(list(by_key.values())))
            self.wrote = True

    def insert(self, events: Sequence[EncodedEvent], rows: Sequence[RowChange]) -> Sequence[int]:
        self._events += events
        self._changed += rows
        last = events[-1]
        self.last_digest = last.digest
        self.is_unique = last.salt is not None or last.reason_salt is not None or last.at == self.clock
        first, self._position = self._position + 1, self._position + len(events)
        return range(first, self._position + 1)

    # --- the port, with what was fetched

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

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        for _, event, after, _ in changes:
            if isinstance(after, Record):
                self._records[after.namespace, after.key] = after
            elif isinstance(after, Thread):
                self._threads[after.thread] = after
                if isinstance(event, ResultAppended):
                    self._results[after.thread, event.checksum] = after.version
        return super().append(changes, caller)
