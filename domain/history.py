"""Reads the events of a stream on demand."""

from collections.abc import Iterator
from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader

FIRST: Final = 8
LARGEST: Final = 128
"""Events that are read at once: few at first, because values may be large, then twice as many each time."""


def newest_first(
    reader: Reader, stream: str, before: int | None = None, *, first: int = FIRST, largest: int = LARGEST
) -> Iterator[Recorded[Event]]:
    """The events of a stream, newest first, below a version. Reads little more than what is consumed."""
    size = first
    while True:
        found = reader.history(stream, before, size)
        yield from found
        if len(found) < size:
            return
        before, size = found[-1].envelope.version, min(2 * size, largest)


def oldest_first(reader: Reader, stream: str, after: int = 0, *, size: int = 500) -> Iterator[Recorded[Event]]:
    """The events of a stream above a version. `size`: how many are read at once."""
    while page := reader.following(stream, after, size):
        yield from page
        after = page[-1].envelope.version


def of_topics(
    reader: Reader, topics: tuple[str, ...], after: int, upto: int, *, size: int = 1_000
) -> Iterator[Recorded[Event]]:
    """The events of the log with these topics above one position, up to another. `size`: how many are read at once."""
    while page := reader.log_of(topics, after, upto, size):
        yield from page
        after = page[-1].envelope.position
