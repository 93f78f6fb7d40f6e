"""Retention: how long the payloads of a namespace's former values are kept, and which are due to be removed.

Times of events are those of the log (`at`), which no clock moves back: a value is former from the event that overwrote
or deleted it, or recorded its expiry. How old that event is says the clock of this process: one event that another
clock dated too late must not make all payloads due.
"""

import json
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from pydantic import Field

from holdlog.domain.message import Caller, Command
from holdlog.domain.names import AllowedAgent, Name, record_stream
from holdlog.domain.ports import HistoryEntry, Reader, Transaction
from holdlog.domain.redaction import ranges_of, record
from holdlog.domain.store_log import EventTexts, Part, RetentionChanged, StoreLog

MAX_SECONDS: Final = 100 * 365 * 24 * 60 * 60
EXAMINED: Final = 4_000
"""Events of the log that one transaction examines, because other writers wait meanwhile."""
MAX_CHANGED: Final = 200
"""Events of its namespaces that one transaction handles: each may make one more payload due."""
BY: Final = "holdlog"
"""Who removes payloads that are due."""
DONE: Final = "retention"
"""Metadata of the store: up to which position of the log payloads were removed, by namespace (JSON)."""
_PAGE: Final = 1_000


class ChangeRetention(Command):
    """Keep payloads of the namespace's former values for `seconds`. None: as long as the store."""

    kind: ClassVar[str] = "change_retention"
    namespace: Name
    seconds: int | None = Field(default=None, ge=1, le=MAX_SECONDS)
    by: AllowedAgent


class ApplyRetention(Command):
    """Remove payloads that are due: some of them, because other writers wait meanwhile."""

    kind: ClassVar[str] = "apply_retention"


class RetentionChange(NamedTuple):
    """`changed` False: the namespace had this retention already."""

    changed: bool
    position: int


class RetentionApplied(NamedTuple):
    """`removed`: payloads; `more`: there may be more to remove now. `reached`: up to which position all were removed
    that were due; `position`: the end of the log."""

    removed: int
    more: bool
    reached: int
    position: int


class Former(NamedTuple):
    """First and last version of a key whose payloads are due."""

    stream: str
    first: int
    last: int


class Due(NamedTuple):
    """Payloads that are due, and up to which position of the log this is known, by namespace. `more`: not up to now."""

    former: tuple[Former, ...]
    done: Mapping[str, int]
    more: bool


def decide(command: ChangeRetention, log: StoreLog) -> list[RetentionChanged]:
    """Return no event if nothing changes."""
    if command.seconds == next((it.seconds for it in log.retention if it.namespace == command.namespace), None):
        return []
    return [RetentionChanged(namespace=command.namespace, seconds=command.seconds, by=command.by)]


def due(
    reader: Reader, log: StoreLog, done: Mapping[str, int], examined: int = EXAMINED, most: int = MAX_CHANGED
) -> Due:
    """Find payloads that are due. `done`: what an earlier call returned, whose payloads were removed."""
    former: list[Former] = []
    reached = {it.namespace: done.get(it.namespace, 0) for it in log.retention}
    more = False
    for namespace, seconds in ((it.namespace, it.seconds) for it in log.retention):
        start, until = reached[namespace], reader.position_at(reader.clock - seconds * 1_000_000)
        prefix = record_stream(namespace, "")
        changed: dict[str, None] = {}
        for entry in _entries(reader, start, until):
            if not examined or not most:
                more = True
                break
            examined, reached[namespace] = examined - 1, entry.position
            if entry.stream.startswith(prefix):
                most -= 1
                changed[entry.stream] = None
        for stream in changed:
            first, last = (reader.version_at(stream, position, None) for position in (start, reached[namespace]))
            if last > max(first, 1):
                former.append(Former(stream, max(first, 1), last - 1))
    return Due(tuple(former), {**done, **reached}, more)


def is_due(reader: Reader) -> bool:
    """Whether there is something for ApplyRetention to do."""
    log = reader.store_log()
    found = due(reader, log, _done(reader)) if log.retention else Due((), {}, False)
    return bool(found.former) or found.more


def apply(transaction: Transaction) -> RetentionApplied:
    """Remove payloads that are due, at most `MAX_CHANGED`."""
    log = transaction.store_log()
    found = due(transaction, log, _done(transaction))
    events = {it.stream: _with_payload(transaction, it) for it in found.former}
    ranges: dict[tuple[str, Part], tuple[tuple[int, int], ...]]
    ranges = {(stream, "payload"): ranges_of(of_stream) for stream, of_stream in events.items() if of_stream}
    record(transaction, ranges, BY, Caller(reason="retention"))
    for stream, of_stream in events.items():
        transaction.redact(stream, [it.version for it in of_stream], "payload")
    transaction.put_meta(DONE, json.dumps(dict(found.done)))
    position = transaction.position()
    reached = min((found.done[it.namespace] for it in log.retention), default=position)
    return RetentionApplied(sum(map(len, events.values())), found.more, reached, position)


def _with_payload(reader: Reader, former: Former) -> list[EventTexts]:
    versions = range(former.first, former.last + 1)
    return [it for it in reader.texts(former.stream, versions) if it.payload is not None]


def _done(reader: Reader) -> dict[str, int]:
    found: dict[str, int] = json.loads(reader.meta(DONE) or "{}")
    return found


def _entries(reader: Reader, after: int, until: int) -> Iterator[HistoryEntry]:
    while after < until:
        page = reader.entries(after, min(_PAGE, until - after))
        if not page:
            return
        yield from (it for it in page if it.position <= until)
        after = page[-1].position
