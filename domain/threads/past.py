"""The content of a thread at an earlier version."""

from collections.abc import Iterator, Sequence
from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.thread import ItemKind, Thread, ThreadDataChanged
from holdlog.domain.value import Json

_CHUNK: Final = 100
"""Events per page."""


def data_at(reader: Reader, thread: Thread, version: int) -> dict[str, Json]:
    """The data of a thread at a version, by key. Reads every change up to it, unless none came after it."""
    if version >= thread.data_version:
        return {datum.key: datum.value for datum in reader.thread_data(thread.thread, None)}
    data: dict[str, Json] = {}
    for change in _events(reader, thread.thread, ("data",), 0, version):
        assert isinstance(change.event, ThreadDataChanged)
        data |= change.event.values()
        for key in change.event.deleted:
            data.pop(key, None)
    return dict(sorted(data.items()))


def items_at(reader: Reader, thread: str, version: int) -> Iterator[Recorded[Event]]:
    """The messages and results of a thread at a version, in order; read lazily."""
    clearings = reader.thread_events(thread, ("clear",), 0, version + 1, 1, newest=True)
    cleared = clearings[0].envelope.version if clearings else 0
    yield from _events(reader, thread, ("message",), 0, cleared)
    yield from _events(reader, thread, ("message", "result"), cleared, version)


def _events(reader: Reader, thread: str, kinds: Sequence[ItemKind], after: int, upto: int) -> Iterator[Recorded[Event]]:
    """The events above one version, up to another; reads a page at a time."""
    while after < upto and (page := reader.thread_events(thread, kinds, after, upto + 1, _CHUNK, newest=False)):
        yield from page
        after = page[-1].envelope.version
