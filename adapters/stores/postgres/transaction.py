"""One write transaction: what it will read is fetched with its begin, what it writes goes with its commit."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdlog.adapters.stores.mapper import Sealed, seal
from holdlog.adapters.stores.postgres.leases import PostgresLeaseWrites
from holdlog.adapters.stores.postgres.recorder import EventRecorder
from holdlog.adapters.stores.postgres.rows import SELECT_DUE, SELECT_NOW, SELECT_RECORDS, Connection, PostgresReader
from holdlog.adapters.stores.postgres.schema import MAJOR, columns
from holdlog.adapters.stores.schema import EVENTS_TABLE
from holdlog.domain.message import Caller
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Change, Footprint, Refusal
from holdlog.domain.record import Record
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.current import record_of
from holdlog.projections.fold import State

_SELECT_STATE: Final = f"""SELECT {SELECT_NOW}, pg_current_xact_id()::text,
    (SELECT value FROM meta WHERE name = 'major'), last.notification_id, last.at
    FROM (VALUES (1)) AS one LEFT JOIN
    (SELECT notification_id, at FROM {EVENTS_TABLE} ORDER BY notification_id DESC LIMIT 1) AS last ON true"""
_SELECT_REQUESTS: Final = """SELECT principal, request_id, fingerprint, outcome FROM requests
    WHERE at >= %s AND (principal, request_id) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""


class PostgresTransaction(PostgresReader):
    """The one write connection; `begin` makes it a new transaction. `clock` and `steady`: for tests; the database's
    clock without them."""

    at = 0  # set by `begin`, and no property here

    def __init__(
        self,
        connection: Connection,
        recorder: EventRecorder,
        clock: Callable[[], int] | None,
        steady: Callable[[], int] | None,
    ) -> None:
        super().__init__(connection, now=0)
        self._recorder = recorder
        self._clock = clock
        self._steady = steady
        self._leases = PostgresLeaseWrites(self)
        self.steady = 0
        self.number = ""
        """PostgreSQL's own for the transaction, by which its fate can be asked for later."""

    def begin(self, deadline: float, ahead: Footprint) -> int:
        """Take the log's lock, and read the clock and what the commands will read. The database's clock.

        Raises psycopg.Error; UnavailableError when the lock is not free in time; StoreError for another schema."""
        left = round((deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise UnavailableError("the database had no time for this; try again")
        execute = self.connection.execute
        with self.connection.pipeline():
            execute("BEGIN")
            execute("SELECT set_config('lock_timeout', %s, true)", (f"{left}ms",), prepare=True)
            self._recorder._lock_table(self.connection.cursor())  # type: ignore[arg-type]
            state = execute(_SELECT_STATE, prepare=True)
            records = execute(SELECT_RECORDS, columns(ahead.records) or [[], []], prepare=True)
            agents = execute(
                "SELECT DISTINCT agent FROM leases WHERE agent = ANY(%s)", (list(ahead.agents),), prepare=True
            )
            row = state.fetchone()
            assert row is not None
            now, self.number, major, position, last = row
            if major != str(MAJOR):
                raise StoreError(f"the store has schema {major}, this holdlog knows {MAJOR}; upgrade holdlog")
            self._records = {it: Record(*it) for it in ahead.records}
            self._records |= {(it.namespace, it.key): it for it in map(record_of, records.fetchall())}
            busy = {agent for (agent,) in agents.fetchall()}
        self._idle = set(ahead.agents) - busy
        self.at = max(self._clock() if self._clock else now, last or 0)
        self.steady = self._steady() if self._steady else now
        self._position = position or 0
        self.wrote = self.grew = False
        self._sealed: list[Sealed] = []
        self._states: dict[str, State] = {}
        self._later: list[tuple[str, Any]] = []
        return int(now)

    def commit(self) -> None:
        """Raises psycopg.Error."""
        with self.connection.pipeline():
            self._send()
            if self.grew:
                self._recorder._notify_channel(self.connection.cursor())  # type: ignore[arg-type]
            self.connection.execute("COMMIT")

    # --- what is written goes together, before anything that could read it

    def _send(self) -> None:
        if self._sealed:
            self._recorder._insert_events(
                self.connection.cursor(),
                [it.stored for it in self._sealed],
                sealed=self._sealed,
                states=list(self._states.values()),
                first=self._position - len(self._sealed) + 1,
            )
            self._sealed, self._states = [], {}
        for statement, parameters in self._later:
            self.connection.execute(statement, parameters, prepare=True)
        self._later = []

    def rows(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        if self._sealed or self._later:
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

    # --- as the domain has it

    @property
    def leases(self) -> PostgresLeaseWrites:
        return self._leases

    def position(self) -> int:
        return self._position

    def record(self, namespace: str, key: str) -> Record:
        place = (namespace, key)
        if place not in self._records:
            self._records[place] = super().record(namespace, key)
        return self._records[place]

    def due_records(self, limit: int) -> list[Record]:
        return [record_of(row) for row in self.rows(f"{SELECT_DUE} LIMIT %s", (self.at, limit))]

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        first = self._position + 1
        for change in changes:
            stream = change.before.stream
            before = self._states.get(stream, change.before)
            event = seal(change, before, self.at, caller)
            self._states[stream] = after = fold.evolve(before, change.event, self.at, event.digest)
            self._sealed.append(event)
            if isinstance(after, Record):
                self._records[after.namespace, after.key] = after
        self._position += len(changes)
        self.wrote = self.grew = True
        return range(first, self._position + 1)

    def repeated(self, caller: Caller) -> tuple[bytes, str] | None:
        oldest = self.at - REQUEST_SECONDS * 1_000_000
        found = self.rows(_SELECT_REQUESTS, (oldest, [caller.principal or ""], [caller.request_id]))
        return (found[0][2], found[0][3]) if found else None

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str) -> None:
        self.later("DELETE FROM requests WHERE at < %s", (self.at - REQUEST_SECONDS * 1_000_000,))
        parameters = (caller.principal or "", caller.request_id, self.at, fingerprint, outcome)
        self.later("INSERT INTO requests VALUES (%s, %s, %s, %s, %s)", parameters)
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
        self.later(insert, columns(refusals))
        self.later("DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - %s", (REFUSALS_KEPT,))
        self.wrote = True
