"""Short ways to say commands of threads, and what a thread holds by its events alone."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.threads.commands import (
    Append,
    ChangeData,
    ForkThread,
    NewMessage,
    NewResult,
    ReplaceResults,
    StartThread,
)
from holdlog.domain.threads.thread import (
    KINDS,
    ItemKind,
    MessageAppended,
    ResultAppended,
    ResultsCleared,
    ThreadDataChanged,
)
from holdlog.domain.value import Json


def checksum(name: str) -> str:
    return hashlib.md5(name.encode()).hexdigest()


def message(text: Any) -> NewMessage:
    return NewMessage(value=Json.of(text))


def result(name: str, agent: str = "writer") -> NewResult:
    """The name is its output, and gives its checksum."""
    return NewResult(value=Json.of(name), agent=agent, checksum=checksum(name))


def results(names: str) -> tuple[NewResult, ...]:
    """One for each letter."""
    return tuple(map(result, names))


def start(thread: str = "t", by: str = "ann", **data: Any) -> StartThread:
    return StartThread(thread=thread, data={key: Json.of(value) for key, value in data.items()}, by=by)


def append(*items: NewMessage | NewResult, thread: str = "t", by: str = "ann") -> Append:
    return Append(thread=thread, items=items, by=by)


def replace(*items: NewResult, thread: str = "t", by: str = "ann") -> ReplaceResults:
    return ReplaceResults(thread=thread, results=items, by=by)


def change_data(
    expected: int | None = None, *deleted: str, thread: str = "t", by: str = "ann", **written: Any
) -> ChangeData:
    values = {key: Json.of(value) for key, value in written.items()}
    return ChangeData(thread=thread, written=values, deleted=deleted, expected_data_version=expected, by=by)


def fork(thread: str, parent: str = "t", version: int | None = None, by: str = "ann") -> ForkThread:
    return ForkThread(thread=thread, parent=parent, parent_version=version, by=by)


class Holds(NamedTuple):
    """What a thread holds. `items`: messages as `m:…` and results as `r:…`, in order."""

    data: dict[str, Any]
    items: list[str]


def item(event: Event) -> str:
    assert isinstance(event, MessageAppended | ResultAppended)
    return f"{'m' if isinstance(event, MessageAppended) else 'r'}:{event.value.value}"


def held(events: Sequence[Recorded[Event]]) -> Holds:
    """By its events, one after the other."""
    holds = Holds({}, [])
    for event in (it.event for it in events):
        match event:
            case MessageAppended() | ResultAppended():
                holds.items.append(item(event))
            case ResultsCleared():
                holds.items[:] = [it for it in holds.items if it.startswith("m:")]
            case ThreadDataChanged(deleted=deleted):
                holds.data.update({key: value.value for key, value in event.values().items()})
                for key in deleted:
                    del holds.data[key]
    return holds


_KIND_OF: dict[str, ItemKind] = {
    "MessageAppended": "message",
    "ResultAppended": "result",
    "ResultsCleared": "clear",
    "ThreadDataChanged": "data",
}


def require_a_reader_finds(reader: Reader, thread: str, events: Sequence[Recorded[Event]]) -> None:
    """All that can be asked about a thread comes from its events, which are these."""
    kinds = {it.envelope.version: _KIND_OF.get(it.envelope.topic) for it in events}
    for kind in KINDS:
        of_kind = [it for it in events if kinds[it.envelope.version] == kind]
        assert reader.thread_events(thread, (kind,), 0, None, -1, newest=False) == of_kind
    assert reader.thread_events(thread, KINDS, 0, None, -1, newest=True) == events[:0:-1]
    now = held(events)
    data = reader.thread_data(thread, None)
    assert [it.key for it in data] == sorted(now.data)
    assert {it.key: it.value.value for it in data} == now.data
    found = reader.thread(thread)
    standing = [it for it in now.items if it.startswith("r:")]
    assert len(reader.checksums(thread, found.cleared, None)) == found.results == len(standing)
    assert found.messages == len(now.items) - len(standing)
    changed = [it for it in events if isinstance(it.event, ThreadDataChanged)]
    assert found.data_version == (changed[-1].envelope.version if changed else 0)
    keys = {key for it in changed for key in (*it.event.written, *it.event.deleted)}  # type: ignore[attr-defined]
    assert reader.changed_keys(thread, 0, -1) == sorted(keys)
    for key in keys:
        of_key = [it for it in changed if key in (*it.event.written, *it.event.deleted)]  # type: ignore[attr-defined]
        assert reader.thread_events(thread, ("data",), 0, None, -1, newest=False, key=key) == of_key
        last = of_key[-1]
        live = key in now.data
        assert [it.version for it in reader.thread_data(thread, [key])] == [last.envelope.version] * live
