"""Decide what a command does to a thread, from its current state."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdlog.domain.refusals import DataConflictDetail, DataConflictError, InvalidError
from holdlog.domain.threads.commands import (
    Append,
    ChangeData,
    ForkThread,
    NewMessage,
    NewResult,
    ReplaceResults,
    StartThread,
    ThreadCommand,
)
from holdlog.domain.threads.thread import (
    MessageAppended,
    ResultAppended,
    ResultsCleared,
    Thread,
    ThreadDataChanged,
    ThreadEvent,
    ThreadStarted,
    require_started,
)
from holdlog.domain.value import Json, joined


class DecisionContext(NamedTuple):
    """What a decision needs in addition to the thread. `checksums`: of the relevant results that exist, in order.
    `keys`: those to delete that have a value. `changed`: data keys that changed since the expected version."""

    checksums: Sequence[str] = ()
    keys: Collection[str] = ()
    changed: Sequence[str] = ()


class Copy(NamedTuple):
    """The content of a thread at a version. `items`: its messages and results, in order."""

    data: Mapping[str, Json]
    items: Sequence[NewMessage | NewResult]


def decide(
    command: ThreadCommand, thread: Thread, context: DecisionContext, copy: Copy | None = None
) -> list[ThreadEvent]:
    """Return no event if nothing is new. `copy`: for a fork. Raises NotFoundError, InvalidError, DataConflictError."""
    by = command.by
    match command:
        case StartThread(data=data, items=items):
            if thread.version:
                return []
            return [ThreadStarted(by=by), *_changed(data, (), by), *(_appended(item, by) for item in _new(items, ()))]
        case ForkThread(parent=parent, parent_version=version):
            if thread.version:
                raise InvalidError("thread_id: this thread already exists; fork to another thread_id")
            assert copy is not None
            begun = ThreadStarted(by=by, parent=parent, parent_version=version)
            return [begun, *_changed(copy.data, (), by), *(_appended(item, by) for item in copy.items)]
        case Append(items=items):
            require_started(thread)
            return [_appended(item, by) for item in _new(items, context.checksums)]
        case ReplaceResults(results=results):
            require_started(thread)
            return _replaced(results, thread.results, context.checksums, by)
        case ChangeData(written=written, deleted=deleted, expected_data_version=expected):
            require_started(thread)
            _require_data_version(expected, thread, context)
            return _changed(written, [key for key in dict.fromkeys(deleted) if key in context.keys], by)


def _require_data_version(expected: int | None, thread: Thread, context: DecisionContext) -> None:
    if expected is None or expected == thread.data_version:
        return
    raise DataConflictError(
        DataConflictDetail(
            thread_id=thread.thread,
            expected_data_version=expected,
            actual_data_version=thread.data_version,
            changed_keys=tuple(context.changed),
        )
    )


def _replaced(results: Sequence[NewResult], kept: int, current: Sequence[str], by: str) -> list[ThreadEvent]:
    """Keep the existing results, of which there are `kept`, if the new ones begin with them; otherwise clear them
    first. `current`: their checksums; may be empty if they are more than the new ones."""
    wanted = {it.checksum: it for it in reversed(results)}
    ordered = [wanted[checksum] for checksum in dict.fromkeys(it.checksum for it in results)]
    if kept <= len(ordered) and [it.checksum for it in ordered[:kept]] == list(current):
        return [_appended(item, by) for item in ordered[kept:]]
    return [ResultsCleared(by=by), *(_appended(item, by) for item in ordered)]


def _changed(written: Mapping[str, Json], deleted: Sequence[str], by: str) -> list[ThreadEvent]:
    if not written and not deleted:
        return []
    return [ThreadDataChanged(value=joined(written), written=tuple(written), deleted=tuple(deleted), by=by)]


def _appended(item: NewMessage | NewResult, by: str) -> ThreadEvent:
    if isinstance(item, NewMessage):
        return MessageAppended(value=item.value, by=by)
    return ResultAppended(value=item.value, agent=item.agent, checksum=item.checksum, by=by)


def _new(items: Sequence[NewMessage | NewResult], current: Sequence[str]) -> list[NewMessage | NewResult]:
    """The items without results that already exist or come earlier in the list."""
    known = set(current)
    found: list[NewMessage | NewResult] = []
    for item in items:
        if isinstance(item, NewResult):
            if item.checksum in known:
                continue
            known.add(item.checksum)
        found.append(item)
    return found
