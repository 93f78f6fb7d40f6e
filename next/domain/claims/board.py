"""The board: the claims and tickets that a command may depend on, and who excludes whom.

The rule: a claim is granted if it is compatible with every live grant of others, and with every earlier ticket whose
waiter is in a call now, unless that waiter itself waits for the caller.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdlog.domain.claims.claim import Claim, Claims, Mode, Who, evolve, wants
from holdlog.domain.claims.holder import BEATEN_LIFE, LIFE, Holder, Holders
from holdlog.domain.claims.resource import overlap
from holdlog.domain.state import Moment, Record, State

LAST: Final = 2**62
"""The position of a claim that is not in the queue: behind all tickets."""
_by_position: Final = attrgetter("position")


class Wanted(NamedTuple):
    """What an agent asks for: all resources, or none."""

    who: Who
    mode: Mode
    resources: tuple[str, ...]
    position: int = LAST


def want(ticket: Claim) -> Wanted:
    return Wanted(ticket.who, ticket.mode, ticket.resources, ticket.position)


class Loss(NamedTuple):
    """A grant that ended without its holder's doing. Reported once."""

    who: Who
    resource: str
    version: int
    why: str
    at: int
    reason: str | None = None


class Board:
    """A draft of the rows that a command has read. Deciders change the draft, never the state."""

    def __init__(self, state: State, moment: Moment) -> None:
        self.moment = moment
        self.now = moment.steady
        self.claims: Claims = dict(state.claims)
        self.holders: Holders = dict(state.holders)
        self.records: dict[str, Record] = dict(state.records)
        self.events: list[Any] = []
        self.losses: list[Loss] = []

    def copy(self) -> "Board":
        """A draft of the draft."""
        copy = Board(State(self.records, self.claims, self.holders), self.moment)
        copy.events = list(self.events)
        return copy

    # --- changes

    def record(self, event: Any) -> int:
        """Add an event. Returns its version."""
        self.events.append(event)
        record = self.records[event.stream]
        position = self.moment.position + len(self.events)
        version = record.version + 1
        self.records[event.stream] = record._replace(version=version, position=position)
        evolve(self.claims, event, version, position, self.moment.at)
        return version

    def keep(self, claim: Claim) -> None:
        """Change what no event says: deadline, waiting, offer, note."""
        self.claims[claim.key] = claim

    def hear(self, who: Who) -> Holder:
        """Count a call of the holder."""
        caller = self.moment.caller
        life = BEATEN_LIFE if caller.beats else LIFE
        known = self.holders.get(who) or Holder(who, 0, 0, life, caller.beats, caller.host)
        self.holders[who] = holder = known.hear(self.now)
        return holder

    # --- holders

    def is_own(self, claim: Claim, who: Who) -> bool:
        """Whether the caller is the holder, or acts as one that left: same name and principal, below the same host."""
        if claim.who == who:
            return True
        holder = self.holders.get(claim.who)
        return holder is not None and holder.is_left_to(who, self.moment.caller.host)

    def lets_in(self, claim: Claim, who: Who) -> bool:
        """An agent does not block its sub-agents (`claude` and `claude/tests`) within a session."""
        of_session = claim.who.session == who.session and claim.who.principal == who.principal
        return of_session and who.agent.startswith(claim.who.agent + "/")

    def is_abandoned_to(self, claim: Claim, who: Who) -> bool:
        """Whether a silent sub-agent of the caller holds it: then the caller may take it over."""
        of_session = claim.who.session == who.session and claim.who.principal == who.principal
        if not (of_session and claim.who.agent.startswith(who.agent + "/")):
            return False
        holder = self.holders.get(claim.who)
        return holder is not None and holder.is_silent(self.now)

    # --- grants

    def find_end(self, claim: Claim) -> int:
        """When a grant ends by the steady clock. One whose holder is unknown has a full life from now."""
        if claim.deadline is not None:
            return claim.deadline
        holder = self.holders.get(claim.who)
        return self.now + LIFE if holder is None else holder.expires_at

    def list_grants(self, *resources: str) -> Iterator[Claim]:
        """Live grants that overlap one of the resources, the oldest first."""
        for claim in sorted(self.claims.values(), key=_by_position):
            if claim.is_ticket or not any(overlap(claim.resource, resource) for resource in resources):
                continue
            if self.find_end(claim) > self.now:
                yield claim

    def find_own(self, resource: str, who: Who) -> Claim | None:
        """The caller's grant of exactly this resource."""
        grants = self.list_grants(resource)
        return next((claim for claim in grants if claim.resource == resource and self.is_own(claim, who)), None)

    def list_obstacles(self, wanted: Wanted) -> Iterator[Claim]:
        """The grants of others that exclude it."""
        for claim in self.list_grants(*wanted.resources):
            who = wanted.who
            if wanted.mode == "shared" == claim.mode or self.is_own(claim, who) or self.lets_in(claim, who):
                continue
            if not self.is_abandoned_to(claim, who):
                yield claim

    # --- tickets

    def list_tickets(self, *resources: str) -> list[Claim]:
        """Tickets for something that overlaps, in queue order."""
        tickets = [claim for claim in self.claims.values() if claim.is_ticket and wants(claim, resources)]
        return sorted(tickets, key=_by_position)

    def list_waiters(self) -> list[Claim]:
        """All tickets whose waiters are in a call, in queue order."""
        waiters = [claim for claim in self.claims.values() if claim.is_ticket and claim.waits_until > self.now]
        return sorted(waiters, key=_by_position)

    def list_earlier(self, wanted: Wanted) -> list[Claim]:
        """The waiters that came earlier and exclude it, except those that wait for the caller."""
        waiters = self.list_waiters()
        earlier = [
            ticket
            for ticket in waiters
            if ticket.position < wanted.position
            and not self.is_own(ticket, wanted.who)
            and self._excludes(ticket, wanted)
        ]
        return [ticket for ticket in earlier if not self.waits_for(ticket.who, wanted.who, waiters)]

    def waits_for(self, start: Who, goal: Who, waiters: list[Claim]) -> bool:
        """Whether one agent waits for another, directly or through others."""
        reached, rest = {start}, [start]
        while rest:
            who = rest.pop()
            for number, ticket in enumerate(waiters):
                if ticket.who != who:
                    continue
                wanted = want(ticket)
                others = {claim.who for claim in self.list_obstacles(wanted)}
                others |= {earlier.who for earlier in waiters[:number] if self._excludes(earlier, wanted)}
                if goal in others:
                    return True
                rest += others - reached
                reached |= others
        return False

    def is_free(self, wanted: Wanted) -> bool:
        return next(self.list_obstacles(wanted), None) is None and not self.list_earlier(wanted)

    def _excludes(self, earlier: Claim, wanted: Wanted) -> bool:
        if wanted.mode == "shared" == earlier.mode or self.lets_in(earlier, wanted.who):
            return False
        return wants(earlier, wanted.resources)
