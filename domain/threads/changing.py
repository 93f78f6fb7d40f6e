"""Run a command on a thread: load what the decision needs, decide, append."""

from typing import Final

from holdlog.domain.claims.lease import Who
from holdlog.domain.envelope import Basis
from holdlog.domain.message import Caller
from holdlog.domain.ports import Change, Transaction
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads import deciding, thread
from holdlog.domain.threads.commands import (
    MAX_COPIED,
    MAX_COPIED_CHARACTERS,
    MAX_REPLAYED,
    Append,
    ChangeData,
    ForkThread,
    NewMessage,
    NewResult,
    ReplaceResults,
    ThreadChanged,
    ThreadCommand,
    item_of,
)
from holdlog.domain.threads.deciding import Copy, DecisionContext
from holdlog.domain.threads.past import data_at, items_at
from holdlog.domain.threads.thread import Thread, ThreadDataChanged
from holdlog.domain.value import REDACTED

MAX_DETAILS: Final = 100
"""Keys that a conflict lists."""


def named(command: ThreadCommand) -> list[str]:
    """The threads whose states decide the command."""
    return [command.thread, command.parent] if isinstance(command, ForkThread) else [command.thread]


def checksums_of(command: ThreadCommand) -> tuple[str, ...]:
    """The checksums of the results that it appends unless they exist."""
    if not isinstance(command, Append):
        return ()
    return tuple(item.checksum for item in command.items if isinstance(item, NewResult))


def change_thread(command: ThreadCommand, caller: Caller, transaction: Transaction) -> ThreadChanged:
    before = after = transaction.thread(command.thread)
    copy = None
    if isinstance(command, ForkThread) and not before.version:
        command, copy = _copied(command, transaction)
    events = deciding.decide(command, before, _decision_context(command, before, transaction), copy)
    basis, changes = _basis(command), list[Change]()
    for event in events:
        last, after = after, thread.evolve(after, event, transaction.at, caller.principal)
        changes.append(Change(last, event, after, basis))
    position = transaction.append(changes, caller)[-1] if changes else transaction.position()
    transaction.leases.record_call(Who(command.by, caller.principal, caller.session), caller.server, transaction.steady)
    appended = sum(thread.kind_of(event) in ("message", "result") for event in events)
    changed = next((event for event in events if isinstance(event, ThreadDataChanged)), None)
    return ThreadChanged(
        after.thread,
        after.version,
        after.data_version,
        position,
        created=not before.version,
        appended=appended,
        already=len(command.items) - appended if isinstance(command, Append) else 0,
        deleted=changed.deleted if changed is not None else (),
        checksums=checksums_of(command),
        messages=after.messages,
        results=after.results,
        parent=after.parent,
        parent_version=after.parent_version,
    )


def _basis(command: ThreadCommand) -> Basis | None:
    if isinstance(command, ChangeData) and command.expected_data_version is not None:
        return Basis(based_on=command.expected_data_version)
    return None


def _decision_context(command: ThreadCommand, before: Thread, transaction: Transaction) -> DecisionContext:
    match command:
        case Append(thread=name):
            wanted = checksums_of(command)
            return DecisionContext(transaction.checksums(name, before.cleared, wanted) if wanted else ())
        case ReplaceResults(thread=name, results=results):
            fewer = before.results <= len(results)  # otherwise the new results cannot begin with the existing ones
            return DecisionContext(transaction.checksums(name, before.cleared, None) if fewer else ())
        case ChangeData(thread=name, deleted=deleted, expected_data_version=expected):
            if expected is not None and expected != before.data_version:
                return DecisionContext(changed=transaction.changed_keys(name, expected, MAX_DETAILS))
            return DecisionContext(
                keys=[datum.key for datum in transaction.thread_data(name, deleted)] if deleted else ()
            )
        case _:
            return DecisionContext()


def _copied(command: ForkThread, transaction: Transaction) -> tuple[ForkThread, Copy]:
    parent = transaction.thread(command.parent)
    thread.require_started(parent)
    version = command.parent_version or parent.version
    if version > parent.version:
        raise InvalidError(f"parent_version: the parent ends at version {parent.version}; pass that or less")
    command = command.model_copy(update={"parent_version": version})
    if version == parent.version:
        _require_copyable(0, 0, parent.messages + parent.results)
    data = data_at(transaction, parent, version, _require_copyable)
    data = {key: value for key, value in data.items() if value is not REDACTED}  # no copy would record why
    items: list[NewMessage | NewResult] = []
    characters = sum(len(value.text) for value in data.values())
    for item in items_at(transaction, parent.thread, version):
        if item.redacted:
            continue  # its copy would be unreadable, with no record of why
        items.append(item_of(item.event))
        characters += len(items[-1].value.text)
        _require_copyable(0, characters, len(items))
    return command, Copy(data, items)


def _require_copyable(changes: int, characters: int, items: int = 0) -> None:
    """Refuse a fork as soon as its parent is known to be too large: all other writers wait while it is read."""
    if changes > MAX_REPLAYED:
        raise InvalidError(
            f"parent_version: more than {MAX_REPLAYED} changes of data lead to it; fork the parent as it is now"
        )
    if items > MAX_COPIED:
        raise InvalidError(f"parent: has more than {MAX_COPIED} messages and results; a fork copies at most that many")
    if characters > MAX_COPIED_CHARACTERS:
        raise InvalidError(f"parent: has more than {MAX_COPIED_CHARACTERS} characters; a fork copies at most that many")
