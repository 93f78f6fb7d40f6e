"""The content of a thread at an earlier version."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.thread import ItemKind, Thread, ThreadDataChanged
from holdlog.domain.value import Json

_CHUNK: Final = 100
"""Events per page."""


def data_at(
    reader: Reader, thread: Thread, version: int, require: Callable[[int, int], None] | None = None
) -> dict[str, Json]:
    """The data of a thread at a version, by key. Reads every change up to it, unless none came after it.
    `require(changes, characters)`: called as the data grows, with the changes read and the characters of JSON so far;
    raises to stop."""
    data: dict[str, Json] = {}
    characters = 0

    def add(key: str, value: Json | None) -> None:
        nonlocal characters
        before = data.pop(key, None)
        characters -= len(before.text) if before is not None else 0
        if value is not None:
            data[key] = value
            characters += len(value.text)

    for changes, (written, deleted) in enumerate(_changes(reader, thread, version), 1):
        for key, value in written.items():
            add(key, value)
        for key in deleted:
            add(key, None)
        if require is not None:
            require(changes, characters)
    return dict(sorted(data.items()))


def _changes(reader: Reader, thread: Thread, version: int) -> Iterator[tuple[dict[str, Json], Sequence[str]]]:
    """The data now, as one change for each page of keys; or the changes up to the version, if others came after it."""
    if version < thread.data_version:
        for change in _events(reader, thread.thread, ("data",), 0, version):
            assert isinstance(change.event, ThreadDataChanged)
            yield change.event.values(), change.event.deleted
        return
    after: str | None = None
    while page := reader.thread_data(thread.thread, None, after, _CHUNK):
        yield {datum.key: datum.value for datum in page}, ()
        after = page[-1].key


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
