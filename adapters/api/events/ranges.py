"""The part of the log from one moment to another."""

from typing import NamedTuple

from holdlog.adapters.api.past.requests import PointInTime, as_of, require_past
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError


class LogRange(NamedTuple):
    """The events above one position, up to another."""

    after: int
    upto: int


class Window(NamedTuple):
    """A span of time: microseconds UTC, both ends included; None: from the first event, or to the present."""

    since: int | None
    until: int | None

    def includes(self, began: int, ended: int | None) -> bool:
        """Whether something happened in part within the window; `ended` None: it has not ended."""
        return (self.until is None or began <= self.until) and (
            self.since is None or ended is None or ended >= self.since
        )


def range_of(reader: Reader, first: PointInTime | None, last: PointInTime | None) -> LogRange:
    """The events from one moment to another, with those of both; None: from the first event, to the last. Raises
    InvalidError for a moment that the log does not have, and for a range that ends before it begins."""
    upto = reader.position() if last is None else (last.as_of or as_of(reader, last)).position
    if first is None:
        return LogRange(0, upto)
    if first.at is None:
        after = as_of(reader, first).position - 1
    else:
        require_past(reader, first.at, first.names[1])
        after = reader.position_at(first.at - 1)
    if last is None:
        return LogRange(after, upto)
    if after >= upto if first.at is None or last.at is None else first.at > last.at:
        raise InvalidError(f"{last.names[0]}: is earlier than {first.names[0]}; swap the two")
    return LogRange(after, upto)


def window_of(reader: Reader, found: LogRange, first: PointInTime | None, last: PointInTime | None) -> Window:
    """The times of a range. `first`, `last`: the moments that it was made of; without `first`, it begins after
    the event below it."""
    since = _time(reader, found.after + (first is not None)) if first is None or first.at is None else first.at
    until = None if last is None else _time(reader, found.upto) if last.at is None else last.at
    return Window(since, until)


def _time(reader: Reader, position: int) -> int | None:
    """The time of an event (microseconds UTC); None before the first one, now after the last one."""
    if not position:
        return None
    found = reader.times(position - 1, 1)
    return found[0].at if found else reader.at
