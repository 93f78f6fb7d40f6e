"""Short ways to say commands and to run them against a store."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.adapters.stores.sql.tables import select_from
from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.commands import AcquireClaim, ClaimAcquired, ReleaseClaim, ReleaseOutcome
from holdlog.domain.commands import AnyCommand, Outcome, RecordsChanged
from holdlog.domain.envelope import NO_DIGEST, Recorded
from holdlog.domain.message import NOBODY, Caller, Event
from holdlog.domain.ports import Change, Reader, Refusal, State, Store, Transaction
from holdlog.domain.record import AnyOperation, Check, ClearNamespace, Delete, Record, Set, Transact, Written, seen
from holdlog.domain.redaction import Redact, RedactionTarget
from holdlog.domain.store_log import Part
from holdlog.domain.threads.commands import ThreadChanged, ThreadCommand
from holdlog.domain.threads.thread import Thread
from holdlog.domain.token import Token
from holdlog.domain.value import Json
from holdlog.projections import fold
from holdlog.projections.projection import Row, Table
from tests.support.log_table import SELECT_EVENTS
from tests.support.threads import require_a_reader_finds

HERE = Caller(session="here", server="server of here")
"""A caller in a session, as every caller is who keeps what it claims without a receipt."""
PATIENCE = 30.0
"""Seconds after which a test gives up: never reached when all is well."""


async def until_async(condition: Callable[[], bool]) -> None:
    """As `until`, while the loop goes on."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread is about to bring about. Fails when it never comes."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0)


def put(key: str, value: Any, expected: int | None = None, namespace: str = "n", ttl: float | None = None) -> Set:
    return Set(namespace=namespace, key=key, value=Json.of(value), expected_version=expected, ttl_seconds=ttl)


def drop(key: str, expected: int | None = None, namespace: str = "n") -> Delete:
    return Delete(namespace=namespace, key=key, expected_version=expected)


def check(key: str, expected: int | None, namespace: str = "n") -> Check:
    return Check(namespace=namespace, key=key, expected_version=expected)


def transact(*operations: AnyOperation, by: str = "ann") -> Transact:
    return Transact(operations=operations, by=by, numbered=True)


def clear(namespace: str = "n", by: str = "ann") -> ClearNamespace:
    return ClearNamespace(namespace=namespace, by=by)


def take(resource: str, agent: str = "ann") -> AcquireClaim:
    return AcquireClaim(resource=resource, agent=agent)


def release(resource: str, agent: str = "ann") -> ReleaseClaim:
    return ReleaseClaim(resource=resource, agent=agent)


def holder_of(claim: Claim) -> str | None:
    """Who holds it, of one that nobody shares."""
    (grant,) = claim.grants or (None,)
    return grant.agent if grant is not None else None


def run(store: Store, command: AnyCommand, caller: Caller = HERE) -> Outcome:
    """One command in one transaction. Raises its refusal."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        return handle(command, caller, transaction)


def change(store: Store, *operations: AnyOperation, by: str = "ann", caller: Caller = NOBODY) -> list[Written]:
    """What the operations did, in one transaction."""
    outcome = run(store, transact(*operations, by=by), caller)
    assert isinstance(outcome, RecordsChanged)
    return list(outcome.results)


def write(store: Store, key: str, value: Any, expected: int | None = None, namespace: str = "n") -> int:
    """The version that the write made."""
    (written,) = change(store, put(key, value, expected, namespace))
    return written.version


def claim(store: Store, resource: str, agent: str = "ann") -> ClaimAcquired:
    outcome = run(store, take(resource, agent))
    assert isinstance(outcome, ClaimAcquired)
    return outcome


def did(store: Store, command: ThreadCommand, caller: Caller = NOBODY) -> ThreadChanged:
    outcome = run(store, command, caller)
    assert isinstance(outcome, ThreadChanged)
    return outcome


def let_go(store: Store, resource: str, agent: str = "ann") -> ReleaseOutcome:
    outcome = run(store, release(resource, agent))
    assert isinstance(outcome, ReleaseOutcome)
    return outcome


def redact(store: Store, position: int, part: Part = "payload", reason: str = "leaked") -> None:
    """Redact a text of the event at a position."""
    with store.reader() as reader:
        (event,) = reader.log(position - 1, 1)
    target = RedactionTarget(stream=event.envelope.stream, version=event.envelope.version, part=part)
    run(store, Redact(targets=(target,), by="boss"), Caller(reason=reason))


def append(transaction: Transaction, before: State, *events: Event, caller: Caller = NOBODY) -> None:
    """Append events to one stream, as a command would that decided them."""
    changes, state = list[Change](), before
    for event in events:
        before, state = state, fold.evolve(state, event, transaction.at, caller.principal)
        changes.append(Change(before, event, state))
    transaction.append(changes, caller)


def whole_log(store: Store) -> list[Recorded[Event]]:
    with store.reader() as reader:
        return reader.log(0, -1)


def noted_refusals(store: Store) -> list[Refusal]:
    """The table that an auditor reads, oldest first."""
    select = "SELECT at, code, what, by, session FROM refusals ORDER BY id"
    with store.reader() as reader:
        assert isinstance(reader, SqlReader)
        return [Refusal(*row) for row in reader.rows(select, {})]


def rows(store: Store) -> list[tuple[Any, ...]]:
    """The log as it is stored: position, stream, version, topic, body, then the envelope and the payload."""
    with store.reader() as reader:
        assert isinstance(reader, SqlReader)
        return reader.rows(f"{SELECT_EVENTS} ORDER BY notification_id", {})


def require_chained(store: Store) -> None:
    """Every digest follows from the one before in its stream and from all that its event says."""
    last: dict[str, bytes] = {}
    for row in rows(store):
        stream, found = row[1], row[11]
        assert found == digest_of(row, last.get(stream, NO_DIGEST))
        last[stream] = found


def digest_of(row: tuple[Any, ...], previous: bytes) -> bytes:
    """As docs/decisions 0004 and 0030 say, without the code that writes it."""
    _, stream, version, topic, body, at, principal, session, request_id, reason, correlation_id = row[:11]
    form, clock, operation, based_on, forced, guard, reason_salt, reason_hash = row[15:]
    payload = _hash_of(*row[12:15])
    if form is None:
        caller = [principal, session, request_id, reason, correlation_id]
        facts = [previous.hex(), stream, version, topic, at, *caller, body.decode(), payload]
    else:
        caller = [principal, session, request_id, correlation_id]
        basis = [operation, based_on, forced, guard]
        reason = _hash_of(reason_salt, reason, reason_hash)
        head = [f"holdlog/{form}", previous.hex(), stream, version, topic, at, clock]
        facts = [*head, *caller, *basis, body.decode(), payload, reason]
    return hashlib.sha256(json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()).digest()


def _hash_of(salt: bytes, text: str | None, redacted: bytes | None) -> str | None:
    if text is None:
        return None if redacted is None else redacted.hex()
    return hashlib.sha256(salt + text.encode()).hexdigest()


def require_views_equal_the_log(store: Store) -> None:
    """What the views say of every stream is what its events make of it, digest included."""
    with store.snapshot() as reader:
        states: dict[str, State] = {}
        digests: dict[str, bytes] = {}
        events: dict[str, list[Recorded[Event]]] = {}
        for position, recorded in enumerate(reader.log(0, -1), start=1):
            envelope = recorded.envelope
            before = states.get(envelope.stream) or fold.initial(envelope.stream)
            assert (envelope.position, envelope.version) == (position, before.version + 1)
            states[envelope.stream], digests[envelope.stream] = fold.apply(before, envelope, recorded.event)
            events.setdefault(envelope.stream, []).append(recorded)
        for stream, state in states.items():
            assert _row(reader, *fold.put(state, digests[stream])) == fold.put(state, digests[stream]).row
            match state:
                case Record():
                    assert reader.record(state.namespace, state.key) == state
                case Claim():
                    assert reader.claim(state.resource) == state
                case Token():
                    assert reader.token(state.name) == state
                case Profile():
                    assert reader.agents([state.agent]) == [state]
                case Thread():
                    assert reader.thread(state.thread) == state
                    require_a_reader_finds(reader, state.thread, events[state.stream])
        names = sorted(state.thread for state in states.values() if isinstance(state, Thread))
        assert [it.thread for it in reader.threads(None, -1)] == names
        live = {state[:2] for state in states.values() if isinstance(state, Record) and seen(state, reader.at).live}
        listed = [(name, record.key) for name, _ in reader.namespaces(None, -1) for record in _live(reader, name)]
        assert listed == sorted(live)
        claims = [state for state in states.values() if isinstance(state, Claim)]
        assert [it.resource for it in reader.claims(None, -1)] == sorted(
            it.resource for it in claims if it.grants or it.waiting
        )
        assert sorted(it.resource for it in reader.queued()) == sorted(it.resource for it in claims if it.waiting)
        for claim in claims:
            assert len(reader.tickets([claim.resource])) == claim.waiting


def _row(reader: Reader, table: Table, row: Row) -> Row | None:
    """The row with the key of another one."""
    assert isinstance(reader, SqlReader)
    key = dict(zip(table.columns, row[: table.key], strict=False))
    found = reader.rows(f"{select_from(table)} WHERE {' AND '.join(f'{column} = :{column}' for column in key)}", key)
    return found[0] if found else None


def _live(reader: Reader, namespace: str) -> list[Record]:
    return reader.records(namespace, "", None, -1, deleted=False)


def keys(
    reader: Reader, namespace: str = "n", prefix: str = "", after: str | None = None, limit: int = -1
) -> list[str]:
    return [record.key for record in reader.records(namespace, prefix, after, limit, deleted=False)]
