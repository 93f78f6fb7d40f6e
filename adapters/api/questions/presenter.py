"""Converts spans of claims and changes of values to responses."""

from typing import Final

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.events.event_filter import done_by, names_in
from holdlog.adapters.api.questions.responses import ChangeEntry, HoldEntry, WaitEntry
from holdlog.adapters.api.values.presenter import EVENT_TYPES, seconds_between
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import mixed_scripts
from holdlog.domain.times import utc
from holdlog.projections.spans import HoldSpan, WaitSpan


def hold_entry(hold: HoldSpan, now: int) -> HoldEntry:
    """`now`: microseconds UTC, for a hold that has not ended."""
    grant, ending = hold.grant, hold.ending
    return HoldEntry(
        resource=hold.resource,
        held_by=grant.agent,
        held_by_principal=grant.principal,
        mode=grant.mode,
        version=grant.version,
        claimed_at=utc(grant.claimed_at),
        held_for_seconds=seconds_between(grant.claimed_at, now if ending is None else ending.at),
        ended_at=None if ending is None else utc(ending.at),
        outcome=None if ending is None else ending.outcome,
        noticed_at=None if ending is None or ending.noticed_at == ending.at else utc(ending.noticed_at),
        forced_by=None if ending is None else ending.forced_by,
        moved_to=hold.moved_to,
        collected=None if hold.collected else False,
        changed=hold.changed,
        note=hold.note,
        end_note=hold.end_note,
        mixed_scripts=any(map(mixed_scripts, (hold.resource, grant.agent))) or None,
    )


def wait_entry(wait: WaitSpan, now: int) -> WaitEntry:
    """`now`: as in `hold_entry`."""
    ticket, is_absent = wait.ticket, wait.outcome == "absent"
    ended = None if wait.ended is None else utc(wait.ended)
    until = now if wait.ended is None else wait.ended
    return WaitEntry(
        resource=ticket.resource,
        agent=ticket.agent,
        principal=ticket.principal,
        mode=ticket.mode,
        queued_at=utc(ticket.since),
        waited_seconds=None if is_absent else seconds_between(ticket.since, until),
        ended_at=None if is_absent else ended,
        outcome=wait.outcome,
        noticed_at=ended if is_absent else None,
        note=wait.note,
        mixed_scripts=any(map(mixed_scripts, (ticket.resource, ticket.agent))) or None,
    )


_REPLACE: Final = frozenset({"set", "delete", "clear"})
"""Operations that need not read what they replace."""


def change_entry(recorded: Recorded[Event]) -> ChangeEntry:
    """`recorded`: an event of a record."""
    envelope, names = recorded.envelope, names_in(recorded.envelope.stream)
    return ChangeEntry(
        namespace=names["namespace"],
        key=names["key"],
        agent=done_by(recorded),
        principal=principal_of(recorded),
        at=utc(envelope.at),
        change=EVENT_TYPES[type(recorded.event)],
        version=envelope.version,
        position=envelope.position,
        forced=True if envelope.is_forced and envelope.operation in _REPLACE else None,
    )
