"""A store in the memory of one process: the same decisions, nothing on disk. For tests and trials."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode, encode
from holdlog.adapters.stores.memory.leases import Key, MemoryLeases
from holdlog.adapters.stores.memory.threads import NOTHING, HeldItems, MemoryThreads
from holdlog.adapters.stores.sqlite.schema import SESSION_SALT, new_session_salt
from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.lease import Lease, Loss
from holdlog.domain.claims.resource import covering, overlap
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.names import agent_stream, claim_stream, record_stream, token_stream
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Change, HistoryEntry, Refusal
from holdlog.domain.record import Record, seen
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.domain.threads.thread import Thread
from holdlog.domain.token import Token
from holdlog.projections import fold
from holdlog.projections.fold import State
from holdlog.projections.projection import Put

Row = TypeVar("Row")
RequestKey = tuple[str | None, str, str | None]
"""Principal, session and request_id."""
_Committed = tuple[list[EncodedEvent], dict[str, State], dict[str, HeldItems], dict[Key, Lease], list[Loss]]


class MemoryStore:
    """A store in memory. Thread-safe. `clock`: microseconds UTC; `steady`: the clock of leases. Its contents last as
    long as the object."""

    remote = False

    def __init__(self, clock: Callable[[], int] = platform.now, steady: Callable[[], int] = platform.steady) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._steady = steady
        # Replaced as a whole, never changed.
        self._committed: _Committed = [], {}, {}, {}, []
        self._requests: dict[RequestKey, tuple[int, bytes, str]] = {}
        self._meta = {"store_id": str(uuid.uuid4()), SESSION_SALT: new_session_salt()}
        self.refusals: list[Refusal] = []
        self._closed: Callable[[], StoreError] | None = None

    @contextmanager
    def reader(self) -> Iterator["MemoryReader"]:
        self._usable()
        now = self._clock()
        log, states, held, leases, losses = self._committed
        yield MemoryReader(log, states, held, MemoryLeases(leases, losses), self._meta, _not_before(log, now))

    snapshot = reader

    @contextmanager
    def transaction(self, deadline: float, prefetch: object = None) -> Iterator["MemoryTransaction"]:
        self._usable()
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise UnavailableError("another thread is writing to the store; try again")
        try:
            self._usable()
            log, states, held, leases, losses = self._committed
            clock = self._clock()
            at = _not_before(log, clock)
            kept = MemoryLeases(dict(leases), list(losses))
            copies = list(log), dict(states), dict(held), kept, dict(self._meta), dict(self._requests)
            transaction = MemoryTransaction(*copies, at, clock, self._steady())
            yield transaction
            self._committed = transaction.events, transaction.states, transaction.held, kept.leases, kept.lost
            self._requests = transaction.requests
            self._meta = transaction.remarks
            self.refusals = [*self.refusals, *transaction.refusals][-REFUSALS_KEPT:]
        finally:
            self._lock.release()

    def size(self) -> int:
        return 0  # requests are not kept

    def rollback_interrupted(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def close(self) -> None:
        self._closed = StoreError.closed

    def detach_after_fork(self) -> None:
        self._closed = StoreError.forked

    def _usable(self) -> None:
        if self._closed:
            raise self._closed()


def _not_before(log: list[EncodedEvent], now: int) -> int:
    """The current time, but not before the newest event, nor before 1970."""
    return max(now, log[-1].extra[0] if log else 0)


class MemoryReader(MemoryThreads):
    """Reads the committed state. `held`: the contents of threads, by name."""

    def __init__(
        self,
        events: list[EncodedEvent],
        states: dict[str, State],
        held: dict[str, HeldItems],
        leases: MemoryLeases,
        remarks: dict[str, str],
        at: int,
    ) -> None:
        self.events = events
        self.states = states
        self.held = held
        self.leases = leases
        self.remarks = remarks
        self.at = at

    def position(self) -> int:
        return len(self.events)

    def record(self, namespace: str, key: str) -> Record:
        found = self.states.get(record_stream(namespace, key))
        return found if isinstance(found, Record) else Record(namespace, key)

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        found = [
            state
            for state in self.states.values()
            if isinstance(state, Record)
            and state.namespace == namespace
            and seen(state, self.at).live is not deleted
            and state.key.startswith(prefix)
            and (after is None or state.key > after)
        ]
        found.sort(key=lambda record: record.key)
        return _first(found, limit)

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for state in self.states.values():
            if not isinstance(state, Record) or not seen(state, self.at).live:
                continue
            if after is None or state.namespace > after:
                counts[state.namespace] = counts.get(state.namespace, 0) + 1
        return _first(sorted(counts.items()), limit)

    def next_value_end(self) -> int | None:
        return min((end for end, _ in self._ending()), default=None)

    def _ending(self) -> list[tuple[int, Record]]:
        return [
            (state.expires_at, state)
            for state in self.states.values()
            if isinstance(state, Record) and state.live and state.expires_at is not None
        ]

    def claim(self, resource: str) -> Claim:
        found = self.states.get(claim_stream(resource))
        return found if isinstance(found, Claim) else Claim(resource)

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        active = [claim for claim in self._active() if after is None or claim.resource > after]
        return _first(sorted(active, key=lambda claim: claim.resource), limit)

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        names = dict.fromkeys(name for resource in resources for name in covering(resource))
        named = [self.claim(name) for name in names]
        return [claim for claim in named if claim.version] + [
            claim
            for claim in self._active()
            if claim.resource not in names and any(overlap(claim.resource, resource) for resource in resources)
        ]

    def queued(self) -> list[Claim]:
        return [claim for claim in self._active() if claim.line]

    def agents(self, names: Sequence[str]) -> list[Profile]:
        found = (self.states.get(agent_stream(name)) for name in names)
        return [profile for profile in found if isinstance(profile, Profile)]

    def token(self, name: str) -> Token:
        found = self.states.get(token_stream(name))
        return found if isinstance(found, Token) else Token(name)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        found = [it for it in self.states.values() if isinstance(it, Token) and (after is None or it.name > after)]
        return _first(sorted(found, key=lambda it: it.name), limit)

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        found = [
            self._recorded(index)
            for index in range(len(self.events) - 1, -1, -1)
            if self.events[index].stored.originator_id == stream
            and (before is None or self.events[index].stored.originator_version < before)
        ]
        return _first(found, limit)

    def log(self, after: int, limit: int) -> list[Recorded[Event]]:
        return [self._recorded(index) for index in self._above(after, limit)]

    def entries(self, after: int, limit: int) -> list[HistoryEntry]:
        found = ((index, self.events[index]) for index in self._above(after, limit))
        return [
            HistoryEntry(index + 1, str(it.stored.originator_id), it.stored.topic, it.extra[0]) for index, it in found
        ]

    def _above(self, after: int, limit: int) -> range:
        return range(after, len(self.events) if limit < 0 else min(after + limit, len(self.events)))

    def meta(self, name: str) -> str | None:
        return self.remarks.get(name)

    def _active(self) -> list[Claim]:
        return [state for state in self.states.values() if isinstance(state, Claim) and (state.grants or state.line)]

    def _recorded(self, index: int) -> Recorded[Event]:
        stored, extra, _ = self.events[index]
        return decode((index + 1, stored.originator_id, stored.originator_version, stored.topic, stored.state, *extra))


def _first(rows: list[Row], limit: int) -> list[Row]:
    return rows if limit < 0 else rows[:limit]


class MemoryTransaction(MemoryReader):
    def __init__(
        self,
        events: list[EncodedEvent],
        states: dict[str, State],
        held: dict[str, HeldItems],
        leases: MemoryLeases,
        remarks: dict[str, str],
        requests: dict[RequestKey, tuple[int, bytes, str]],
        at: int,
        clock: int,
        steady: int,
    ) -> None:
        super().__init__(events, states, held, leases, remarks, at)
        self._changed: set[str] = set()
        self.requests = requests
        self.refusals: list[Refusal] = []
        self.clock = clock
        self.steady = steady
        self._before = len(events)
        self._wrote = False
        self.sealed: str | None = None

    @property
    def wrote(self) -> bool:
        return self._wrote or self.leases.wrote

    @property
    def grew(self) -> bool:
        return len(self.events) > self._before

    @property
    def topics(self) -> list[str]:
        return [event.stored.topic for event in self.events[self._before :]]

    def due_records(self, limit: int) -> list[Record]:
        due = sorted((it for it in self._ending() if it[0] <= self.at), key=lambda it: (it[0], *it[1][:2]))
        return _first([record for _, record in due], limit)

    def append(self, changes: Sequence[Change], caller: Caller) -> Sequence[int]:
        first = len(self.events) + 1
        for change in changes:
            before = self.states.get(change.before.stream, change.before)
            sealed = encode(change, before, self.at, self.clock, caller)
            self.events.append(sealed)
            self.states[before.stream] = after = fold.evolve(
                before, change.event, self.at, sealed.digest, caller.principal
            )
            if isinstance(after, Thread):
                self._hold(after, fold.detail_rows(after, change.event, self.at))
        self._wrote = True
        return range(first, len(self.events) + 1)

    def _hold(self, thread: Thread, rows: list[Put]) -> None:
        if thread.thread not in self._changed:
            self._changed.add(thread.thread)
            self.held[thread.thread] = self.held.get(thread.thread, NOTHING).copy()
        held = self.held[thread.thread]
        held.positions.append(len(self.events) - 1)
        for row in rows:
            held.put(row)

    def repeated(self, caller: Caller, session: str = "") -> tuple[bytes, str] | None:
        found = self.requests.get((caller.principal, session, caller.request_id))
        if found is None or found[0] < self.at - REQUEST_SECONDS * 1_000_000:
            return None
        return found[1], found[2]

    def remember(self, caller: Caller, fingerprint: bytes, outcome: str, session: str = "") -> None:
        self.requests[caller.principal, session, caller.request_id] = (self.at, fingerprint, outcome)
        self._wrote = True

    def put_meta(self, name: str, value: str) -> None:
        self.remarks[name] = value
        self._wrote = True

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        self.refusals.extend(refusals)
