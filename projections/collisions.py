"""Who queued behind whom: found by a read model when a waiter queues, from the holds and tickets of that moment."""

from collections.abc import Sequence
from typing import NamedTuple

from holdlog.domain.claims.claim import Mode
from holdlog.domain.names import acts_for


class RecordedHold(NamedTuple):
    """A grant that has not ended in the log. `version` is that of the grant."""

    resource: str
    version: int
    agent: str
    principal: str | None
    session: str | None
    mode: Mode


class RecordedTicket(NamedTuple):
    """A ticket that has not ended in the log. `version` is that of the ticket; a smaller `turn` comes first."""

    resource: str
    version: int
    agent: str
    principal: str | None
    session: str | None
    mode: Mode
    turn: int


class CollisionRow(NamedTuple):
    """How often an agent queued behind another one at a resource. `granted`: how often it then got what it wanted.
    `waited`: microseconds of all tickets that were granted or given up. `last`: microseconds UTC."""

    resource: str
    agent: str
    principal: str | None
    behind: str
    behind_principal: str | None
    times: int
    granted: int
    waited: int
    last: int


class Blocker(NamedTuple):
    """An agent that a waiter queued behind, and the resource that the agent held or waited for."""

    resource: str
    agent: str
    principal: str | None


def blockers(waiter: RecordedTicket, holds: Sequence[RecordedHold], tickets: Sequence[RecordedTicket]) -> list[Blocker]:
    """Whom a waiter queued behind: the holders that exclude it, or, if there is none, the waiters ahead of it.

    `holds`, `tickets`: those that overlap what it wants.
    """
    earlier = [it for it in tickets if it.turn < waiter.turn]
    found = [_blocker(it) for it in holds if _excludes(it, waiter)] or [
        _blocker(it) for it in earlier if _excludes(it, waiter)
    ]
    return list(dict.fromkeys(found))


def _blocker(other: RecordedHold | RecordedTicket) -> Blocker:
    return Blocker(other.resource, other.agent, other.principal)


def _excludes(other: RecordedHold | RecordedTicket, waiter: RecordedTicket) -> bool:
    """Whether a claim excludes that of the waiter: not if both are shared, nor the waiter's own or that of its parent
    in the same session."""
    if other.mode == waiter.mode == "shared":
        return False
    return not (
        acts_for(waiter.agent, other.agent) and (waiter.principal, waiter.session) == (other.principal, other.session)
    )
