"""Undo what a run wrote: a session, or everything under a correlation id.

Of each key, a revert undoes the last versions if the run wrote them all: it writes the value before them again, or
deletes the key if there was none. To redo a run, revert the revert.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from holdlog.domain.claims.board import Board, Request
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import check_resource
from holdlog.domain.moment import Moment
from holdlog.domain.names import is_of_agent, split_stream
from holdlog.domain.records import ValueDeleted, ValueExpired, ValueWritten, is_expired
from holdlog.domain.results import Lost
from holdlog.domain.state import Decision, Reads, Record, State
from holdlog.domain.values import Json

MAX_KEYS: Final = 1_000
"""Keys that one revert may concern."""

Reason = Literal["changed_since", "based_on_run", "redacted", "claimed", "unchanged"]
"""Why a key is kept: others changed it since; they had changed what the run had written earlier; a text is redacted;
another agent claims it, or what its writes were guarded by; it is as it was before."""


class Run(NamedTuple):
    """Whose writes are undone; `agent`: only its own and those of its sub-agents; only those behind position `after`,
    and not before the time `since`, in microseconds since 1970."""

    session: str | None = None
    correlation_id: str | None = None
    agent: str | None = None
    since: int = 0
    after: int = 0


class Version(NamedTuple):
    """An event of a key, without its value."""

    number: int
    position: int
    topic: str
    at: int
    by: str
    session: str | None
    principal: str | None
    correlation_id: str | None
    guards: tuple[str, ...]
    is_redacted: bool
    expires_at: int | None

    def is_of(self, run: Run) -> bool:
        is_named = run.session in (None, self.session) and run.correlation_id in (None, self.correlation_id)
        is_since = self.position > run.after and self.at >= run.since
        return is_named and is_since and is_of_agent(self.by, run.agent) and self.topic != "ValueExpired"


class Block(NamedTuple):
    """What the run wrote of a key last, up to version `last`. `value` and `expires_at`: those before it, of version
    `restored`; without one, there was none. `is_same`: so is the current value. `resources`: what may not be claimed by
    others. `writers`: sessions and principals of the run. `reason`: why it is kept, and then `by`: who changed it
    since."""

    stream: str
    last: int
    value: Json | None = None
    is_same: bool = False
    expires_at: int | None = None
    restored: int | None = None
    resources: tuple[str, ...] = ()
    writers: frozenset[tuple[str | None, str | None]] = frozenset()
    reason: Reason | None = None
    by: str | None = None


class RevertedKey(NamedTuple):
    """`restored`: the version whose value it has again; absent if it was deleted."""

    namespace: str
    key: str
    version: int
    restored: int | None = None


class KeptKey(NamedTuple):
    """`by`: who changed it since, or holds `resource`."""

    namespace: str
    key: str
    version: int
    reason: Reason
    by: str | None = None
    resource: str | None = None


class Reverted(NamedTuple):
    """A revert of `correlation_id` undoes this one. `is_dry_run`: nothing was written."""

    reverted: list[RevertedKey]
    kept: list[KeptKey]
    correlation_id: str
    position: int
    is_dry_run: bool = False
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


def find_block(run: Run, stream: str, earliest: int, versions: Iterable[Version]) -> Block:
    """What a run wrote of a key last, without the values. `earliest`: its first version of the key; `versions`: the
    newest first, as many as needed."""
    written: list[Version] = []
    newest = base = None
    for version in versions:
        newest = newest or version
        if version.is_of(run):
            written.append(version)
            base = None
        elif version.topic == "ValueExpired" and base is None:
            base = version  # of what the run wrote, or of what was there before
        else:
            base = base or version
            break
    assert newest is not None
    if not written:
        return Block(stream, newest.number, reason="changed_since", by=newest.by or None)
    guards = {name for version in (*written, base) if version is not None for name in version.guards}
    block = Block(
        stream,
        newest.number,
        resources=(*_name_claim(stream), *sorted(guards)),
        writers=frozenset((version.session, version.principal) for version in written),
    )
    if earliest < written[-1].number:
        return block._replace(reason="based_on_run", by=base.by if base is not None else None)
    if any(version.is_redacted for version in written) or (base is not None and base.is_redacted):
        return block._replace(reason="redacted")
    if base is None or base.topic != "ValueWritten":
        return block
    return block._replace(expires_at=base.expires_at, restored=base.number)


def declare(command: Any) -> Reads:
    resources = {name: None for block in command.blocks for name in block.resources}
    streams = tuple(block.stream for block in command.blocks)
    return Reads(streams, resources=tuple(resources), claims="holders", agent=command.reverted_by)


def revert(command: Any, state: State, moment: Moment) -> Decision:
    """Restore what was before the blocks. What changed since they were read is kept."""
    board = state.board
    assert board is not None
    who = board.start(moment, command.reverted_by)
    events: list[Any] = []
    reverted: list[RevertedKey] = []
    left: list[KeptKey] = []
    for block in command.blocks:
        record = state.records[block.stream]
        address = split_stream(block.stream)
        reason, by, resource = block.reason, block.by, None
        if record.version != block.last:
            reason, by = "changed_since", None
        elif reason is None and (claim := _find_obstacle(block, command.run, who, board)) is not None:
            reason, by, resource = "claimed", claim.who.agent, claim.resource
        changes = _restore(block, record, command, moment) if reason is None else []
        if changes:
            events += changes
            restored = block.restored if isinstance(changes[-1], ValueWritten) else None
            reverted.append(RevertedKey(*address, record.version + len(changes), restored))
        else:
            left.append(KeptKey(*address, record.version, reason or "unchanged", by, resource))
    correlation_id = moment.caller.correlation_id or ""
    events = [] if command.dry_run else events
    position = moment.position + len(events)
    return events, Reverted(reverted, left, correlation_id, position, command.dry_run)


def _restore(block: Block, record: Record, command: Any, moment: Moment) -> list[Any]:
    """The events that bring back the value before the block; none if it is as it was."""
    has_value = record.exists and not is_expired(record, moment.at)
    version = record.version if has_value else 0
    if block.value is None or (block.expires_at is not None and block.expires_at <= moment.at):
        return [ValueDeleted(record.stream, command.reverted_by, command.reason, version)] if has_value else []
    if has_value and block.is_same and block.expires_at == record.expires_at:
        return []
    expiry = []
    if record.exists and not has_value and record.expires_at is not None:
        expiry.append(ValueExpired(record.stream, record.expires_at))
    facts = (command.reason, block.expires_at, version)
    return [*expiry, ValueWritten(record.stream, command.reverted_by, block.value, *facts)]


def _find_obstacle(block: Block, run: Run, who: HolderId, board: Board) -> Claim | None:
    """A claim of others on the key, or on what its writes were guarded by. Claims of the run are none."""
    for claim in board.list_obstacles(Request(who, "exclusive", block.resources)):
        if (claim.who.session, claim.who.principal) not in block.writers or not is_of_agent(claim.who.agent, run.agent):
            return claim
    return None


def _name_claim(stream: str) -> tuple[str, ...]:
    """The name under which agents claim a value."""
    try:
        return (check_resource(f"custom://{'/'.join(split_stream(stream))}"),)
    except ValueError:  # too long
        return ()
