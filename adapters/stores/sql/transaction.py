"""A write transaction: the part of the port that both databases share."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from holdlog.adapters.stores.event_log.codec import EncodedEvent, text_hash
from holdlog.adapters.stores.event_log.recording import ChangeRecorder
from holdlog.adapters.stores.sql.leases import SqlLeaseWrites
from holdlog.adapters.stores.sql.reader import SELECT_DUE, SqlReader
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.adapters.stores.sql.redaction import forget_texts, redact_view
from holdlog.adapters.stores.sql.tables import IS_ACTIVE, REFUSALS, copy_at_position
from holdlog.adapters.stores.sql.text import NONE, PendingStatements, bound
from holdlog.domain.claims.claim import Claim, Ticket
from holdlog.domain.merkle import SUBTREE, subtree_root
from holdlog.domain.message import Caller
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Change, Refusal
from holdlog.domain.record import Record
from holdlog.domain.refusals import HoldlogError, StoreError
from holdlog.domain.store_log import Part, SearchText
from holdlog.projections import fold
from holdlog.projections.claims import (
    CLAIMS,
    PAST_CLAIMS,
    PAST_TICKETS,
    SNAPSHOT_EVERY,
    SNAPSHOT_TABLES,
    SNAPSHOTS,
    TICKETS,
    row_of_past_claim,
    row_of_past_ticket,
)
from holdlog.projections.current import CURRENT
from holdlog.projections.fold import Folded
from holdlog.projections.projection import Row, RowChange, Table
from holdlog.projections.tree import TREE

_TOPIC: Final = attrgetter("topic")
_REQUEST: Final = "principal = :principal AND session = :session AND request_id = :request_id"
_SELECT_REQUEST: Final = f"SELECT fingerprint, outcome FROM requests WHERE {_REQUEST} AND at >= :oldest"
_INSERT_REQUEST: Final = """INSERT INTO requests (principal, session, request_id, at, fingerprint, outcome)
    VALUES (:principal, :session, :request_id, :at, :fingerprint, :outcome)"""
_DROP_REQUESTS: Final = "DELETE FROM requests WHERE at < :oldest"
_PUT_META: Final = """INSERT INTO meta (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_SELECT_VERSIONS_THEN: Final = f"SELECT position, version FROM {PAST_CLAIMS.name} WHERE resource = :resource"
_DROP_REFUSALS: Final = "DELETE FROM refusals WHERE id <= (SELECT MAX(id) FROM refusals) - :kept"

_TAKE_SNAPSHOT: Final = (
    f"INSERT INTO {SNAPSHOTS.name} (position) VALUES (CAST(:position AS BIGINT)) ON CONFLICT DO NOTHING",
    copy_at_position(CLAIMS, PAST_CLAIMS, IS_ACTIVE),
    copy_at_position(TICKETS, PAST_TICKETS, "TRUE"),
)


class WriteStore(Protocol):
    """What a transaction needs of its store."""

    def commit(self, transaction: Any) -> None:
        """Make the changes durable. Raises UnavailableError, with `in_doubt` if the result is unknown."""

    def fail(self, error: BaseException) -> None:
        """Drop the connection that writes if an error made it unusable."""

    def end(self) -> None:
        """Roll back what was not committed, and admit the next writer."""

    def refusal_of(self, error: BaseException) -> HoldlogError | None:
        """The refusal for an error of the database; None for other errors."""


class SqlTransaction(SqlReader, PendingStatements):
    """The connection that writes. `started` prepares it for each transaction. The end of its `with` block commits; an
    exception rolls back.

    `clock`: the writer's clock, microseconds UTC; `at` is never before the newest event. `wrote`: whether there is
    anything to commit; `grew`: whether events were appended.
    """

    at = 0  # set by `started`; not a property here
    leases = cast("SqlLeaseWrites", None)  # set once; not a property here

    def __init__(self, recorder: LogRecorder, store: WriteStore) -> None:
        super().__init__(recorder, now=0)
        self._store = store
        self.leases = SqlLeaseWrites(self)
        self.steady = self.clock = 0
        self.sealed: str | None = None
        self.wrote = self.grew = False
        self.topics: list[str] = []
        self._snapshot_due = False
        self._subtree_due = False
        self._first = 0
        self._digests: dict[str, bytes] = {}
        self._changes = ChangeRecorder(self._digests, self._read_digest)

    def started(self, clock: int, steady: int, last: int) -> None:
        """Set the clocks, and forget the previous transaction. `last`: the time of the newest event."""
        self.clock, self.steady, self.at = clock, steady, max(clock, last)
        self.wrote = self.grew = False
        self.topics = []
        self._snapshot_due = self._subtree_due = False
        self._digests.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._snapshot_due:
                    self._take_snapshot()
                if self._subtree_due:
                    self._add_subtrees()
                self._store.commit(self)
            else:
                self._store.fail(error)
        finally:
            self._store.end()
        if error is not None and (refusal := self._store.refusal_of(error)) is not None:
            raise refusal from error

    def insert(self, events: Sequence[EncodedEvent], rows: Sequence[RowChange]) -> Sequence[int]:
        """Insert events and change rows of views; return the positions of the events."""
        raise NotImplementedError

    # --- the port

    def state(self, view: Table, row: Row) -> Any:
        state = fold.state_of(view, row)
        self._digests[state.stream] = row[fold.DIGEST_COLUMN[view.name]]
        return state

    def states(self, view: Table, rows: Iterable[Row]) -> list[Any]:
        return [self.state(view, row) for row in rows]

    def records_of(self, addresses: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
        return {address: self.record(*address) for address in addresses}

    def due_records(self, limit: int) -> list[Record]:
        return self.states(CURRENT, self.rows(SELECT_DUE, {"at": self.at, "limit": bound(limit)}))

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        events, rows = self._changes.record(changes, caller, self.at, self.clock)
        positions = self.insert(events, rows)
        if positions[-1] // SNAPSHOT_EVERY > (positions[0] - 1) // SNAPSHOT_EVERY:
            self._snapshot_due = True
        if not self.grew:
            self._first = positions[0]
        if positions[-1] // SUBTREE > (positions[0] - 1) // SUBTREE:
            self._subtree_due = True
        self.wrote = self.grew = True
        self.topics.extend(map(_TOPIC, events))
        return positions

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        found = self.rows(_SELECT_REQUEST, self._request(caller, session) | {"oldest": self._oldest()})
        return (found[0][0], found[0][1]) if found else None

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        self.later(_DROP_REQUESTS, {"oldest": self._oldest()})
        facts = {"at": self.at, "fingerprint": fingerprint, "outcome": outcome}
        self.later(_INSERT_REQUEST, self._request(caller, session) | facts)

    def redact(self, stream: str, versions: Sequence[int], part: Part) -> None:
        for event in self.recorder.select_versions(stream, versions, self).values():
            self.recorder.remove_text(part, event, self._hash_of(event, part), self)
            if part == "payload" and (change := redact_view(stream, event.originator_version)) is not None:
                self.later(change.statement, change.parameters)
        if isinstance(claim := fold.initial(stream), Claim):
            self._fold_again(claim)

    def forget_texts(self, texts: Sequence[SearchText]) -> None:
        forget_texts(self, texts)

    def put_meta(self, name: str, value: str) -> None:
        self.later(_PUT_META, {"name": name, "value": value})

    def put_snapshot(self, position: int, claims: Sequence[Claim], tickets: Sequence[Ticket]) -> None:
        self.put(SNAPSHOTS, [(position,)])
        self.put(PAST_CLAIMS, [row_of_past_claim(position, claim) for claim in claims])
        self.put(PAST_TICKETS, [row_of_past_ticket(position, ticket) for ticket in tickets])

    def drop_snapshots(self) -> None:
        for table in SNAPSHOT_TABLES:
            self.later(f'DELETE FROM "{table.name}"', NONE)

    def put_subtree_roots(self, roots: Mapping[int, bytes]) -> None:
        self.put(TREE, list(roots.items()))

    def drop_subtree_roots(self) -> None:
        self.later(f'DELETE FROM "{TREE.name}"', NONE)

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        self.put(REFUSALS, list(refusals))
        self.later(_DROP_REFUSALS, {"kept": REFUSALS_KEPT})

    def _hash_of(self, event: EncodedEvent, part: Part) -> bytes:
        salt, text = (event.salt, event.payload) if part == "payload" else (event.reason_salt, event.reason)
        try:
            hashed = text_hash(salt, text, None)
        except (ValueError, TypeError, AttributeError):
            hashed = None
        if hashed is None:
            raise StoreError(f"event {event.id:,} was changed, so nothing was redacted; run: holdlog verify")
        return hashed

    def _fold_again(self, claim: Claim) -> None:
        """Write the rows of a claim as its events are now. `claim`: in its initial state."""
        folded, states = Folded(claim), dict[int, Claim]()
        for envelope, event, _ in self.following(claim.stream, 0, -1):
            folded = fold.apply(folded.state, envelope, event)
            states[envelope.version] = cast("Claim", folded.state)
        self.put(CLAIMS, [fold.put(*folded).row])
        found = self.rows(_SELECT_VERSIONS_THEN, {"resource": claim.resource})
        self.put(PAST_CLAIMS, [row_of_past_claim(position, states[version]) for position, version in found])

    def _take_snapshot(self) -> None:
        """Copy the board as it is after the last event of this transaction."""
        for statement in _TAKE_SNAPSHOT:
            self.later(statement, {"position": self.position()})

    def _add_subtrees(self) -> None:
        """Keep the roots of the subtrees of the Merkle tree that this transaction completed."""
        after = self._first - 1 - (self._first - 1) % SUBTREE
        ends = range(after + SUBTREE, self.position() + 1, SUBTREE)
        self.put_subtree_roots({end: subtree_root(self.digests(end - SUBTREE, end)) for end in ends})

    def _request(self, caller: Caller, session: str) -> dict[str, object]:
        return {"principal": caller.principal or "", "session": session, "request_id": caller.request_id}

    def _oldest(self) -> int:
        return self.at - REQUEST_SECONDS * 1_000_000

    def _read_digest(self, stream: str, version: int) -> bytes:
        return self.recorder.select_events(stream, gt=version - 1, limit=1, unit=self)[0].digest
