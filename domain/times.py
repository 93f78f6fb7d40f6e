"""Times: microseconds since 1970 UTC inside, `datetime` where people and programs read them."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def utc(at: int) -> datetime:
    """The time of `at` microseconds, exact."""
    return _EPOCH + timedelta(microseconds=at)


def microseconds(time: datetime) -> int:
    """Microseconds since 1970 UTC of a time with a time zone, exact: the inverse of `utc`."""
    return (time - _EPOCH) // timedelta(microseconds=1)
