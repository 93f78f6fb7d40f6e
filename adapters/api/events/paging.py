"""Pages of the log: whole commits in order, of which only matching events are read."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.api.pagination import MAX_PAGE_BYTES, ROW_BYTES, chunks, event_bytes
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import HistoryEntry, Reader
from holdlog.domain.refusals import InvalidError

COMMIT_EVENTS: Final = 10_000
COMMIT_BYTES: Final = 10 * MAX_PAGE_BYTES
"""Bytes of one commit in a page; a larger commit is split. Without a limit, one response could be as large as the
store."""
SCANNED_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one page may scan; an entry that does not match counts as `ROW_BYTES`. The next page continues after
it."""
READ_AT_ONCE: Final = 32


class EventPage(NamedTuple):
    """A page of matching events. `scanned`: every match up to this position is in this page or an earlier one. `end`:
    position of the end of the log."""

    events: list[Recorded[Event]]
    scanned: int
    end: int


def read_page(reader: Reader, choice: EventFilter, after: int, limit: int) -> EventPage:
    """The first matches above a position: at most `limit` and `MAX_PAGE_BYTES`, but always one whole commit.
    Raises InvalidError for a position beyond the end of the log, where a caller would wait forever.
    """
    end = reader.position()
    if after > end:
        raise InvalidError(f"after: is {after}, but the log ends at position {end}; pass that or less")
    taken: list[Recorded[Event]] = []
    scanned, held, spent = after, 0, 0
    entries = chunks(lambda position, size: reader.entries(position or 0, size), after, lambda entry: entry.position)
    for commit in _commits(entries):
        found, size, upto = _chosen(reader, choice, commit)
        if taken and (len(taken) + len(found) > limit or held + size > MAX_PAGE_BYTES):
            break
        taken += found
        scanned, held, spent = upto, held + size, spent + size + ROW_BYTES * len(commit)
        if len(taken) >= limit or spent > SCANNED_BYTES:
            break
    return EventPage(taken, scanned, max(end, scanned))


def _commits(entries: Iterable[HistoryEntry]) -> Iterator[list[HistoryEntry]]:
    """Group entries into commits: events that became durable together have the same time (domain/envelope.py). So do
    several commits while a clock that was set back catches up; they are not split either, up to `COMMIT_EVENTS`."""
    for _, commit in groupby(entries, lambda entry: entry.at):
        gathered: list[HistoryEntry] = []
        for entry in commit:
            gathered.append(entry)
            if len(gathered) == COMMIT_EVENTS:
                yield gathered
                gathered = []
        if gathered:
            yield gathered


def _chosen(reader: Reader, choice: EventFilter, commit: list[HistoryEntry]) -> tuple[list[Recorded[Event]], int, int]:
    """The matches in a commit, their size, and the position up to which it was scanned: its last, unless the commit is
    too large for a page."""
    found: list[Recorded[Event]] = []
    size = 0
    for fits, run in groupby(commit, lambda entry: choice.may_fit(entry.stream, entry.topic)):
        if fits:
            for recorded in _recorded(reader, list(run)):
                size += event_bytes(recorded)
                if found and size > COMMIT_BYTES:
                    return found, size, found[-1].envelope.position
                if choice.fits(recorded):
                    found.append(recorded)
    return found, size, commit[-1].position


def _recorded(reader: Reader, run: list[HistoryEntry]) -> Iterator[Recorded[Event]]:
    """The events of consecutive log entries."""
    for start in range(0, len(run), READ_AT_ONCE):
        part = run[start : start + READ_AT_ONCE]
        yield from reader.log(part[0].position - 1, len(part))
