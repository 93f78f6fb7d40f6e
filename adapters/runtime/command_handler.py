"""One function runs a command: load, decide, append. The group commit provides the transaction and notifies."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from holdlog.domain import agent, record, redaction, retention, revert, store_log, token
from holdlog.domain.agent import Profile, Register, RegisterOutcome
from holdlog.domain.claims import fencing
from holdlog.domain.claims.acquire import Claimant, acquire
from holdlog.domain.claims.board_storage import MAX_DUE, count_held, end_due_leases, load_board_to_write, save
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.claims.commands import (
    AcquireClaim,
    ClaimAcquired,
    CollectLostClaims,
    EndSession,
    LostClaims,
    Queued,
    RecordFileChange,
    ReleaseClaim,
    ReleaseOutcome,
    Renew,
    StopWaiting,
    Sweep,
    SweepOutcome,
    TouchSessions,
)
from holdlog.domain.claims.draft import BoardDraft
from holdlog.domain.claims.lease import Who
from holdlog.domain.claims.release import release, stop_waiting
from holdlog.domain.commands import AnyCommand, Outcome, RecordsChanged
from holdlog.domain.envelope import Basis, CheckedClaim
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Change, Prefetch, Transaction
from holdlog.domain.record import (
    ClearNamespace,
    Delete,
    FencingCondition,
    Operation,
    Transact,
    ValueExpired,
    Written,
)
from holdlog.domain.redaction import Redact
from holdlog.domain.refusals import ConflictError, ExpiredError, FencedError, HoldlogError, NotFoundError, ReusedError
from holdlog.domain.retention import ApplyRetention, ChangeRetention, RetentionChange
from holdlog.domain.revert import Revert, Reverted
from holdlog.domain.threads.changing import change_thread, checksums_of, named
from holdlog.domain.threads.commands import (
    Append,
    ChangeData,
    ForkThread,
    ReplaceResults,
    StartThread,
    ThreadChanged,
    ThreadCommand,
)
from holdlog.domain.token import IssueToken, RevokeToken, RotateToken, TokenChanged, TokenCommand
from holdlog.domain.updates import Work


class Repeatable(NamedTuple):
    """A command whose outcome is stored under its request id.
    `stored_name`: part of the request's fingerprint; it never changes. `outcome`: converts the outcome to and from
    JSON.
    """

    stored_name: str
    outcome: TypeAdapter[Any]


_CHANGED, _THREAD_CHANGED = TypeAdapter(RecordsChanged), TypeAdapter(ThreadChanged)
_REPEATABLE: Final[dict[type[AnyCommand], Repeatable]] = {
    Transact: Repeatable("Transact", _CHANGED),
    ClearNamespace: Repeatable("ClearNamespace", _CHANGED),
    Revert: Repeatable("Revert", TypeAdapter(Reverted)),
    AcquireClaim: Repeatable("Take", TypeAdapter(ClaimAcquired)),
    ReleaseClaim: Repeatable("Release", TypeAdapter(ReleaseOutcome)),
    Register: Repeatable("Register", TypeAdapter(RegisterOutcome)),
    StartThread: Repeatable("StartThread", _THREAD_CHANGED),
    ForkThread: Repeatable("ForkThread", _THREAD_CHANGED),
    Append: Repeatable("Append", _THREAD_CHANGED),
    ReplaceResults: Repeatable("ReplaceResults", _THREAD_CHANGED),
    ChangeData: Repeatable("ChangeData", _THREAD_CHANGED),
}

_NOT_IN_DIGEST: Final = {"wait", "most", "receipt", "new_receipt", "numbered", "computed"}
"""Fields that do not distinguish requests: the final attempt of a queued claim has `wait` 0, `most` is a setting,
receipts identify the caller, `numbered` is about refusals, and a `computed` request has a digest."""


def prefetch(commands: Iterable[AnyCommand]) -> Prefetch:
    """List the rows that the commands are known to read, so that a store can fetch them at once."""
    records: dict[tuple[str, str], None] = {}
    agents: dict[str, None] = {}
    threads: dict[str, None] = {}
    results: dict[tuple[str, str], None] = {}
    for command in commands:
        if isinstance(command, Transact):
            records |= {(operation.namespace, operation.key): None for operation in command.operations}
            agents[command.by] = None
        elif isinstance(command, Revert):
            records |= {(block.namespace, block.key): None for block in command.blocks}
        elif isinstance(command, ThreadCommand):
            threads |= dict.fromkeys(named(command))
            results |= {(command.thread, checksum): None for checksum in checksums_of(command)}
            agents[command.by] = None
    return Prefetch(list(records), list(agents), list(threads), list(results))


def handle(command: AnyCommand, caller: Caller, transaction: Transaction) -> Outcome:
    """Decide the command on the state in the transaction, and append the events. A raised refusal means nothing was
    written.
    A repeated `request_id` returns the first outcome; raises ReusedError if that id belongs to a different command.
    """
    if caller.request_id is None:
        return _decide(command, caller, transaction)
    repeatable = _REPEATABLE.get(type(command))
    scope = _scope(command, caller)
    if repeatable is None or scope is None:
        return _decide(command, caller, transaction)
    digest = fingerprint(command)
    earlier = transaction.repeated(caller, scope)
    if earlier is not None:
        if earlier[0] != digest:
            raise ReusedError("request_id: was already used for a different request; choose a new one")
        remembered: Outcome = repeatable.outcome.validate_json(earlier[1])
        return (
            _still_held(remembered, command, caller, transaction)
            if isinstance(remembered, ClaimAcquired)
            else remembered
        )
    outcome = _decide(command, caller, transaction)
    if isinstance(outcome, Queued):
        return outcome  # not remembered: a repeat of this call may succeed
    transaction.remember(caller, digest, repeatable.outcome.dump_json(outcome).decode(), scope)
    return outcome


def fingerprint(command: AnyCommand) -> bytes:
    """Hash that identifies a repeated request. Stored for 24 hours."""
    content = getattr(command, "request_digest", None) or command.model_dump_json(exclude=_NOT_IN_DIGEST, by_alias=True)
    receipt = (command.receipt or "") if isinstance(command, ReleaseClaim) else ""  # decides whose claims are released
    return hashlib.sha256(f"{_REPEATABLE[type(command)].stored_name}{content}{receipt}".encode()).digest()


def _scope(command: AnyCommand, caller: Caller) -> str | None:
    """Scope in which a request id is unique within the principal: the session for claims, otherwise "". None for a
    claim without a session: such callers cannot be distinguished, so the outcome is not remembered."""
    return caller.session if isinstance(command, AcquireClaim | ReleaseClaim) else ""


def _still_held(outcome: ClaimAcquired, command: AnyCommand, caller: Caller, transaction: Transaction) -> ClaimAcquired:
    """Return the outcome of a repeated claim with the remaining lease. Raises ExpiredError if the caller no longer
    holds it."""
    assert isinstance(command, AcquireClaim)
    who = _identified(command.agent, caller, command.receipt, transaction)
    grants = ((outcome.resource, outcome.version), *outcome.also)
    board = load_board_to_write(transaction, [resource for resource, _ in grants])
    leases = [board.lease(resource, version) for resource, version in grants]
    if not all(lease is not None and lease.is_of(who) for lease in leases):
        grant = next((hold.grant for hold in board.holds(outcome.resource)), None)
        held_by, principal = (grant.agent, grant.principal) if grant is not None else (None, None)
        raise ExpiredError(outcome.resource, held_by, replayed=True, held_by_principal=principal)
    transaction.leases.record_call(who, caller.server, transaction.steady)
    left = min(lease.deadline for lease in leases if lease is not None) - transaction.steady
    return outcome._replace(expires_in=left, at=transaction.at)


def _decide(command: AnyCommand, caller: Caller, transaction: Transaction) -> Outcome:
    match command:
        case Transact(operations=operations, by=by, guard=guard, numbered=numbered):
            return _change_records(operations, by, caller, transaction, guard, numbered=numbered)
        case ClearNamespace(namespace=namespace, by=by):
            live = transaction.records(namespace, prefix="", after=None, limit=-1, deleted=False)
            operations = tuple(Delete(namespace=namespace, key=found.key) for found in live)
            return _change_records(operations, by, caller, transaction, clears=True)
        case Revert():
            return _revert(command, caller, transaction)
        case AcquireClaim():
            return _acquire(command, caller, transaction)
        case ReleaseClaim():
            return _release(command, caller, transaction)
        case StopWaiting(resource=resource):
            who = _identified(command.agent, caller, command.receipt, transaction)
            board = load_board_to_write(transaction, [resource])
            stopped = stop_waiting(command, who, board)
            save(stopped, transaction, caller)
            return SweepOutcome(bool(stopped.events))
        case RecordFileChange(resource=resource, agent=agent, sha256=sha256):
            change = FileChanged(agent=agent, principal=caller.principal, sha256=sha256)
            draft = BoardDraft(load_board_to_write(transaction, [resource]))
            draft.record(resource, change)
            save(draft.decide(None), transaction, caller)
            return SweepOutcome(True)
        case Register():
            return _register(command, caller, transaction)
        case IssueToken() | RotateToken() | RevokeToken():
            return _change_token(command, caller, transaction)
        case Redact():
            return redaction.redact(command, caller, transaction)
        case ApplyRetention():
            return retention.apply(transaction)
        case ChangeRetention():
            return _change_retention(command, caller, transaction)
        case StartThread() | ForkThread() | Append() | ReplaceResults() | ChangeData():
            return change_thread(command, caller, transaction)
        case Sweep(ended=servers, heirs=heirs, grace=grace, cut=cut):
            for heir in heirs:
                transaction.leases.inherit(*heir, transaction.steady)
            now, at = transaction.steady, transaction.at
            ended = transaction.leases.end(servers, now, at, grace if cut else None)
            ended = transaction.leases.end_idle_sessions(now, at) or ended or bool(heirs)
            claims, values = end_due_leases(transaction, gone=ended), expire_values(transaction, MAX_DUE)
            return SweepOutcome(claims or values or ended)
        case Renew(server=server, sessions=sessions, grants=grants):
            transaction.leases.renew(server, sessions, grants, transaction.steady)
            return SweepOutcome(False)
        case CollectLostClaims(session=session, receipt=receipt):
            losses = transaction.leases.losses(caller.principal, session, receipt)
            transaction.leases.forget(losses)
            return LostClaims(tuple(losses))
        case TouchSessions(sessions=touched):
            transaction.leases.touch(touched, transaction.steady)
            return SweepOutcome(False)
        case EndSession(session=session):
            transaction.leases.end_session(session, caller.principal, transaction.steady, transaction.at)
            end_due_leases(transaction, gone=True)
            return SweepOutcome(True)


def _change_records(
    operations: tuple[Operation, ...],
    by: str,
    caller: Caller,
    transaction: Transaction,
    guard: tuple[FencingCondition, ...] = (),
    clears: bool = False,
    numbered: bool = False,
) -> RecordsChanged:
    who = Who(by, caller.principal, caller.session)
    fenced, conditions = _checked(guard, who, transaction) if guard else (None, ())
    records = transaction.records_of({(it.namespace, it.key): None for it in operations}) if numbered else {}
    changes: list[Change] = []
    results: list[Written] = []
    work = Work() if numbered else None
    for index, operation in enumerate(operations):
        address = (operation.namespace, operation.key)
        before = records.get(address) or transaction.record(*address)
        after = before
        try:
            events = record.decide(operation, by, before, transaction.at, work)
        except HoldlogError as refusal:
            refusal.operation = index if numbered else None
            if isinstance(refusal, ConflictError):
                refusal.repeatable = isinstance(operation, Delete) or operation.is_update
                made_by = refusal.detail.actual_updated_by, refusal.detail.actual_principal
                refusal.is_own = made_by == (by, caller.principal)
            if fenced is None or isinstance(refusal, NotFoundError):
                raise
            raise fenced from None
        expected = operation.expected_version
        existed = before.live and record.end_of(before, transaction.at) is None
        basis = Basis("clear" if clears else operation.kind, expected, expected is None and existed, conditions)
        for event in events:
            last, after = after, record.evolve(after, event, transaction.at, caller.principal)
            changes.append(Change(last, event, after, None if isinstance(event, ValueExpired) else basis))
        records[address] = after
        computed = after.value.text if operation.is_update else None
        results.append(Written(*address, after.version, before.version if existed else None, computed))
    if fenced:
        raise fenced
    position = transaction.append(changes, caller)[-1] if changes else transaction.position()
    transaction.leases.record_call(who, caller.server, transaction.steady)
    return RecordsChanged(tuple(results), position)


def _revert(command: Revert, caller: Caller, transaction: Transaction) -> Reverted:
    who = Who(command.by, caller.principal, caller.session)
    changes, undone, kept = revert.decide(command, who, transaction, transaction.steady)
    if changes:
        transaction.append(changes, caller.model_copy(update={"correlation_id": command.correlation_id}))
    transaction.leases.record_call(who, caller.server, transaction.steady)
    return Reverted(tuple(undone), tuple(kept), command.correlation_id, transaction.position())


def expire_values(transaction: Transaction, limit: int) -> bool:
    """Record the expiry of up to `limit` values, earliest first. Returns False if none was due."""
    ends = [(due, record.end_of(due, transaction.at)) for due in transaction.due_records(limit)]
    changes = [Change(due, end, record.evolve(due, end, transaction.at)) for due, end in ends if end is not None]
    if changes:
        transaction.append(changes, NOBODY)
    return bool(changes)


def _checked(
    guard: tuple[FencingCondition, ...], who: Who, transaction: Transaction
) -> tuple[FencedError | None, tuple[CheckedClaim, ...]]:
    """Check the fencing conditions. Returns the first failure, if any, and all conditions as the log records them."""
    board = load_board_to_write(transaction, [claim.resource for claim in guard])
    fenced = next((why for claim in guard if (why := fencing.fence(claim, who, board)) is not None), None)
    return fenced, tuple(
        CheckedClaim(claim.resource, claim.version, fencing.former_session(claim, who, board)) for claim in guard
    )


def _acquire(command: AcquireClaim, caller: Caller, transaction: Transaction) -> ClaimAcquired | Queued:
    who = _identified(command.agent, caller, command.receipt, transaction, command.new_receipt)
    board = load_board_to_write(transaction, [command.resource, *command.also, *command.alternatives], who)
    turn = transaction.position() + 1 if command.wait else 0  # only a call that waits queues
    claimant = Claimant(who, caller.server, count_held(transaction, who, board), turn)
    decision = acquire(command, claimant, board)
    positions = save(decision, transaction, caller)
    transaction.leases.record_call(who, caller.server, transaction.steady)
    outcome = decision.outcome
    if isinstance(outcome, ClaimAcquired) and (outcome.resource, outcome.version) in positions:
        return outcome._replace(position=positions[outcome.resource, outcome.version])
    return outcome


def _release(command: ReleaseClaim, caller: Caller, transaction: Transaction) -> ReleaseOutcome:
    # A caller with a receipt acts only as the holder of that receipt, so it releases nothing by name alone.
    who = _identified(command.agent, caller, command.receipt, transaction, new_receipt=command.receipt)
    if command.resource is None:
        named = transaction.leases.of_agent(who.agent, who.principal)
        resources = [lease.resource for lease in named if lease.is_of(who)]
    else:
        resources = [command.resource, *command.also]
    decision = release(command, who, caller.server, load_board_to_write(transaction, resources, who))
    save(decision, transaction, caller)
    transaction.leases.record_call(who, caller.server, transaction.steady)
    return decision.outcome


def _identified(
    name: str, caller: Caller, receipt: str | None, transaction: Transaction, new_receipt: str | None = None
) -> Who:
    """Identify the holder that calls. A receipt that belongs to a live lease of this name replaces the session. Without
    a session and such a receipt, `new_receipt` identifies the caller from now on."""
    who = Who(name, caller.principal, caller.session)
    if who.session is not None and receipt is None:
        return who
    leases = transaction.leases.of_agent(name, caller.principal)
    known = {lease.receipt for lease in leases if lease.deadline > transaction.steady}
    if found := next((it for it in (receipt, new_receipt) if it is not None and it in known), None):
        return who._replace(session=None, receipt=found)
    return who if who.session is not None else who._replace(receipt=new_receipt)


def _register(command: Register, caller: Caller, transaction: Transaction) -> RegisterOutcome:
    before = next(iter(transaction.agents([command.agent])), Profile(command.agent))
    events = agent.decide(command, before, caller.principal)
    changes = [Change(before, event, agent.evolve(before, event, transaction.at, caller.principal)) for event in events]
    position = transaction.append(changes, caller)[-1] if changes else transaction.position()
    return RegisterOutcome(command.agent, before.version + len(events), position)


def _change_retention(command: ChangeRetention, caller: Caller, transaction: Transaction) -> RetentionChange:
    log = transaction.store_log()
    changes = [Change(log, event, store_log.evolve(log, event)) for event in retention.decide(command, log)]
    position = transaction.append(changes, caller)[-1] if changes else transaction.position()
    return RetentionChange(bool(changes), position)


def _change_token(command: TokenCommand, caller: Caller, transaction: Transaction) -> TokenChanged:
    after = transaction.token(command.name)
    events = token.decide(command, after, transaction.at)
    changes: list[Change] = []
    for event in events:
        last, after = after, token.evolve(after, event, transaction.at)
        changes.append(Change(last, event, after))
    position = transaction.append(changes, caller)[-1] if changes else transaction.position()
    return TokenChanged(after, position, already=not events)
