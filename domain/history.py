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
