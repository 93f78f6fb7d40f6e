"""What a thread held at an earlier version."""

from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.thread import ResultAppended, Thread, ThreadDataChanged
from holdlog.domain.value import Json

_CHUNK: Final = 100
"""Changes of data that are in memory at once."""


def data_at(reader: Reader, thread: Thread, version: int) -> dict[str, Json]:
    """The data of a thread at a version, by key. Reads every change up to it, unless none came after."""
    if version >= thread.data_version:
        return {datum.key: datum.value for datum in reader.thread_data(thread.thread, None)}
    data: dict[str, Json] = {}
    after = 0
    while changes := reader.thread_events(thread.thread, ("data",), after, version + 1, _CHUNK, newest=False):
        for change in changes:
            assert isinstance(change.event, ThreadDataChanged)
            data |= change.event.values()
            for key in change.event.deleted:
                data.pop(key, None)
        after = changes[-1].envelope.version
    return dict(sorted(data.items()))


def items_at(reader: Reader, thread: str, version: int, limit: int) -> list[Recorded[Event]]:
    """The messages and results that stood in a thread at a version, in order."""
    clearings = reader.thread_events(thread, ("clear",), 0, version + 1, 1, newest=True)
    cleared = clearings[0].envelope.version if clearings else 0
    found: list[Recorded[Event]] = []
    after = 0
    while page := reader.thread_events(thread, ("message", "result"), after, version + 1, _CHUNK, newest=False):
        found += [it for it in page if it.envelope.version > cleared or not isinstance(it.event, ResultAppended)]
        if len(found) >= limit:
            return found[:limit]
        after = page[-1].envelope.version
    return found
