"""The recorder: the only code that reads or writes the table of the log, behind the interface of the eventsourcing
library. Each method takes the `unit` (a connection in a transaction) to use, or opens one."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import Any, Final, Protocol
from uuid import UUID

from eventsourcing.persistence import ApplicationRecorder, ProgrammingError, Subscription

from holdlog.adapters.stores.event_log.codec import COLUMNS, EncodedEvent
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.adapters.stores.sql.text import ALL, NONE, PendingStatements, Statements
from holdlog.domain.ports import Notifier
from holdlog.domain.store_log import Part
from holdlog.projections.projection import Row

PULLED: Final = 100
"""Events that a subscription reads at once."""
POLL_SECONDS: Final = 1.0
"""Seconds between two reads of a subscription, if no notification arrives."""


_NO_ENVELOPE: Final = (*[None] * 5, b"", *[None] * 11)

_LOG: Final = f"SELECT notification_id, {', '.join(COLUMNS)} FROM {EVENTS_TABLE}"
_STEPS: Final = f"SELECT notification_id, {', '.join(list(COLUMNS)[:13])} FROM {EVENTS_TABLE}"
"""Up to the payload: what the fold needs. Logs of all older schemas have these columns."""
_POSITIONS: Final = f"SELECT notification_id, originator_id, originator_version, topic, at FROM {EVENTS_TABLE}"
_IN_STREAM: Final = "WHERE originator_id = :stream"
_SELECT_VERSIONS: Final = f"{_LOG} {_IN_STREAM} AND originator_version = ANY(:names)"
SELECT_LAST: Final = f"SELECT notification_id, at FROM {EVENTS_TABLE} ORDER BY notification_id DESC LIMIT 1"
"""Position and time of the newest event; PostgreSQL's transaction reads them with the rest of its first message."""
# In SQLite the plus keeps the planner on the index of streams: https://www.sqlite.org/optoverview.html
_BY_STREAM: Final = (
    f"{_STEPS} WHERE +notification_id <= :stop AND (originator_id, originator_version) > (:stream, :version)"
    " ORDER BY originator_id, originator_version LIMIT :limit"
)
_BY_POSITION: Final = f"{_STEPS} WHERE notification_id > :after ORDER BY notification_id LIMIT :limit"
_SELECT_WRITES: Final = {
    column: f"SELECT originator_id, originator_version, state FROM {EVENTS_TABLE}"
    " WHERE notification_id > :after AND notification_id <= :upto AND at >= :since"
    f" AND topic IN ('ValueWritten', 'ValueDeleted') AND {column} = ANY(:names)"
    for column in ("session", "correlation_id")
}
_SELECT_TIMES: Final = (
    f"SELECT notification_id, at, clock FROM {EVENTS_TABLE}"
    " WHERE notification_id > :after ORDER BY notification_id LIMIT :limit"
)
_WITH_PREVIOUS: Final = (
    f"SELECT {', '.join(f'event.{name}' for name in ('notification_id', *COLUMNS))}, previous.digest"
    f" FROM {EVENTS_TABLE} AS event LEFT JOIN {EVENTS_TABLE} AS previous ON previous.originator_id ="
    " event.originator_id AND previous.originator_version = event.originator_version - 1"
    " WHERE event.notification_id > :after AND event.notification_id <= :upto ORDER BY event.notification_id"
)
_SELECT_DIGESTS: Final = (
    f"SELECT digest FROM {EVENTS_TABLE} WHERE notification_id > :after AND notification_id <= :upto"
    " ORDER BY notification_id"
)
_CONTAINS: Final = {True: "strpos({}, :text) > 0", False: "{} = :text"}
_CONTAINING: Final = {
    within: f"SELECT notification_id, originator_id, originator_version, topic, {found.format('payload')},"
    f" {found.format('reason')} FROM {EVENTS_TABLE} WHERE {found.format('payload')} OR {found.format('reason')}"
    " ORDER BY notification_id LIMIT :limit"
    for within, found in _CONTAINS.items()
}
SALTS: Final[dict[Part, str]] = {"payload": "salt", "reason": "reason_salt"}
"""The parts of an event that can be redacted, and the columns of their salts."""
REMOVE: Final = {
    column: f"UPDATE {EVENTS_TABLE} SET {column} = NULL, {salt} = NULL, {column}_hash = :hashed"
    f" {_IN_STREAM} AND originator_version = :version"
    for column, salt in SALTS.items()
}
_COUNT: Final = f"SELECT COUNT(*) FROM {EVENTS_TABLE}"
_ENDS: Final = f"SELECT MIN(notification_id), MAX(notification_id) FROM {EVENTS_TABLE}"
_GAP: Final = f"""SELECT MIN(number) FROM (SELECT notification_id,
    ROW_NUMBER() OVER (ORDER BY notification_id) AS number FROM {EVENTS_TABLE}) AS log
    WHERE notification_id <> number"""
_KNOWN: Final = f"SELECT DISTINCT originator_id FROM {EVENTS_TABLE} WHERE originator_id = ANY(:names)"
_BACKWARDS: Final = f"""SELECT notification_id, originator_version, originator_id FROM (
    SELECT notification_id, originator_version, originator_id, at,
    LAG(at) OVER (ORDER BY notification_id) AS before FROM {EVENTS_TABLE}) AS log WHERE at < before"""


class Units(Protocol):
    """A store, as the recorder sees it."""

    def reader(self) -> AbstractContextManager[Statements]: ...


class LogRecorder(ApplicationRecorder):
    """What the recorders of both databases share. `units`: opens units of work; None: callers always pass one."""

    notifier: Notifier | None = None
    """Wakes subscriptions; without one they poll."""

    def __init__(self, units: Units | None = None) -> None:
        self._store = units

    def insert_events(self, stored_events: Sequence[Any], **kwargs: Any) -> Sequence[int]:
        """Insert encoded events; return their positions. `unit`: the unit of work in which they were decided. Events
        that holdlog did not encode are refused: they have no digest, and no view would show them."""
        unit = kwargs.get("unit")
        is_allowed = unit is not None
        for event in stored_events:
            is_allowed = is_allowed and isinstance(event, EncodedEvent)
        if not is_allowed:
            raise ProgrammingError("only a unit of work of holdlog inserts events, which it has encoded")
        return self._insert(stored_events, unit)

    def _insert(self, events: Sequence[EncodedEvent], unit: Any) -> Sequence[int]:
        raise NotImplementedError

    # --- the library's reads

    def select_events(  # type: ignore[override]  # a NamedTuple with the library's fields and ours
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
        unit: Statements | None = None,
    ) -> Sequence[EncodedEvent]:
        parameters = {"stream": str(originator_id), "limit": ALL if limit is None else limit}
        bounds = {"gt": 0 if gt is None else gt, "lte": ALL if lte is None else lte}
        with self._unit(unit) as reads:
            return list(map(EncodedEvent._make, reads.rows(_of_stream(desc), {**parameters, **bounds})))

    def select_notifications(  # type: ignore[override]
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
        payload: bool = True,
        unit: Statements | None = None,
    ) -> Sequence[EncodedEvent]:
        """As in the library. `payload` False: without bodies and envelopes, except for the time."""
        first = 0 if start is None else start if inclusive_of_start else start + 1
        bounds = {"first": first, "stop": ALL if stop is None else stop, "limit": limit}
        select = _notifications(bool(topics), payload)
        with self._unit(unit) as reads:
            rows = reads.rows_in(select, topics, bounds) if topics else reads.rows(select, bounds)
        if payload:
            return list(map(EncodedEvent._make, rows))
        return [EncodedEvent._make((*row[:4], b"", row[4], *_NO_ENVELOPE)) for row in rows]

    def max_notification_id(self, unit: Statements | None = None) -> int | None:
        with self._unit(unit) as reads:
            rows = reads.rows(SELECT_LAST, NONE)
        return rows[0][0] if rows else None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> "LogSubscription":
        """Yield the events after the position `gt`, then each new one as it is recorded. Ends when stopped."""
        return LogSubscription(self, gt, topics)

    # --- more reads, within a unit

    def select_versions(self, stream: str, versions: Sequence[int], unit: Statements) -> dict[int, EncodedEvent]:
        """The events of a stream with these versions."""
        rows = unit.rows_in(_SELECT_VERSIONS, versions, {"stream": stream})
        return {event.originator_version: event for event in map(EncodedEvent._make, rows)}

    def containing(self, text: str, within: bool, limit: int, unit: Statements) -> list[Row]:
        """Position, stream, version and topic of events whose payload or reason contains a text, or equals it, in
        order; then whether the payload does, and whether the reason does."""
        return unit.rows(_CONTAINING[within], {"text": text, "limit": limit})

    def remove_text(self, part: Part, event: EncodedEvent, hashed: bytes, unit: PendingStatements) -> None:
        """Remove a part of an event, and its salt; keep its hash."""
        address = {"stream": event.originator_id, "version": event.originator_version}
        unit.later(REMOVE[part], {**address, "hashed": hashed})

    def last_time(self, unit: Statements) -> int:
        """Time of the newest event; 0 if there is none."""
        rows = unit.rows(SELECT_LAST, NONE)
        return rows[0][1] if rows else 0

    def version_at(self, stream: str, position: int | None, at: int | None, unit: Statements) -> int:
        """The version that a stream had at a position, or else at a time; 0 before its first event."""
        column = "at" if position is None else "notification_id"
        bound = position if position is not None else ALL if at is None else at
        return int(unit.rows(_seek(column), {"stream": stream, "bound": bound})[0][0])

    def writes_of(
        self, column: str, names: Sequence[str], since: int, after: int, upto: int, unit: Statements
    ) -> list[Row]:
        """Stream, version and body of events that wrote or deleted a value, at or after a time, between two positions,
        whose column `session` or `correlation_id` has one of these texts."""
        return unit.rows_in(_SELECT_WRITES[column], names, {"since": since, "after": after, "upto": upto})

    def times(self, after: int, limit: int, unit: Statements) -> list[Row]:
        """Position, time and recorded clock of events above a position."""
        return unit.rows(_SELECT_TIMES, {"after": after, "limit": limit})

    def digests(self, after: int, upto: int, unit: Statements) -> list[bytes]:
        """The digests of the events above one position, up to another."""
        return [digest for (digest,) in unit.rows(_SELECT_DIGESTS, {"after": after, "upto": upto})]

    def position_at(self, at: int, unit: Statements) -> int:
        """The last position written at or before a time; 0 before the first event."""
        return int(unit.rows(_SEEK_POSITION, {"bound": at})[0][0])

    def select_last(self, streams: Sequence[str], position: int, unit: Statements) -> list[EncodedEvent]:
        """The last event of each of these streams up to a position."""
        return list(map(EncodedEvent._make, unit.rows_in(_SELECT_LAST_OF, streams, {"bound": position})))

    def select_next(
        self, streams: Sequence[str], position: int, topics: Sequence[str], unit: Statements
    ) -> list[EncodedEvent]:
        """The first event of each of these streams above a position that has one of these topics."""
        return list(map(EncodedEvent._make, unit.rows_in(_select_next(tuple(topics)), streams, {"bound": position})))

    def by_stream(
        self, unit: Statements, after: tuple[str, int] = ("", 0), stop: int = ALL, limit: int = ALL
    ) -> Iterator[Row]:
        """Events up to a position, in order of streams and versions, after one of them. Each row ends with the payload,
        as in `by_position`."""
        return unit.stream(_BY_STREAM, {"stop": stop, "stream": after[0], "version": after[1], "limit": limit})

    def all_by_stream(self, unit: Statements) -> Iterator[Row]:
        """All events, in order of streams and versions."""
        return unit.stream(f"{_LOG} ORDER BY originator_id, originator_version", NONE)

    def all_by_position(self, unit: Statements) -> Iterator[Row]:
        """All events, in the order of the log."""
        return unit.stream(f"{_LOG} ORDER BY notification_id", NONE)

    def restore(self, rows: Sequence[Row], unit: Any) -> None:
        """Insert events of another log, each the fields of `EncodedEvent`, into a store that no process
        uses yet."""
        raise NotImplementedError

    def by_position(self, unit: Statements, after: int = 0, limit: int = ALL) -> Iterator[Row]:
        return unit.stream(_BY_POSITION, {"after": after, "limit": limit})

    def with_previous(self, after: int, upto: int, unit: Statements) -> Iterator[tuple[EncodedEvent, bytes | None]]:
        """The events above one position, up to another, each with the digest of the event before it in its stream; None
        if there is none."""
        for row in unit.stream(_WITH_PREVIOUS, {"after": after, "upto": upto}):
            yield EncodedEvent._make(row[:-1]), row[-1]

    def count(self, unit: Statements) -> int:
        return int(unit.rows(_COUNT, NONE)[0][0])

    def ends(self, unit: Statements) -> tuple[int, int]:
        """First and last position; zeros if the log is empty."""
        first, last = unit.rows(_ENDS, NONE)[0]
        return first or 0, last or 0

    def gap(self, unit: Statements) -> int | None:
        """The first position without an event before the last one; None if there is none."""
        found: int | None = unit.rows(_GAP, NONE)[0][0]
        return found

    def known(self, streams: Sequence[str], unit: Statements) -> set[str]:
        """Those of these streams that have events."""
        return {row[0] for row in unit.rows_in(_KNOWN, streams)}

    def backwards(self, unit: Statements) -> Iterator[Row]:
        """Position, version and stream of events that are earlier than the event before."""
        return unit.stream(_BACKWARDS, NONE)

    def _unit(self, unit: Statements | None) -> AbstractContextManager[Statements]:
        if unit is not None:
            return nullcontext(unit)
        if self._store is None:
            raise ProgrammingError("this recorder has no store; pass a unit")
        return self._store.reader()


class LogSubscription(Subscription[LogRecorder]):
    """Iterates over events as they are recorded. `stop` may be called from any thread."""

    def __init__(self, recorder: LogRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        self._woken = threading.Event()
        self._pulled: Iterator[EncodedEvent] = iter(())
        self._listening = ExitStack()

    def __enter__(self) -> "LogSubscription":
        super().__enter__()
        if self._recorder.notifier is not None:
            self._listening.enter_context(self._recorder.notifier.listen(self._woken.set))
        return self

    def __exit__(self, *args: object, **kwargs: Any) -> None:
        super().__exit__(*args, **kwargs)
        self._listening.close()

    def stop(self) -> None:
        super().stop()
        self._woken.set()

    def __next__(self) -> EncodedEvent:  # type: ignore[override]
        while not self._has_been_stopped:
            event = next(self._pulled, None)
            if event is not None:
                self._last_notification_id = event.id
                return event
            self._woken.clear()
            page = self._recorder.select_notifications(
                self._last_notification_id, PULLED, topics=self._topics, inclusive_of_start=False
            )
            self._pulled = iter(page)
            if not page:
                self._woken.wait(POLL_SECONDS)
        raise StopIteration


@cache
def _of_stream(desc: bool) -> str:
    order = "DESC" if desc else "ASC"
    return (
        f"{_LOG} {_IN_STREAM} AND originator_version > :gt AND originator_version <= :lte"
        f" ORDER BY originator_version {order} LIMIT :limit"
    )


@cache
def _notifications(with_topics: bool, payload: bool) -> str:
    topics = " AND topic = ANY(:names)" if with_topics else ""
    return (
        f"{_LOG if payload else _POSITIONS} WHERE notification_id >= :first AND notification_id <= :stop{topics}"
        " ORDER BY notification_id LIMIT :limit"
    )


@cache
def _seek(column: str, stream: str = ":stream") -> str:
    """Binary search for the last version of a stream whose column, which never decreases, is at most a bound."""
    events = f"FROM {EVENTS_TABLE} WHERE originator_id = {stream}"
    last = f"SELECT originator_version {events} ORDER BY originator_version DESC LIMIT 1"
    return _search(f"EXISTS (SELECT 1 {events} AND originator_version = {_MIDDLE} AND {column} <= :bound)", last)


def _search(fits: str, last: str) -> str:
    """Binary search for the last number, from 1 to `last`, that fits; 0 if none does. `fits`: a condition on
    `_MIDDLE`, which is tested once in each step: the number is in the `size` numbers from `low`."""
    return (
        f"WITH RECURSIVE seek (low, size) AS (SELECT CAST(0 AS BIGINT), COALESCE(({last}), 0) + 1 UNION ALL"
        f" SELECT CASE WHEN {fits} THEN {_MIDDLE} ELSE low END, size - size / 2 FROM seek WHERE size > 1)"
        " SELECT low FROM seek WHERE size = 1"
    )


_MIDDLE: Final = "low + size / 2"
_SEEK_POSITION: Final = _search(
    f"EXISTS (SELECT 1 FROM {EVENTS_TABLE} WHERE notification_id = {_MIDDLE} AND at <= :bound)",
    f"SELECT MAX(notification_id) FROM {EVENTS_TABLE}",
)
# Every stream has a first event: this finds those of these streams that had begun.
_VERSION_AT: Final = _seek("notification_id", "first.originator_id")
_OF_STREAMS: Final = (
    f"SELECT {', '.join(f'event.{name}' for name in ('notification_id', *COLUMNS))} FROM {EVENTS_TABLE} AS first"
    f" JOIN {EVENTS_TABLE} AS event ON event.originator_id = first.originator_id"
)
_AT_START: Final = "WHERE first.originator_id = ANY(:names) AND first.originator_version = 1"
_SELECT_LAST_OF: Final = (
    f"{_OF_STREAMS} AND event.originator_version = ({_VERSION_AT}) {_AT_START} AND first.notification_id <= :bound"
)


@cache
def _select_next(topics: tuple[str, ...]) -> str:
    named = ", ".join(f"'{topic}'" for topic in topics)
    following = (
        f"SELECT later.originator_version FROM {EVENTS_TABLE} AS later WHERE later.originator_id = first.originator_id"
        f" AND later.originator_version > ({_VERSION_AT}) AND later.topic IN ({named})"
        " ORDER BY later.originator_version LIMIT 1"
    )
    return f"{_OF_STREAMS} AND event.originator_version = ({following}) {_AT_START}"
