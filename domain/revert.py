"""Undo what a run wrote: a session, or the writes under one correlation id.

Of each key, the versions that the run wrote last without interruption are undone: the value before them is written
again, or deleted if there was none. The log only grows: the new events name the positions of those that they undo.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from holdlog.domain.claims.board import ClaimBoard
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.lease import Lease, Who
from holdlog.domain.claims.resource import canonical
from holdlog.domain.envelope import Basis, Recorded
from holdlog.domain.history import newest_first
from holdlog.domain.message import Command, Event, Message
from holdlog.domain.names import Agent, AllowedAgent, Label, acts_for, record_stream
from holdlog.domain.ports import Change, Reader
from holdlog.domain.record import (
    Record,
    RecordEvent,
    ValueDeleted,
    ValueExpired,
    ValueWritten,
    end_of,
    evolve,
    seen,
    state_after,
)

MAX_KEYS: Final = 1_000
"""Keys that one revert may concern."""
FEW: Final = 2
MOST_AT_ONCE: Final = 64
"""Events of a stream that are read at once, first and at most: most blocks are short, and values may be large."""

Reason = Literal["changed_since", "base_written_by_run", "redacted", "claimed", "unchanged"]
"""Why a key is left as it is: others changed it since; the run had written it before others wrote the value that would
be restored; a value is redacted; another agent claims it; it already is as it was."""


class Run(Message):
    """Whose writes are undone: those of any of these sessions (salted hashes), or under a correlation id. `agent`: only
    of this agent and its sub-agents. `since`: microseconds UTC; only from then on."""

    sessions: tuple[str, ...] = ()
    correlation_id: Label | None = None
    agent: Agent | None = None
    since: int = 0

    def wrote(self, recorded: Recorded[Event]) -> bool:
        """Whether the event is a write or deletion of the run."""
        envelope, event = recorded.envelope, recorded.event
        if not isinstance(event, ValueWritten | ValueDeleted) or envelope.at < self.since:
            return False
        caller = envelope.caller
        if self.sessions and caller.session not in self.sessions:
            return False
        if self.correlation_id is not None and caller.correlation_id != self.correlation_id:
            return False
        return self.agent is None or acts_for(event.by, self.agent)


class RunBlock(NamedTuple):
    """What a run wrote of a key last, as the log had it when the key had `version`.

    `earliest`: the first version that the run wrote; `first`: that of the block. `positions`: of the first and the last
    write of the block. `base`: the key before the block. `resources`: claims that the block or the base relied on.
    `writers`: principals and sessions that wrote the block. `reason`: why the block is not undone; if others changed
    the key since, `by` and `principal` are theirs."""

    namespace: str
    key: str
    version: int
    earliest: int
    first: int
    positions: tuple[int, int]
    base: Record
    resources: tuple[str, ...] = ()
    writers: frozenset[tuple[str | None, str | None]] = frozenset()
    reason: Reason | None = None
    by: str = ""
    principal: str | None = None


class Revert(Command):
    """Undo what a run wrote. `blocks`: what it wrote, by key; blocks that became outdated since are read again.
    `correlation_id`: recorded with the new events, so that they can be undone, too."""

    kind: ClassVar[str] = "revert"
    run: Run
    blocks: Annotated[tuple[RunBlock, ...], Field(max_length=MAX_KEYS)]
    by: AllowedAgent
    correlation_id: Label
    request_digest: str
    """What identifies a repeated request: the arguments of the caller, without what was found for them."""


class UndoneKey(NamedTuple):
    """A key that was restored. `version`: its new one; `versions` and `positions`: the first and last that were undone;
    `restored`: the version whose value it has again, None if it was deleted."""

    namespace: str
    key: str
    version: int
    versions: tuple[int, int]
    positions: tuple[int, int]
    restored: int | None


class KeptKey(NamedTuple):
    """A key that was left as it is. `version`: its newest. `by`: who changed it since, or holds `resource`."""

    namespace: str
    key: str
    version: int
    reason: Reason
    by: str | None = None
    principal: str | None = None
    resource: str | None = None


class Reverted(NamedTuple):
    """The outcome of a revert. `position`: of the last event of the log."""

    undone: tuple[UndoneKey, ...]
    kept: tuple[KeptKey, ...]
    correlation_id: str
    position: int


class RevertDecision(NamedTuple):
    """What a revert does: the changes in order, and the keys that they restore; the keys that it leaves as they are."""

    changes: list[Change]
    undone: list[UndoneKey]
    kept: list[KeptKey]


# --- what a run wrote


def block_of(run: Run, namespace: str, key: str, earliest: int, history: Iterable[Recorded[Event]]) -> RunBlock:
    """The block of a key. `earliest`: the first version that the run wrote; `history`: newest first, read as far as
    needed. An expiry belongs to the write of the value that expired."""
    newest, first, last, below = None, None, None, None
    redacted, writers = False, set[tuple[str | None, str | None]]()
    guards, events = dict[str, None](), iter(history)
    for recorded in events:
        newest, envelope = newest or recorded, recorded.envelope
        if run.wrote(recorded):
            first, last, below = recorded, last or recorded, None
            redacted = redacted or recorded.redacted
            writers.add((envelope.caller.principal, envelope.caller.session))
            guards |= dict.fromkeys(it.resource for it in envelope.guard or ())
        else:
            below = below or recorded
            if not isinstance(recorded.event, ValueExpired):
                break
    assert newest is not None
    version, empty = newest.envelope.version, Record(namespace, key)
    if first is None or last is None:
        after = state_after(namespace, key, newest)
        found = RunBlock(namespace, key, version, earliest, version, (0, 0), empty)
        return found._replace(reason="changed_since", by=after.updated_by, principal=after.principal)
    if below is not None:
        guards |= dict.fromkeys(it.resource for it in below.envelope.guard or ())
    return RunBlock(
        namespace,
        key,
        version,
        earliest,
        first.envelope.version,
        (first.envelope.position, last.envelope.position),
        empty if below is None else state_after(namespace, key, below),
        (*_claims_of(namespace, key), *guards),
        frozenset(writers),
        "redacted"
        if redacted or (below is not None and below.redacted)
        else "base_written_by_run"
        if earliest < first.envelope.version and (below is None or earliest < _oldest_undone(below, events))
        else None,
    )


def _oldest_undone(base: Recorded[Event], older: Iterator[Recorded[Event]]) -> int:
    """The oldest version that reverts undid which led to `base`, or that of `base`: the value of a revert is the one
    before what it undid. `older`: the events before it, newest first."""
    oldest, start = base.envelope.version, _undone_from(base)
    while start is not None and (recorded := next(older, None)) is not None:
        if recorded.envelope.position < start and (start := _undone_from(recorded)) is None:
            break
        oldest = recorded.envelope.version
    return oldest


def _undone_from(recorded: Recorded[Event]) -> int | None:
    """The first position that an event undoes; None if it undoes nothing."""
    event = recorded.event
    return event.undoes[0] if isinstance(event, ValueWritten | ValueDeleted) and event.undoes is not None else None


def read_block(run: Run, namespace: str, key: str, earliest: int, reader: Reader) -> RunBlock:
    history = newest_first(reader, record_stream(namespace, key), first=FEW, largest=MOST_AT_ONCE)
    return block_of(run, namespace, key, earliest, history)


# --- decide


def decide(command: Revert, who: Who, reader: Reader, steady: int) -> RevertDecision:
    """Decide a revert on what the reader has now. `steady`: the store's steady clock; `who`: the caller, whose own
    claims are no obstacle, and neither are those of the run."""
    records = [reader.record(block.namespace, block.key) for block in command.blocks]
    blocks = [
        block
        if block.version == record.version
        else read_block(command.run, block.namespace, block.key, block.earliest, reader)
        for block, record in zip(command.blocks, records, strict=True)
    ]
    resources = list(dict.fromkeys(resource for block in blocks for resource in block.resources))
    board = load_board(reader, resources, steady, reader.at)
    decision = RevertDecision([], [], [])
    for block, record in zip(blocks, records, strict=True):
        if (kept := _kept(block, command.run, who, board)) is not None:
            decision.kept.append(kept)
            continue
        if not (events := _events(block, record, command.by, reader.at)):
            decision.kept.append(KeptKey(block.namespace, block.key, block.version, "unchanged"))
            continue
        after = record
        basis = Basis("revert", based_on=record.version if seen(record, reader.at).live else 0)
        for event in events:
            before, after = after, evolve(after, event, reader.at, who.principal)
            decision.changes.append(Change(before, event, after, None if isinstance(event, ValueExpired) else basis))
        base = seen(block.base, reader.at)
        versions, restored = (block.first, block.version), base.version if base.live else None
        decision.undone.append(
            UndoneKey(block.namespace, block.key, after.version, versions, block.positions, restored)
        )
    return decision


def _events(block: RunBlock, record: Record, by: str, at: int) -> list[RecordEvent]:
    """The events that restore the value before the block; none if it is as it was."""
    base, current = seen(block.base, at), seen(record, at)
    if (base.live, base.value, base.expires_at) == (current.live, current.value, current.expires_at):
        return []
    if not base.live:
        return [ValueDeleted(by=by, undoes=block.positions)] if current.live else []
    written = ValueWritten(value=base.value, by=by, expires_at=base.expires_at, undoes=block.positions)
    ended = end_of(record, at)
    return [written] if ended is None else [ended, written]


def _kept(block: RunBlock, run: Run, who: Who, board: ClaimBoard) -> KeptKey | None:
    """Why the block must not be undone; None if it may."""
    address = block.namespace, block.key, block.version
    if block.reason is not None:
        return KeptKey(*address, block.reason, block.by or None, block.principal)
    for resource in block.resources:
        for hold in board.conflicting_holds(resource, "exclusive", None):
            lease = hold.lease
            if not lease.is_of(who) and not _is_of_run(lease, run, block):
                return KeptKey(*address, "claimed", lease.agent, lease.principal, hold.resource)
    return None


def _is_of_run(lease: Lease, run: Run, block: RunBlock) -> bool:
    """Whether the run holds the claim. A claim without a session never counts: its holder cannot be recognized."""
    if lease.session is None or (lease.principal, lease.session) not in block.writers:
        return False
    return run.agent is None or acts_for(lease.agent, run.agent)


def _claims_of(namespace: str, key: str) -> tuple[str, ...]:
    """The name under which agents claim a value."""
    try:
        return (canonical(f"custom://{namespace}/{key}"),)
    except ValueError:  # too long
        return ()
