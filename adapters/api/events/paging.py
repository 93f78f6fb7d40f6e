"""Pages of the log: whole commits in order, of which only matching events are read."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice, repeat
from typing import Final, Generic, NamedTuple, TypeVar

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.pagination import MAX_PAGE_BYTES, ROW_BYTES, chunks, event_bytes
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError

COMMIT_EVENTS: Final = 10_000
COMMIT_BYTES: Final = 10 * MAX_PAGE_BYTES
"""Bytes of one commit in a page; a larger commit is split. Without a limit, one response could be as large as the
store."""
SCANNED_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one page may scan; an entry that does not match counts as `ROW_BYTES`. The next page continues after
it."""
READ_AT_ONCE: Final = 32
"""Events in memory at a time before they are converted: with 128 the garbage collector takes a fifth of the time."""

Shown = TypeVar("Shown")


class EventPage(NamedTuple, Generic[Shown]):
    """Matching events, as `show` of `read_page` converted them. `scanned`: every match up to this position is in this
    page or an earlier one. `end`: position of the end of the log."""

    events: list[Shown]
    scanned: int
    end: int


_Scanned = tuple[int, int, Recorded[Event] | None]
"""The position of an event, its time, and the event if it may match. A named tuple takes five times as long to make."""


class _Commit(NamedTuple, Generic[Shown]):
    """The matches in a commit, or in a part of one that is too large for a page. `scanned`: its events; `size`: bytes
    of those that were read; `last`: its last position."""

    found: list[Shown]
    scanned: int
    size: int
    last: int


def read_page(
    reader: Reader, choice: EventFilter, after: int, limit: int, show: Callable[[Recorded[Event]], Shown]
) -> EventPage[Shown]:
    """The first matches above a position: at most `limit` and `MAX_PAGE_BYTES`, but always one whole commit. `show`:
    converts each event as soon as it is read, so that a page keeps few objects. Raises InvalidError for a position
    beyond the end of the log, where a caller would wait forever.
    """
    end = reader.position()
    if after > end:
        raise InvalidError(f"after: is {after}, but the log ends at position {end}; pass that or less")
    taken: list[Shown] = []
    scanned, held, spent = after, 0, 0
    for found, count, size, last in _commits(choice, _scan(reader, choice, after), show):
        if taken and (len(taken) + len(found) > limit or held + size > MAX_PAGE_BYTES):
            break
        taken += found
        scanned, held, spent = last, held + size, spent + size + ROW_BYTES * count
        if len(taken) >= limit or spent > SCANNED_BYTES:
            break
    return EventPage(taken, scanned, max(end, scanned))


def read_part(
    reader: Reader, choice: EventFilter, after: int, upto: int, show: Callable[[Recorded[Event]], Shown]
) -> tuple[list[Shown], int]:
    """The first matches above a position, up to another, and the position up to which they are all. Unlike a page, a
    part may end within a commit. `show`: as for `read_page`."""
    found: list[Shown] = []
    scanned, spent = after, 0
    for position, _, recorded in _scan(reader, choice, after):
        if position > upto:
            break
        scanned = position
        spent += ROW_BYTES if recorded is None else event_bytes(recorded)
        if recorded is not None and choice.fits(recorded):
            found.append(show(recorded))
        if spent > MAX_PAGE_BYTES:
            return found, scanned
    return found, upto


def _scan(reader: Reader, choice: EventFilter, after: int) -> Iterator[_Scanned]:
    """The log above a position, with the content of events that may match. Reads little more than what is consumed."""
    if choice.may_fit_all:
        for recorded in chunks(lambda last, size: reader.log(last or 0, size), after, _position, READ_AT_ONCE):
            envelope = recorded.envelope
            yield envelope.position, envelope.at, recorded
        return
    entries = chunks(lambda last, size: reader.entries(last or 0, size), after, lambda entry: entry.position)
    for fits, run in groupby(entries, lambda entry: choice.may_fit(entry.stream, entry.topic)):
        while part := list(islice(run, READ_AT_ONCE)):
            found = reader.log(part[0].position - 1, len(part)) if fits else repeat(None)
            yield from ((entry.position, entry.at, it) for entry, it in zip(part, found, strict=fits))


def _position(recorded: Recorded[Event]) -> int:
    return recorded.envelope.position


def _commits(
    choice: EventFilter, scanned: Iterable[_Scanned], show: Callable[[Recorded[Event]], Shown]
) -> Iterator[_Commit[Shown]]:
    """Group events into commits: events that became durable together have the same time (domain/envelope.py). So do
    several commits while a clock that was set back catches up; they are not split either, up to `COMMIT_EVENTS`."""
    found: list[Shown] = []
    began, last, count, size = -1, 0, 0, 0
    for position, at, recorded in scanned:
        added = 0 if recorded is None else event_bytes(recorded)
        if at != began or count == COMMIT_EVENTS or (found and size + added > COMMIT_BYTES):
            if count:
                yield _Commit(found, count, size, last)
            found, began, count, size = [], at, 0, 0
        last, count, size = position, count + 1, size + added
        if recorded is not None and choice.fits(recorded):
            found.append(show(recorded))
    if count:
        yield _Commit(found, count, size, last)
