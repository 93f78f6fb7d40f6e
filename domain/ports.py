"""What the outside must offer, a sentence per method."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from holdlog.domain.agent import AgentRegistered, Profile
from holdlog.domain.claims.claim import Claim, ClaimEvent
from holdlog.domain.claims.lease import HeldCounts, Lease, Loss, Who
from holdlog.domain.envelope import Basis, Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.record import Record, RecordEvent
from holdlog.domain.threads.thread import Datum, ItemKind, Thread, ThreadEvent
from holdlog.domain.token import Token, TokenEvent

REQUEST_SECONDS: Final = 24 * 60 * 60
"""How long outcomes are remembered under their request_id."""
REFUSALS_KEPT: Final = 10_000


class RecordChange(NamedTuple):
    """An event decided for a record as it was before. `basis`: what the write relied on; None: nobody wrote it."""

    before: Record
    event: RecordEvent
    basis: Basis | None = None


class ClaimChange(NamedTuple):
    """An event decided for a claim as it was before."""

    before: Claim
    event: ClaimEvent


class AgentChange(NamedTuple):
    """An event decided for an agent as it was before."""

    before: Profile
    event: AgentRegistered


class TokenChange(NamedTuple):
    """An event decided for a token as it was before."""

    before: Token
    event: TokenEvent


class ThreadChange(NamedTuple):
    """An event decided for a thread as it was before. `basis`: what a change of data relied on."""

    before: Thread
    event: ThreadEvent
    basis: Basis | None = None


Change = RecordChange | ClaimChange | AgentChange | TokenChange | ThreadChange


class HistoryEntry(NamedTuple):
    """That something happened, without what it says. `at`: microseconds UTC."""

    position: int
    stream: str
    topic: str
    at: int


class Leases(Protocol):
    """Liveness beside the log. Times: microseconds of the store's steady clock. Rows may be due: who reads compares."""

    def of(self, resources: Sequence[str]) -> list[Lease]:
        """All leases of these resources."""

    def of_agent(self, agent: str, principal: str | None) -> list[Lease]:
        """All leases under an agent's name and principal, whatever their sessions."""

    def of_session(self, session: str) -> list[Lease]:
        """All leases of a session."""

    def next_end(self) -> int | None:
        """The earliest time at which something ends; None when nothing does."""

    def servers(self) -> list[str]:
        """The servers that keep leases alive."""

    def sessions_of(self, server: str) -> list[str]:
        """The sessions that a server keeps alive and that hold or wait for something."""

    def has_idle_sessions(self, now: int) -> bool:
        """Whether sessions that lived by their calls have ended without being recorded as ended."""

    def losses(self, principal: str | None, session: str | None, receipt: str | None) -> list[Loss]:
        """What a session of the principal lost, and what the holder with this receipt (salted hash) lost."""


class LeaseWrites(Leases, Protocol):
    """Leases as a transaction changes them."""

    def due(self, now: int, limit: int) -> list[Lease]:
        """Leases that are over, and tickets whose calls are, by deadline."""

    def put(self, leases: Iterable[Lease]) -> None:
        """Write leases, each in place of the one of the same grant or ticket."""

    def drop(self, keys: Iterable[tuple[str, int]]) -> None:
        """Remove leases."""

    def heard(self, who: Who, server: str, now: int) -> None:
        """The agent called: renew what it holds where an eighth of a lease has passed. If its session had ended, all
        that the session holds or waits for is kept alive by `server` again."""

    def held(self, who: Who, now: int) -> HeldCounts:
        """How many live grants the session and the principal of a caller have. Below the bound of a principal, its
        count may include expired ones."""

    def touch(self, sessions: Sequence[tuple[str | None, str, int]], now: int) -> None:
        """Keep these sessions alive, which live by their calls: each with its principal and the time when its last call
        began. A session that ended before that call is alive again."""

    def end_session(self, session: str, principal: str | None, now: int, at: int) -> None:
        """End a session that lived by its calls: its leases stay, its waiters are no longer in a call."""

    def renew(
        self, server: str, sessions: Sequence[tuple[str, int]], grants: Iterable[tuple[str, int]], now: int
    ) -> None:
        """Renew what the sessions hold without a principal, and make it this server's; renew these grants. A session's
        name is what callers say: what an authenticated one holds, only its own calls renew."""

    def inherit(self, server: str, session: str, heir: str, now: int) -> None:
        """Let another server keep alive what this one kept alive of a session. Calls that waited through this server
        are over."""

    def end(self, servers: Sequence[str], now: int, at: int, grace: int | None) -> bool:
        """These servers are gone, as was noticed at `at` (microseconds UTC): cut what they held to `grace` unless its
        length was chosen, and what was offered to them; waiters are in no call any more. Whether there was anything."""

    def end_idle_sessions(self, now: int, at: int) -> bool:
        """End the sessions that lived by their calls and made none for too long. Whether there were any."""

    def lose(self, losses: Sequence[Loss], at: int) -> None:
        """Keep losses until they are told, a day at most."""

    def forget(self, losses: Sequence[Loss]) -> None:
        """They were told."""


class Reader(Protocol):
    """Reads the views and the log. What is not there reads as its empty state, never as an error.

    `limit` is a number of rows; below 0 = all of them. A record is as its last event left it: what is due at a time
    tells `record.seen`.
    """

    @property
    def at(self) -> int:
        """The time that reads go by, the same for all of them: microseconds UTC, never before that of an event."""

    @property
    def leases(self) -> Leases:
        """Their leases."""

    def position(self) -> int:
        """The position of the newest event; 0 when there is none."""

    def record(self, namespace: str, key: str) -> Record:
        """One record as it is now."""

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        """The records of a namespace that have a value at `at` (or else: had one) and keys that start with `prefix`, by
        key, after a key."""

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """Namespaces with records that have a value at `at`, and how many of them, by name, after a name."""

    def next_value_end(self) -> int | None:
        """When the next value is due, or has been for a while: microseconds UTC; None when all live on."""

    def claim(self, resource: str) -> Claim:
        """One claim as it is now."""

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        """The claims that somebody holds or waits for now, by resource, after a resource."""

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        """These claims and those that cover them, where there are any, and all below that are held or waited for."""

    def queued(self) -> list[Claim]:
        """The claims that somebody waits for."""

    def agents(self, names: Sequence[str]) -> list[Profile]:
        """Those of these agents that registered."""

    def token(self, name: str) -> Token:
        """One token as it is now."""

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        """All tokens, revoked and expired ones too, by name, after a name."""

    def thread(self, thread: str) -> Thread:
        """One thread as it is now."""

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        """All threads, by name, after a name."""

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
        """Events of a thread of these kinds, above one version and below another, oldest or newest first; with a `key`,
        those that changed it. As many as asked for cost the same, wherever in the thread they are."""

    def checksums(self, thread: str, after: int, wanted: Sequence[str] | None) -> list[str]:
        """Of the results above a version, in order; with `wanted`, those of them that are there."""

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        """The data of a thread that has a value now, by key: of these `keys`, or of all after a key."""

    def changed_keys(self, thread: str, after: int, limit: int) -> list[str]:
        """The keys of data that were written or deleted above a version, by name."""

    def version_at(self, stream: str, position: int | None, at: int | None) -> int:
        """The version that a stream had at a position, or at a time (microseconds UTC); 0 before its first event."""

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        """The events of one stream, newest first, below a version. Raises StoreError for an unknown topic."""

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        """The events of all streams in order, above a position. Raises StoreError for an unknown topic."""

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        """As `log`, but only where each event stands: some 2 µs each, whatever it holds, and no topic is unknown."""

    def meta(self, name: str) -> str | None:
        """A remark about the store: `store_id` names this log among all logs; None for what nobody put there."""


class Transaction(Reader, Protocol):
    """Reads and writes that become durable together, or not at all.

    `at`: its time, microseconds UTC, never before that of an earlier event; `steady`: the same moment on the clock of
    leases, in microseconds.
    """

    at: int
    steady: int

    @property
    def sealed(self) -> str | None:
        """Why no command may run any more, in one line; None: they may."""

    @property
    def leases(self) -> LeaseWrites:
        """Their leases."""

    @property
    def wrote(self) -> bool:
        """Whether there is something to commit."""

    @property
    def grew(self) -> bool:
        """Whether events were appended."""

    @property
    def topics(self) -> Sequence[str]:
        """Of the events that were appended."""

    def due_records(self, limit: int) -> list[Record]:
        """Records whose values are due at `at` and still live, those first that were due first."""

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        """Record the events and put the rows of their views; answers with their positions."""

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        """Fingerprint and outcome that were remembered under the caller's request_id in the last 24 hours.

        `session`: the one that the id is unique in; empty: the id is unique in the principal."""

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        """Keep an outcome (JSON) under the caller's request_id. `session`: as of `repeated`."""

    def put_meta(self, name: str, value: str) -> None:
        """Write a remark, in place of what stands there."""

    def note_refusals(self, refusals: Sequence["Refusal"]) -> None:
        """Keep the newest 10 000 refusals for an auditor; outside the log and its promises."""


class Refusal(NamedTuple):
    """Who was refused what, when (microseconds UTC); never a value."""

    at: int
    code: str
    what: str
    by: str
    session: str | None


class Prefetch(NamedTuple):
    """What commands are going to read, as far as it is known before: `records` by namespace and key, the agents whose
    leases they may renew, threads, and results by thread and checksum."""

    records: Sequence[tuple[str, str]] = ()
    agents: Sequence[str] = ()
    threads: Sequence[str] = ()
    results: Sequence[tuple[str, str]] = ()


class Store(Protocol):
    """One log with its views, shared with other processes. `remote`: every read is a journey, which may take long."""

    remote: bool

    def reader(self) -> AbstractContextManager[Reader]:
        """Reads of the newest state, each for itself."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Reads that all see the log at one position."""

    def transaction(
        self, deadline: float, ahead: Callable[[], Prefetch] | None = None
    ) -> AbstractContextManager[Transaction]:
        """Writes that are durable when the block ends. `deadline` (`time.monotonic` seconds) bounds the wait to begin.
        `ahead` is asked by stores that are remote.

        Raises UnavailableError. When the block raises, nothing happened.
        """

    def size(self) -> int:
        """Bytes that it takes where it is kept."""

    def rollback_interrupted(self) -> None:
        """After an interrupt: undo and release whatever this thread still has of a transaction."""

    def close(self) -> None:
        """Let go of everything; what was acknowledged is kept."""

    def detach_after_fork(self) -> None:
        """In a forked child: refuse all calls from now on, and touch nothing that the parent uses."""


class Notifier(Protocol):
    """A hint that the log grew: may be lost, doubled or late. The log is the truth."""

    def notify(self) -> None:
        """Tell everybody, here and in other processes, to look again."""

    def listen(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake` (from any thread) on each ring, and now and then for no reason, while the block runs."""
