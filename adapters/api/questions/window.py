"""The time between two moments, from which questions are answered."""

from typing import NamedTuple

from holdlog.adapters.api.past.requests import PointInTime, as_of
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError
from holdlog.domain.times import microseconds


class Window(NamedTuple):
    """Microseconds UTC, both included; None: from the first event, to the last one."""

    since: int | None
    until: int | None

    @classmethod
    def of(cls, reader: Reader, since: PointInTime | None, until: PointInTime | None) -> "Window":
        """Raises InvalidError for a position that the log does not have, and for an end before the beginning."""
        window = cls(_time(reader, since), _time(reader, until))
        if since is not None and until is not None and (window.since or 0) > (window.until or 0):
            raise InvalidError(f"{until.names[0]}: is earlier than the beginning; swap the two")
        return window

    def includes(self, began: int, ended: int | None) -> bool:
        """Whether something overlaps the time; `ended` None: it has not ended."""
        return (self.until is None or began <= self.until) and (
            self.since is None or ended is None or ended >= self.since
        )


def _time(reader: Reader, point: PointInTime | None) -> int | None:
    if point is None or point.at is not None:
        return None if point is None else point.at
    return microseconds(as_of(reader, point).at)
