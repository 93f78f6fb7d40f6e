"""Moments that a caller names: a version of a key, a position in the log, a time; and what a key was then."""

from datetime import UTC, datetime
from typing import NamedTuple

from holdlog.adapters.api.validation import whole
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import Record, seen, state_after
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import microseconds


class NamedMoment(NamedTuple):
    """At most one is set; none: now. `time`: microseconds UTC. `argument`: how errors name it."""

    argument: str
    version: int | None = None
    position: int | None = None
    time: int | None = None

    @property
    def is_now(self) -> bool:
        return self[1:] == (None, None, None)

    def named(self, kind: str) -> str:
        """The name of one of its arguments: `from_position`."""
        return f"{self.argument}_{kind}" if self.argument else kind


class Point(NamedTuple):
    """A position of the log, and its time: microseconds UTC. `expires`: values that were due at this time had expired;
    False: only those whose expiry is recorded up to the position."""

    position: int
    at: int
    expires: bool = True


class Known(NamedTuple):
    """What a key was at a moment. `recorded`: its last event then; None if it had none."""

    record: Record
    recorded: Recorded[Event] | None = None

    @property
    def is_redacted(self) -> bool:
        return self.recorded is not None and self.recorded.redacted


def moment(
    argument: str, version: object = None, position: object = None, time: datetime | str | None = None
) -> NamedMoment:
    """Check a moment. `argument`: what the names of its three arguments begin with; may be empty. Raises
    InvalidError."""
    names = NamedMoment(argument)
    given = {names.named("version"): version, names.named("position"): position, names.named("time"): time}
    if len(several := [name for name, value in given.items() if value is not None]) > 1:
        raise InvalidError(f"{several[1]}: not together with {several[0]}; pass one of them")
    return NamedMoment(
        argument,
        None if version is None else whole(version, names.named("version")),
        None if position is None else whole(position, names.named("position")),
        None if time is None else time_of(time, names.named("time")),
    )


def time_of(given: object, argument: str) -> int:
    """A time in microseconds UTC, from a `datetime` with a time zone or an RFC 3339 text. Raises InvalidError."""
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime) and found.tzinfo is not None:
            return max(0, microseconds(found.astimezone(UTC)))
    except (ValueError, OverflowError):
        pass
    raise InvalidError(f"{argument}: must be a time with its offset, such as 2026-11-23T14:03:00Z")


def point(reader: Reader, moment: NamedMoment) -> Point:
    """Find the position of a moment that is not a version. Raises InvalidError for one that has not happened yet."""
    end = reader.position()
    if moment.position is not None:
        if moment.position > end:
            raise InvalidError(f"{moment.named('position')}: is {moment.position}, but the log ends at position {end}")
        return Point(moment.position, _time_at(reader, moment.position), expires=False)
    if moment.time is None:
        return Point(end, reader.at)
    if moment.time > reader.at:
        raise InvalidError(f"{moment.named('time')}: has not come yet")
    if not end or moment.time < _time_at(reader, 1):
        raise InvalidError(f"{moment.named('time')}: is before the first event")
    low, high = 0, end
    while low < high:  # the last position whose event is not later
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _time_at(reader, middle) <= moment.time else (low, middle - 1)
    return Point(low, moment.time)


def known(reader: Reader, namespace: str, key: str, moment: NamedMoment) -> Known:
    """What a key was at a moment. Raises InvalidError for a version that it does not have."""
    if moment.version is None:
        return known_at(reader, namespace, key, point(reader, moment))
    newest = reader.record(namespace, key).version
    if moment.version > newest:
        raise InvalidError(f"{moment.named('version')}: is {moment.version}, but the key has version {newest} now")
    return _known(reader, namespace, key, moment.version)


def known_at(reader: Reader, namespace: str, key: str, point: Point) -> Known:
    """What a key was at a position."""
    version = reader.version_at(record_stream(namespace, key), point.position, None)
    found = _known(reader, namespace, key, version)
    return found._replace(record=seen(found.record, point.at)) if point.expires else found


def _known(reader: Reader, namespace: str, key: str, version: int) -> Known:
    """What a key was after the event with this version, which alone determines it."""
    if version == 0:
        return Known(Record(namespace, key))
    (recorded,) = reader.history(record_stream(namespace, key), version + 1, 1)
    return Known(state_after(namespace, key, recorded), recorded)


def _time_at(reader: Reader, position: int) -> int:
    """The time of the event at a position, or of the last one before it."""
    if position == 0:
        return 0
    entries = reader.entries(position - 1, 1)
    return entries[0].at if entries else 0
