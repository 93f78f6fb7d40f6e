"""The board: the claims and tickets that a command may depend on, and who is in whose way.

The rule: a claim is granted if it is compatible with every live grant of others, and with every earlier ticket whose
waiter is in a call now, unless that waiter itself waits for the caller.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from holdlog.domain.claims.claim import Claim, Claims, Mode, Who, evolve, wants
from holdlog.domain.claims.holder import Holder, Holders
from holdlog.domain.claims.resource import claim_stream, overlap
from holdlog.domain.state import Moment, Record, State

LAST: Final = 2**62
"""The position of a claim that is not in the queue: behind all tickets."""


class Wanted(NamedTuple):
    """What an agent asks for: all resources, or none."""

    who: Who
    mode: Mode
    resources: tuple[str, ...]
    position: int = LAST

    @classmethod
    def of(cls, ticket: Claim) -> "Wanted":
        return cls(ticket.who, ticket.mode, ticket.resources, ticket.position)


class Board:
    """A draft: rows of the state, with the changes of one command. Deciders change it alone, never the state."""

    def __init__(self, state: State, moment: Moment) -> None:
        self.moment = moment
        self.now = moment.steady
        self.claims: Claims = dict(state.claims)
        self.holders: Holders = dict(state.holders)
        self.records: dict[str, Record] = dict(state.records)
        self.events: list[Any] = []
        self.changed: set[Any] = set()
        """Keys of claims and holders whose rows changed without an event."""

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
        self.changed.add(claim.key)

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
        """Whether a silent sub-agent of the caller holds it."""
        of_session = claim.who.session == who.session and claim.who.principal == who.principal
        if not (of_session and claim.who.agent.startswith(who.agent + "/")):
            return False
        holder = self.holders.get(claim.who)
        return holder is not None and holder.is_silent(self.now)

    # --- grants

    def ends_at(self, claim: Claim) -> int:
        """When a grant ends by the steady clock. A grant whose holder is unknown has a full life from now."""
        if claim.deadline is not None:
            return claim.deadline
        holder = self.holders.get(claim.who)
        return self.now + self.moment.life if holder is None else holder.expires_at

    def list_grants(self, *resources: str) -> Iterator[Claim]:
        """Live grants that overlap one of the resources, the oldest first."""
        for claim in sorted(self.claims.values(), key=_POSITION):
            if not claim.is_ticket and any(overlap(claim.resource, it) for it in resources):
                if self.ends_at(claim) > self.now:
                    yield claim

    def find_own(self, resource: str, who: Who) -> Claim | None:
        """The caller's grant of exactly this resource."""
        return next((it for it in self.list_grants(resource) if it.resource == resource and self.is_own(it, who)), None)

    def list_obstacles(self, wanted: Wanted) -> Iterator[Claim]:
        """The grants of others that exclude it."""
        for claim in self.list_grants(*wanted.resources):
            if wanted.mode == "shared" == claim.mode:
                continue
            who = wanted.who
            if not (self.is_own(claim, who) or self.lets_in(claim, who) or self.is_abandoned_to(claim, who)):
                yield claim

    # --- tickets

    def list_waiters(self) -> list[Claim]:
        """The tickets whose waiters are in a call, in queue order."""
        tickets = [it for it in self.claims.values() if it.is_ticket and it.waits_until > self.now]
        return sorted(tickets, key=_POSITION)

    def list_earlier(self, wanted: Wanted) -> list[Claim]:
        """The waiters that came earlier and exclude it, except those that wait for the caller."""
        waiters = self.list_waiters()
        earlier = [
            ticket
            for ticket in waiters
            if ticket.position < wanted.position
            and wants(ticket, wanted.resources)
            and not (wanted.mode == "shared" == ticket.mode)
            and not self.is_own(ticket, wanted.who)
            and not self.lets_in(ticket, wanted.who)
        ]
        return [it for it in earlier if not self.waits_for(it.who, wanted.who, waiters)]

    def waits_for(self, start: Who, goal: Who, waiters: list[Claim]) -> bool:
        """Whether one agent waits for another, directly or through others."""
        reached, rest = {start}, [start]
        while rest:
            who = rest.pop()
            for number, ticket in enumerate(waiters):
                if ticket.who != who:
                    continue
                wanted = Wanted.of(ticket)
                others = {it.who for it in self.list_obstacles(wanted)}
                others |= {it.who for it in waiters[:number] if self._excludes(it, wanted)}
                if goal in others:
                    return True
                rest += others - reached
                reached |= others
        return False

    def _excludes(self, earlier: Claim, wanted: Wanted) -> bool:
        shares = wanted.mode == "shared" == earlier.mode
        return wants(earlier, wanted.resources) and not shares and not self.lets_in(earlier, wanted.who)

    def is_free(self, wanted: Wanted) -> bool:
        return next(self.list_obstacles(wanted), None) is None and not self.list_earlier(wanted)

    def stream_of(self, resource: str) -> str:
        return claim_stream(resource)


def _POSITION(claim: Claim) -> int:  # noqa: N802
    return claim.position
