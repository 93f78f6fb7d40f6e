"""One function runs a command: load, decide, append. The writer around it gives the transaction and rings the bell."""

import hashlib
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from holdlog.domain import claim, record
from holdlog.domain.claim import Board, Let, Release, Take, Taken
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import ClaimChange, RecordChange, Transaction
from holdlog.domain.record import ClearNamespace, Delete, Operation, Record, Transact, Written
from holdlog.domain.refusals import ConflictError, InvalidError

Command = Transact | ClearNamespace | Take | Release


class Changed(NamedTuple):
    """The outcome of a change of records: what each operation did, and the position of the last event."""

    results: tuple[Written, ...]
    position: int


Outcome = Changed | Taken | Let

_OUTCOMES: Final[dict[type[Command], TypeAdapter[Any]]] = {
    Transact: TypeAdapter(Changed),
    ClearNamespace: TypeAdapter(Changed),
    Take: TypeAdapter(Taken),
    Release: TypeAdapter(Let),
}
"""What each command comes to, for outcomes that are remembered as JSON."""


def handle(command: Command, caller: Caller, transaction: Transaction) -> Outcome:
    """Decide the command against what the transaction sees, and append the events. Raises refusals: nothing happened.

    With a `request_id` that was used before, answers as then; another command under the same id is refused.
    """
    if caller.request_id is None:
        return _decide(command, caller, transaction)
    kind = _OUTCOMES[type(command)]
    fingerprint = hashlib.sha256(f"{type(command).__name__}{command.model_dump_json()}".encode()).digest()
    earlier = transaction.repeated(caller)
    if earlier is not None:
        if earlier[0] != fingerprint:
            raise InvalidError("request_id: was used for another request")
        remembered: Outcome = kind.validate_json(earlier[1])
        return remembered
    outcome = _decide(command, caller, transaction)
    transaction.remember(caller, fingerprint, kind.dump_json(outcome).decode())
    return outcome


def _decide(command: Command, caller: Caller, transaction: Transaction) -> Outcome:
    match command:
        case Transact(operations=operations, by=by):
            return _change_records(operations, by, caller, transaction)
        case ClearNamespace(namespace=namespace, by=by):
            live = transaction.records(namespace, prefix="", after=None, limit=-1, deleted=False)
            operations = tuple(Delete(namespace=namespace, key=found.key) for found in live)
            return _change_records(operations, by, caller, transaction)
        case Take():
            return _take(command, caller, transaction)
        case Release():
            return _release(command, caller, transaction)


def _change_records(operations: tuple[Operation, ...], by: str, caller: Caller, transaction: Transaction) -> Changed:
    records: dict[tuple[str, str], Record] = {}
    changes: list[RecordChange] = []
    results: list[Written] = []
    for index, operation in enumerate(operations):
        place = (operation.namespace, operation.key)
        before = records.get(place) or transaction.record(*place)
        after = before
        try:
            events = record.decide(operation, by, before, transaction.at)
        except ConflictError as conflict:
            conflict.operation = index
            raise
        for event in events:
            changes.append(RecordChange(after, event))
            after = record.evolve(after, event, transaction.at, before.digest)
        records[place] = after
        standing = record.seen(before, transaction.at)
        results.append(
            Written(
                namespace=before.namespace,
                key=before.key,
                version=after.version,
                previous_version=standing.version if standing.live else None,
            )
        )
    position = transaction.append(changes, caller) if changes else transaction.position()
    return Changed(results=tuple(results), position=position)


def expire_values(transaction: Transaction, limit: int) -> bool:
    """Notice the ends of the values that were due first, as many as `limit`. False: none was due."""
    ends = [(due, record.end_of(due, transaction.at)) for due in transaction.due_records(limit)]
    changes = [RecordChange(due, end) for due, end in ends if end is not None]
    if changes:
        transaction.append(changes, NOBODY)
    return bool(changes)


def _take(command: Take, caller: Caller, transaction: Transaction) -> Taken:
    before = transaction.claim(command.resource)
    events = claim.decide(command, Board(before))
    if not events:
        return Taken(
            resource=before.resource, version=before.granted, position=None, claimed_at=before.claimed_at, already=True
        )
    position = transaction.append([ClaimChange(before, event) for event in events], caller)
    return Taken(
        resource=before.resource,
        version=before.version + 1,
        position=position,
        claimed_at=transaction.at,
        already=False,
    )


def _release(command: Release, caller: Caller, transaction: Transaction) -> Let:
    before = transaction.claim(command.resource)
    events = claim.decide(command, Board(before))
    if events:
        transaction.append([ClaimChange(before, event) for event in events], caller)
    return Let(resource=before.resource, version=before.version + len(events), already=not events)
