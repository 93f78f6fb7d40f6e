"""The ports: what adapters must provide, one sentence per method."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim, Ticket
from holdlog.domain.claims.lease import HeldCounts, Lease, Loss, Who
from holdlog.domain.envelope import Basis, Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.record import Record
from holdlog.domain.store_log import EventTexts, Part, SearchText, StoreLog
from holdlog.domain.threads.thread import Datum, ItemKind, Thread
from holdlog.domain.token import Token

REQUEST_SECONDS: Final = 24 * 60 * 60
"""How long outcomes are remembered under their request_id."""
REFUSALS_KEPT: Final = 10_000


State = Record | Claim | Profile | Token | Thread | StoreLog


class Change(NamedTuple):
    """An event decided for a stream in the state `before`, and the state `after` it. `basis`: what a write relied on;
    None: not a write."""

    before: State
    event: Event
    after: State
    basis: Basis | None = None


class HistoryEntry(NamedTuple):
    """The place of an event in the log, without its content. `at`: microseconds UTC."""

    position: int
    stream: str
    topic: str
    at: int


class WriteEntry(NamedTuple):
    """An event that wrote or deleted a value: its stream, its version, and its author."""

    stream: str
    version: int
    by: str


class LogTime(NamedTuple):
    """The time of an event. `at`: microseconds UTC; `clock`: the writer's clock, if `at` was ahead of it."""

    position: int
    at: int
    clock: int | None


class Leases(Protocol):
    """Liveness, outside the log. Times: microseconds of the store's steady clock. Rows may already have expired;
    callers must check `deadline`."""

    def of(self, resources: Sequence[str]) -> list[Lease]:
        """All leases of these resources."""

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        """All leases under an agent's name and principal, in any session."""

    def of_session(self, session: str) -> list[Lease]:
        """All leases of a session."""

    def next_end(self) -> int | None:
        """The earliest time at which something ends; None if nothing does."""

    def servers(self) -> list[str]:
        """The processes that keep leases alive."""

    def sessions_of(self, server: str) -> list[str]:
        """The sessions that a process keeps alive and that hold or wait for something."""

    def has_idle_sessions(self, now: int) -> bool:
        """Whether sessions kept alive by their calls have ended and are not recorded as ended."""

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        """The losses of a session of the principal, and those of the holder with this receipt (salted hash)."""


class LeaseWrites(Leases, Protocol):
    """Leases, writable in a transaction."""

    def due(self, now: int, limit: int) -> list[Lease]:
        """Expired leases, and tickets whose blocking calls have ended, by deadline."""

    def put(self, leases: Iterable[Lease]) -> None:
        """Write leases, each replacing that of the same grant or ticket."""

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        """Remove leases."""

    def record_call(self, who: Who, server: str, now: int) -> None:
        """Record a call of the agent: renew each of its leases of which an eighth has passed. If its session had ended,
        `server` keeps alive again all that the session holds or waits for."""

    def held(self, who: Who, now: int) -> HeldCounts:
        """Count the live grants of the session and the principal of a caller, and the principal's tickets. Below the
        limit per principal, its count of grants may include expired ones."""

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        """Record calls of sessions kept alive by them: each with its principal and the time when its last
        call began. A session that ended before that call is alive again."""

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        """End a session kept alive by its calls: its leases stay, its waiters are no longer in a call."""

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        """Renew what the sessions hold without a principal, and assign it to this process; renew these grants. Callers
        choose session names, so only a session's own calls renew what it holds under a principal."""

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        """Assign what this process kept alive of a session to another process, `heir`. Calls that waited through this
        process have ended."""

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        """End these processes, whose end was noticed at `at` (microseconds UTC): shorten held leases to `grace` unless
        the agent chose their duration, and offered ones always; waiters are no longer in a call. Returns whether there
        were any."""

    def end_idle_sessions(self, now: int, at: int) -> bool:
        """End sessions kept alive by their calls that made none for too long. Returns whether there were any."""

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        """Store losses until they are reported, at most a day."""

    def forget(self, losses: Sequence[Loss]) -> None:
        """Remove losses that were reported."""


class Reader(Protocol):
    """Reads the views and the log. What does not exist reads as its empty state, never as an error.

    `limit`: number of rows; below 0 = all. A record is as its last event left it: `record.seen` applies an expiry that
    is due.
    """

    @property
    def at(self) -> int:
        """The time of all its reads: microseconds UTC, never before that of an event."""

    @property
    def clock(self) -> int:
        """The clock of this process when the reads began: microseconds UTC. It is before `at` if a clock was ahead when
        an event was recorded."""

    @property
    def leases(self) -> Leases:
        """The leases of claims."""

    def position(self) -> int:
        """The position of the newest event; 0 if there is none."""

    def record(self, namespace: str, key: str) -> Record:
        """The current state of one record."""

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        """The records of a namespace that have a value at `at` (with `deleted`: had one) and keys that start with
        `prefix`, by key, after a key."""

    def written_keys(self, namespace: str, prefix: str, after: str | None, limit: int) -> list[str]:
        """The keys of a namespace that were ever written, as in `records`."""

    def written_namespaces(self, after: str | None, limit: int) -> list[str]:
        """The namespaces in which a key was ever written, by name, after a name."""

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """Namespaces with records that have a value at `at`, with their number, by name, after a name."""

    def next_value_end(self) -> int | None:
        """When the next value expires, possibly in the past: microseconds UTC; None if none expires."""

    def claim(self, resource: str) -> Claim:
        """The current state of one claim."""

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        """The claims that are held or waited for now, by resource, after a resource."""

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        """These claims and those that cover them, if they exist, and all below that are held or waited for."""

    def ever_claimed(self, resource: str) -> list[str]:
        """The resources that overlap this one and were ever claimed, waited for, or changed (FileChanged), by name."""

    def queued(self) -> list[Claim]:
        """The claims that have waiters."""

    def ticket_count(self) -> int:
        """How many tickets there are, in all queues."""

    def tickets(self, resources: Sequence[str]) -> list[Ticket]:
        """The tickets in the queues of these resources."""

    def joint_tickets(self) -> list[Ticket]:
        """The tickets that request more than one resource."""

    def awaited_by(self, agents: Sequence[str]) -> list[str]:
        """The resources for which these agents have tickets."""

    def is_queued(self, resource: str, version: int) -> bool:
        """Whether the ticket is still in its queue."""

    def snapshot_before(self, position: int) -> tuple[int, list[Claim], list[Ticket]]:
        """The newest snapshot of the board up to a position: its own position, and the claims that were held or waited
        for, with their tickets. Position 0 if there is no snapshot: the empty board before the first event."""

    def agents(self, names: Sequence[str]) -> list[Profile]:
        """The profiles of those of these agents that registered."""

    def registered(self, after: str | None, limit: int) -> list[str]:
        """The agents that registered, by name, after a name."""

    def store_log(self) -> StoreLog:
        """The facts about the log itself that apply now."""

    def texts(self, stream: str, versions: Sequence[int]) -> list[EventTexts]:
        """The texts of these events of a stream that can be redacted, by version."""

    def containing(self, text: SearchText, limit: int) -> list[EventTexts]:
        """The events whose payload or reason contains a text, in order; the parts that do not are None. Reads the whole
        log."""

    def token(self, name: str) -> Token:
        """The current state of one token."""

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        """All tokens, including revoked and expired ones, by name, after a name."""

    def thread(self, thread: str) -> Thread:
        """The current state of one thread."""

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        """All threads, by name, after a name."""

    def thread_count(self) -> int:
        """How many threads were ever started."""

    def thread_events(
        self,
        thread: str,
        kinds: Sequence[ItemKind],
        after: int,
        before: int | None,
        limit: int,
        newest: bool,
        key: str | None = None,
    ) -> list[Recorded[Event]]:
        """Events of a thread of these kinds, above one version and below another, oldest or newest first; with `key`,
        those that changed it. The cost depends on `limit`, not on where in the thread the events are."""

    def item_count(self, thread: str, kind: ItemKind, after: int, upto: int) -> int:
        """How many events of this kind a thread has above one version, up to another."""

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        """The checksums of the results above a version, in order; with `wanted`, those of them that exist."""

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        """The data of a thread that has a value now, by key: for these `keys`, or for all after a key."""

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        """The data keys that were written or deleted above a version, by name."""

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        """The version that a stream had at a position, or at a time (microseconds UTC); 0 before its first event."""

    def position_at(self, at: int) -> int:
        """The last position that was written at or before a time (microseconds UTC); 0 before the first event."""

    def last_events(self, streams: Sequence[str], position: int) -> list[Recorded[Event]]:
        """The last event of each of these streams up to a position; none for a stream that began later."""

    def next_events(self, streams: Sequence[str], position: int, topics: Sequence[str]) -> list[Recorded[Event]]:
        """The first event of each of these streams above a position that has one of these topics."""

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        """The events of one stream, newest first, below a version. Raises StoreError for an unknown topic."""

    def following(self, stream: str, after: int, limit: int) -> list[Recorded[Event]]:
        """The events of one stream, oldest first, above a version."""

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        """The events of all streams in order, above a position. Raises StoreError for an unknown topic."""

    def writes_of(
        self, sessions: Sequence[str], correlation_id: str | None, since: int, after: int, upto: int
    ) -> list[WriteEntry]:
        """The values that any of these sessions wrote or deleted, or else those under a correlation id, at or after a
        time (microseconds UTC), at positions above `after` and up to another. Reads all events between these."""

    def log_of(self, topics: Sequence[str], after: int, upto: int, limit: int) -> list[Recorded[Event]]:
        """The events of these topics in order, above one position, up to another."""

    def times(self, after: int, limit: int) -> list[LogTime]:
        """The times of all events in order, above a position."""

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        """Like `log`, but only the place of each event: about 2 µs each at any size; unknown topics are allowed."""

    def digests(self, after: int, upto: int) -> list[bytes]:
        """The digests of the events above one position, up to another, in order."""

    def subtree_roots(self) -> dict[int, bytes]:
        """The roots of complete subtrees of the Merkle tree that the store keeps, by the position of their last
        event."""

    def refusals(self, codes: Sequence[str], since: int, limit: int) -> list["Refusal"]:
        """Refused calls with these codes, at or after a time (microseconds UTC), newest first."""

    def meta(self, name: str) -> str | None:
        """Metadata of the store: `store_id` identifies this log among all logs; None if not set."""


class Transaction(Reader, Protocol):
    """Reads and writes that become durable together, or not at all.

    `at`: its time, microseconds UTC, never before that of an earlier event; `steady`: the same moment on the steady
    clock of leases, in microseconds.
    """

    at: int
    steady: int

    @property
    def sealed(self) -> str | None:
        """Why the store no longer accepts commands, on one line; None: it does."""

    @property
    def leases(self) -> LeaseWrites:
        """The leases of claims."""

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit."""

    @property
    def grew(self) -> bool:
        """Whether events were appended."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics of the appended events."""

    def records_of(self, addresses: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
        """The records of many namespaces and keys; those that were never written may be missing."""

    def due_records(self, limit: int) -> list[Record]:
        """Records whose values are due at `at` but still live, earliest due first."""

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        """Record the events and put the rows of their views; returns the positions of the events. Changes of one stream
        follow each other: each begins where the one before it ended."""

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        """The fingerprint and outcome remembered under the caller's request_id in the last 24 hours.

        `session`: the session in which the id is unique; empty: it is unique in the principal."""

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        """Store an outcome (JSON) under the caller's request_id. `session`: as in `repeated`."""

    def redact(self, stream: str, versions: Sequence[int], part: Part) -> None:
        """Remove a part of these events, except for its hash, and its value from the views."""

    def forget_texts(self, texts: Sequence[SearchText]) -> None:
        """Remove texts from what is kept next to the log: outcomes of requests, notes of leases, refusals."""

    def put_meta(self, name: str, value: str) -> None:
        """Write metadata, replacing its current value."""

    def put_snapshot(self, position: int, claims: Sequence[Claim], tickets: Sequence[Ticket]) -> None:
        """Store a snapshot of the board at a position: the claims that were held or waited for, and their tickets."""

    def drop_snapshots(self) -> None:
        """Remove all snapshots of the board."""

    def put_subtree_roots(self, roots: Mapping[int, bytes]) -> None:
        """Keep roots of complete subtrees of the Merkle tree, by the position of their last event."""

    def drop_subtree_roots(self) -> None:
        """Remove all kept roots of subtrees."""

    def note_refusals(self, refusals: Sequence["Refusal"]) -> None:
        """Keep the newest 10 000 refusals for an auditor, outside the log and its guarantees."""


class Refusal(NamedTuple):
    """A refused call: who, what and when (microseconds UTC); never a value."""

    at: int
    code: str
    what: str
    by: str
    session: str | None


class Prefetch(NamedTuple):
    """What commands will read, as far as known in advance: `records` by namespace and key, the agents whose leases
    they may renew, threads, and results by thread and checksum."""

    records: Sequence[tuple[str, str]] = ()
    agents: Sequence[str] = ()
    threads: Sequence[str] = ()
    results: Sequence[tuple[str, str]] = ()


NOTHING: Final = Prefetch()


class Scrubbed(NamedTuple):
    """`rewritten`: backups from which redacted texts were removed. `remaining`: what else may have them, one line each.
    `unfinished`: why files of the store may still have them, and what to do, one line each."""

    rewritten: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


class Store(Protocol):
    """One log with its views, shared with other processes. `remote`: every read is a round trip, which may be slow."""

    remote: bool

    def reader(self) -> AbstractContextManager[Reader]:
        """Open a reader whose every read sees the newest state."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Open a reader whose reads all see the log at one position."""

    def transaction(
        self, deadline: float, prefetch: Callable[[], Prefetch] | None = None
    ) -> AbstractContextManager[Transaction]:
        """Begin a transaction, durable when the block ends. `deadline` (`time.monotonic` seconds) limits the wait to
        begin. A remote store calls `prefetch` to read those rows in the same round trip.

        Raises UnavailableError. If the block raises, nothing happened.
        """

    def size(self) -> int:
        """Bytes that the store occupies."""

    def scrub(self) -> Scrubbed:
        """Remove redacted texts from what the database deleted but did not overwrite, and from backups that migrations
        left. Other writers wait meanwhile. Raises UnavailableError."""

    def rollback_interrupted(self) -> None:
        """Undo and release, after an interrupt, whatever this thread still has of a transaction."""

    def close(self) -> None:
        """Release everything; acknowledged writes are kept."""

    def detach_after_fork(self) -> None:
        """In a forked child, refuse all further calls and touch nothing that the parent uses."""


class Notifier(Protocol):
    """A hint that the log grew: may be lost, duplicated or late. The log is the truth."""

    def notify(self) -> None:
        """Wake all listeners, here and in other processes, to read again."""

    def listen(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake` (from any thread) on each notification, and occasionally without one, while the block runs."""
