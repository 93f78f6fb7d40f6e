"""Moments that a caller names: a version of a key, a position in the log, a time; and what a key was then."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdlog.adapters.api.changes.responses import PointView
from holdlog.adapters.api.past.requests import PointInTime, as_of, point_in_time
from holdlog.adapters.api.validation import whole
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import Record, seen, state_after
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import microseconds, utc


class NamedMoment(NamedTuple):
    """A version, or an earlier state of the store; neither: now. `argument`: what the names of its arguments begin
    with."""

    argument: str
    version: int | None = None
    point: PointInTime | None = None

    @property
    def is_now(self) -> bool:
        return self.version is None and self.point is None

    def named(self, kind: str) -> str:
        """The name of one of its arguments: `from_position`."""
        return f"{self.argument}_{kind}" if self.argument else kind


class ResolvedMoment(NamedTuple):
    """A resolved moment. `at`: values that were due then had expired (microseconds UTC); 0: only those whose expiry was
    recorded. `begins`: the time of its last event; events after it have that time or a later one."""

    position: int
    at: int
    begins: int
    shown: PointView


class KeyState(NamedTuple):
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
    if version is not None:
        return NamedMoment(argument, whole(version, names.named("version")))
    if position is None and time is None:
        return names
    return NamedMoment(argument, point=point_in_time(position, time, (names.named("position"), names.named("time"))))


def resolved(reader: Reader, moment: NamedMoment) -> ResolvedMoment:
    """Find the position of a moment that is not a version; position 0 is before the first event. Raises InvalidError
    for one that the log does not have."""
    given = moment.point
    if given is None:
        end = reader.position()
        return ResolvedMoment(end, reader.at, reader.at, PointView(position=end, at=utc(reader.at)))
    if given.position == 0:
        return ResolvedMoment(0, 0, 0, PointView(position=0))
    found = as_of(reader, given)
    return ResolvedMoment(found.position, given.at or 0, microseconds(found.at), PointView(**found.__dict__))


def key_at(reader: Reader, namespace: str, key: str, moment: NamedMoment) -> tuple[KeyState, PointView]:
    """What a key was at a moment. Raises InvalidError for a version that it does not have."""
    if moment.version is None:
        point = resolved(reader, moment)
        (found,) = keys_at(reader, namespace, [key], point)
        return found, point.shown.model_copy(update={"version": found.record.version})
    newest = reader.record(namespace, key).version
    if moment.version > newest:
        name = moment.named("version")
        raise InvalidError(f"{name}: is {moment.version}, but the key has version {newest} now")
    if moment.version == 0:
        return KeyState(Record(namespace, key)), PointView(version=0, position=0)
    (recorded,) = reader.history(record_stream(namespace, key), moment.version + 1, 1)
    envelope = recorded.envelope
    shown = PointView(version=envelope.version, position=envelope.position, at=utc(envelope.at))
    return KeyState(state_after(namespace, key, recorded), recorded), shown


def keys_at(reader: Reader, namespace: str, keys: Sequence[str], point: ResolvedMoment) -> list[KeyState]:
    """What keys were at a point, in their order."""
    streams = [record_stream(namespace, key) for key in keys]
    events = {it.envelope.stream: it for it in reader.last_events(streams, point.position)} if point.position else {}
    found = []
    for key, stream in zip(keys, streams, strict=True):
        if (recorded := events.get(stream)) is None:
            found.append(KeyState(Record(namespace, key)))
        else:
            found.append(KeyState(seen(state_after(namespace, key, recorded), point.at), recorded))
    return found
