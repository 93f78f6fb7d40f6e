"""Who held resources and who waited for them, folded from the events of their claims."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from holdlog.domain.claims.board import Key
from holdlog.domain.claims.claim import (
    Claim,
    ClaimEvent,
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    ClaimResumed,
    ClaimUnqueued,
    FileChanged,
    Grant,
    Ticket,
    ended_ticket,
    ends_grant,
    new_ticket,
)
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.projections.past_board import Ending, ending_of, resource_of


class HoldSpan(NamedTuple):
    """A grant of a resource, and how it ended; None: it has not. `note`: that of the grant. `moved_to` and `end_note`:
    what its holder reported, or why a person took it. `collected` False: it was offered to a waiter that did not
    collect it. `changed`: what its holder did to the file last, as hooks recorded it."""

    resource: str
    grant: Grant
    note: str | None = None
    ending: Ending | None = None
    moved_to: str | None = None
    end_note: str | None = None
    collected: bool = True
    changed: Literal["modified", "deleted"] | None = None

    @property
    def key(self) -> Key:
        return self.resource, self.grant.version

    @property
    def owner(self) -> Grant:
        return self.grant

    @property
    def began(self) -> int:
        return self.grant.claimed_at

    @property
    def ended(self) -> int | None:
        return None if self.ending is None else self.ending.at


class WaitSpan(NamedTuple):
    """A ticket, and how it left the queue; None: it has not. `ended`: when, or for an absent waiter when that was
    noticed; microseconds UTC."""

    ticket: Ticket
    note: str | None = None
    outcome: Literal["granted", "left", "absent"] | None = None
    ended: int | None = None

    @property
    def key(self) -> Key:
        return self.ticket.resource, self.ticket.version

    @property
    def owner(self) -> Ticket:
        return self.ticket

    @property
    def began(self) -> int:
        return self.ticket.since


ClaimSpan = HoldSpan | WaitSpan


class OpenSpans:
    """Folds events of claims, in the order of each stream. `holds` and `waits`: those that have not ended."""

    def __init__(self) -> None:
        self.holds: dict[Key, HoldSpan] = {}
        self.waits: dict[Key, WaitSpan] = {}

    def apply(self, recorded: Recorded[Event]) -> Iterator[ClaimSpan]:
        """Apply an event of a claim; return the spans that it ended."""
        envelope, event = recorded.envelope, cast("ClaimEvent", recorded.event)
        resource = resource_of(envelope.stream)
        if (ended := ended_ticket(event)) is not None and (wait := self.waits.pop((resource, ended), None)) is not None:
            outcome = event.why if isinstance(event, ClaimUnqueued) else "granted"
            yield wait._replace(outcome=outcome, ended=envelope.at)
        for key in [it for it in self.holds if it[0] == resource and ends_grant(event, it[1])]:
            yield _ended(self.holds.pop(key), recorded)
        note = getattr(event, "note", None)
        if isinstance(event, FileChanged):
            changed: Literal["modified", "deleted"] = "modified" if event.sha256 else "deleted"
            for key, hold in self.holds.items():
                if key[0] == resource and (hold.grant.agent, hold.grant.principal) == (event.agent, event.principal):
                    self.holds[key] = hold._replace(changed=changed)
        elif isinstance(event, ClaimGranted | ClaimResumed):
            grant = Grant(envelope.version, event.agent, event.principal, event.mode, envelope.at, event.session)
            self.holds[resource, grant.version] = HoldSpan(resource, grant, note)
        elif (ticket := new_ticket(Claim(resource, envelope.version), event, envelope.at)) is not None:
            self.waits[ticket[:2]] = WaitSpan(ticket, note)


def _ended(hold: HoldSpan, recorded: Recorded[Event]) -> HoldSpan:
    hold = hold._replace(ending=ending_of(recorded))
    match recorded.event:
        case ClaimReleased(moved_to=moved_to, note=note):
            return hold._replace(moved_to=moved_to, end_note=note)
        case ClaimExpired(collected=collected):
            return hold._replace(collected=collected)
        case _:
            return hold
