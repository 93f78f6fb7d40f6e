"""Copy a thread into a new store in memory."""

from collections.abc import Iterator, Sequence
from itertools import islice

from holdlog.adapters.python.state.repository import ThreadRepository
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.commands import (
    MAX_APPENDED,
    MAX_KEYS,
    Append,
    ChangeData,
    NewMessage,
    NewResult,
    StartThread,
    item_of,
)
from holdlog.domain.threads.past import data_at, items_at
from holdlog.domain.threads.thread import require_started
from holdlog.domain.value import Json

Item = NewMessage | NewResult


def cloned(repository: ThreadRepository, name: str, by: str) -> ThreadRepository:
    """Copy one snapshot of a thread into a new store in memory."""

    def read(reader: Reader) -> tuple[dict[str, Json], list[Recorded[Event]]]:
        thread = reader.thread(name)
        require_started(thread)
        return data_at(reader, thread, thread.version), list(items_at(reader, name, thread.version))

    data, items = repository.read(read)
    copy = ThreadRepository(None)
    copy.run(lambda: StartThread(thread=name, by=by))
    keys = iter(data.items())
    while part := dict(islice(keys, MAX_KEYS)):
        copy.run(lambda part=part: ChangeData(thread=name, written=part, by=by))  # type: ignore[misc]
    append_all(copy, name, [item_of(it.event) for it in items if not it.redacted], by)
    return copy


def append_all(repository: ThreadRepository, name: str, items: Sequence[Item], by: str) -> None:
    for part in in_parts(items):
        repository.run(lambda part=part: Append(thread=name, items=part, by=by))  # type: ignore[misc]


def in_parts(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Split items into batches that each fit one command."""
    for begin in range(0, len(items), MAX_APPENDED):
        yield tuple(items[begin : begin + MAX_APPENDED])
