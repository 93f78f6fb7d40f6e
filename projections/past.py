"""The state at an earlier position, read from the log: what `Reader` returned then."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, NoReturn, TypeVar, cast

from holdlog.domain.agent import Profile
from holdlog.domain.claims.board import Key
from holdlog.domain.claims.claim import Claim, PastHold, Ticket
from holdlog.domain.claims.resource import overlap
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import agent_stream, claim_stream, record_stream, thread_stream
from holdlog.domain.ports import Leases, Reader, State
from holdlog.domain.record import Record, ValueExpired, seen, state_after
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.thread import Datum, ItemKind, Thread, ThreadDataChanged, ThreadEvent
from holdlog.domain.token import Token
from holdlog.projections import fold
from holdlog.projections.past_board import Ending, PastBoard, endings, past_board, past_hold

BATCH: Final = 500
"""Streams read at once."""
_CHUNK: Final = 100
"""Events read at once."""

Row = TypeVar("Row")


class PastReader:
    """Implements `Reader` for a position of the log, so that queries about values and threads run unchanged;
    `PastRequests` has the queries about claims, agents and tokens. What none of these queries reads raises
    InvalidError, such as leases: liveness is not recorded.

    `at`: the time (microseconds UTC) at which values count as expired; None: those whose expiry is recorded, as in a
    replay of the log up to the position.
    """

    def __init__(self, reader: Reader, position: int, at: int | None = None) -> None:
        self._reader = reader
        self._position = position
        self._at = at
        self._versions: dict[str, int] = {}
        self._data: dict[str, dict[str, Datum]] = {}

    @property
    def at(self) -> int:
        """0, before every expiry, without a time."""
        return self._at or 0

    @property
    def clock(self) -> int:
        self._unavailable()

    @property
    def by_time(self) -> bool:
        return self._at is not None

    @property
    def leases(self) -> Leases:
        self._unavailable()

    @cached_property
    def board(self) -> PastBoard:
        """The claims that were held or waited for."""
        return past_board(self._reader, self._position)

    def position(self) -> int:
        return self._position

    # --- values

    def record(self, namespace: str, key: str) -> Record:
        return next(self._records_of(namespace, (key,)), Record(namespace, key))

    def records(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> list[Record]:
        return list(_limited(self._written(namespace, prefix, after, limit, deleted), limit))

    def namespaces(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        names = chain.from_iterable(_pages(self._reader.written_namespaces, after, lambda name: name))
        counts = ((name, sum(1 for _ in self._written(name, "", None, -1, False))) for name in names)
        return list(_limited((counted for counted in counts if counted[1]), limit))

    def _written(self, namespace: str, prefix: str, after: str | None, limit: int, deleted: bool) -> Iterator[Record]:
        """The records whose values existed, or with `deleted` no longer did, in order of keys; about `limit` of them
        are needed."""
        size = BATCH if limit < 0 else min(limit, BATCH)
        while keys := self._reader.written_keys(namespace, prefix, after, size):
            for record in self._records_of(namespace, keys):
                if seen(record, self.at).live is not deleted:
                    yield record
            after, size = keys[-1], min(2 * size, BATCH)

    def _records_of(self, namespace: str, keys: Sequence[str]) -> Iterator[Record]:
        """The records of these keys that had been written, in this order."""
        streams = {record_stream(namespace, key): key for key in keys}
        found = self._last_events(list(streams))
        for stream, key in streams.items():
            if stream in found:
                yield self._record_after(namespace, key, found[stream])

    def _record_after(self, namespace: str, key: str, last: Recorded[Event]) -> Record:
        """The state after a record's last event. In format 1 an expiry does not name who was authenticated when the
        value was written, but the event before it does."""
        record, envelope = state_after(namespace, key, last), last.envelope
        if envelope.format == 1 and isinstance(last.event, ValueExpired):
            (written,) = self._reader.history(envelope.stream, envelope.version, 1)
            return record._replace(principal=written.envelope.caller.principal)
        return record

    # --- claims

    def last_hold(self, resource: str) -> tuple[PastHold, int] | None:
        """How the last hold that had ended ended, and when the log recorded it (microseconds UTC)."""
        stream = claim_stream(resource)
        return past_hold(self._reader, resource, self._reader.version_at(stream, self._position, None))

    def endings(self, claims: Sequence[Claim]) -> dict[Key, Ending]:
        """How the grants of these claims have ended since, if they have."""
        return endings(self._reader, claims, self._position)

    def claims(self, after: str | None, limit: int) -> list[Claim]:
        found = sorted(it for it in self.board.claims.values() if it.resource > (after or ""))
        return list(_limited(found, limit))

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        """Only claims that were held or waited for."""
        return sorted(
            it for it in self.board.claims.values() if any(overlap(it.resource, other) for other in resources)
        )

    def tickets(self, resources: Sequence[str]) -> list[Ticket]:
        wanted = set(resources)
        return [ticket for ticket in self.board.tickets.values() if ticket.resource in wanted]

    # --- agents and tokens

    def agents(self, names: Sequence[str]) -> list[Profile]:
        return self._states([agent_stream(name) for name in names])

    def registered(self, after: str | None, limit: int) -> list[str]:
        pages = _pages(self._reader.registered, after, lambda name: name)
        return [profile.agent for profile in _limited(chain.from_iterable(map(self.agents, pages)), limit)]

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        pages = _pages(self._reader.tokens, after, lambda token: token.name)
        found = (self._states([token.stream for token in page]) for page in pages)
        return list(_limited(chain.from_iterable(found), limit))

    def _states(self, streams: Sequence[str]) -> list[Any]:
        """The states of those of these streams that had begun, in this order. They are short."""
        last = self._last_events(streams)
        return [self._folded(stream, last[stream]) for stream in streams if stream in last]

    def _folded(self, stream: str, last: Recorded[Event]) -> State:
        state = fold.initial(stream)
        for recorded in (*reversed(self._reader.history(stream, last.envelope.version, -1)), last):
            state = fold.apply(state, recorded.envelope, recorded.event).state
        return state

    # --- threads

    def thread(self, thread: str) -> Thread:
        return self._thread_before(self._reader.thread(thread))

    def threads(self, after: str | None, limit: int) -> list[Thread]:
        pages = _pages(self._reader.threads, after, lambda thread: thread.thread)
        found = (self._thread_before(thread) for thread in chain.from_iterable(pages))
        return list(_limited((thread for thread in found if thread.version), limit))

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
        end = self._version_of(thread) + 1
        before = end if before is None else min(before, end)
        return self._reader.thread_events(thread, kinds, after, before, limit, newest, key)

    def thread_data(
        self, thread: str, keys: Sequence[str] | None, after: str | None = None, limit: int = -1
    ) -> list[Datum]:
        current = self._reader.thread(thread)
        if current.data_version <= self._version_of(thread):
            return self._reader.thread_data(thread, keys, after, limit)
        data = self._past_data(thread)
        names = data if keys is None else {key for key in keys if key in data}
        return list(_limited((data[key] for key in sorted(names) if key > (after or "")), limit))

    def _thread_before(self, current: Thread) -> Thread:
        """The thread at the position; `current`: as it is now."""
        thread, version = current.thread, self._version_of(current.thread)
        if version in (0, current.version):
            return current if version else Thread(thread)
        (last,) = self._reader.history(current.stream, version + 1, 1)
        cleared = self._last_of(thread, "clear", version)
        return current._replace(
            version=version,
            data_version=self._last_of(thread, "data", version),
            cleared=cleared,
            messages=self._reader.item_count(thread, "message", 0, version),
            results=self._reader.item_count(thread, "result", cleared, version),
            updated_by=cast("ThreadEvent", last.event).by,
            updated_by_principal=last.envelope.caller.principal,
            updated_at=last.envelope.at,
        )

    def _version_of(self, thread: str) -> int:
        if thread not in self._versions:
            self._versions[thread] = self._reader.version_at(thread_stream(thread), self._position, None)
        return self._versions[thread]

    def _last_of(self, thread: str, kind: ItemKind, version: int) -> int:
        """The version of the last event of a kind up to a version; 0 if there is none."""
        found = self._reader.thread_events(thread, (kind,), 0, version + 1, 1, newest=True)
        return found[0].envelope.version if found else 0

    def _past_data(self, thread: str) -> dict[str, Datum]:
        """The data of a thread, from all changes up to the position."""
        if thread not in self._data:
            data: dict[str, Datum] = {}
            after, end = 0, self._version_of(thread) + 1
            while page := self._reader.thread_events(thread, ("data",), after, end, _CHUNK, newest=False):
                for recorded in page:
                    event, after = cast("ThreadDataChanged", recorded.event), recorded.envelope.version
                    data |= {key: Datum(key, after, value) for key, value in event.values().items()}
                    for key in event.deleted:
                        data.pop(key, None)
            self._data[thread] = data
        return self._data[thread]

    # --- the log

    def history(self, stream: str, before: int | None, limit: int) -> list[Recorded[Event]]:
        end = self._reader.version_at(stream, self._position, None) + 1
        return self._reader.history(stream, end if before is None else min(before, end), limit)

    def _last_events(self, streams: Sequence[str]) -> dict[str, Recorded[Event]]:
        found = self._reader.last_events(streams, self._position)
        return {recorded.envelope.stream: recorded for recorded in found}

    # --- what no query about the past reads

    def _unavailable(self, *arguments: Any, **named: Any) -> NoReturn:
        raise InvalidError("at: this call can only read the present")

    claim = ever_claimed = queued = ticket_count = is_queued = joint_tickets = awaited_by = next_value_end = (
        _unavailable
    )
    token = thread_count = item_count = checksums = changed_keys = written_keys = written_namespaces = _unavailable
    version_at = position_at = last_events = next_events = following = snapshot_before = _unavailable
    digests = subtree_roots = store_log = texts = containing = _unavailable
    meta = log = log_of = writes_of = times = entries = refusals = _unavailable


def _pages(
    fetch: Callable[[str | None, int], list[Row]], after: str | None, name_of: Callable[[Row], str]
) -> Iterator[list[Row]]:
    while page := fetch(after, BATCH):
        yield page
        after = name_of(page[-1])


def _limited(rows: Iterable[Row], limit: int) -> Iterator[Row]:
    """The first rows; all below 0, as in the port."""
    return islice(rows, limit if limit >= 0 else None)
