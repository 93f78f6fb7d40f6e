"""The board: all claims and leases that are relevant to one command, and the rules for which claims are compatible.

The rule: a wanted claim is granted if it is compatible with every live grant of others, and with every earlier ticket
whose waiter is in a call now, unless that waiter itself waits for the caller.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from holdlog.domain.claims.claim import Claim, Grant, Mode, PastHold, Ticket, wants
from holdlog.domain.claims.lease import Lease, Who
from holdlog.domain.claims.resource import covering

ResourceSet = tuple[str, ...]
"""Resources that an agent requests together."""
Key = tuple[str, int]
"""Resource and version: identifies a grant or a ticket, and its lease."""
_TURN: Final = attrgetter("turn")


class WantedClaim(NamedTuple):
    """What an agent requests: all resources of one of the `options`. `turn`: its place among all tickets."""

    who: Who
    mode: Mode
    options: tuple[ResourceSet, ...]
    turn: float = float("inf")


class LiveHold(NamedTuple):
    """A live grant and its lease."""

    resource: str
    grant: Grant
    lease: Lease


class Waiting(NamedTuple):
    """A live ticket."""

    resource: str
    ticket: Ticket
    lease: Lease

    @property
    def wanted(self) -> WantedClaim:
        ticket = self.ticket
        options = ((self.resource, *ticket.also), *((other,) for other in ticket.alternatives))
        return WantedClaim(self.lease.who, ticket.mode, options, ticket.turn)


class ClaimBoard:
    """The claims and leases that a command may depend on, at one moment. Deciders never change it: see draft.py.

    `now`: the store's steady clock; a lease that is due by then counts as ended. `at`: microseconds UTC. `restored`:
    leases that are not stored yet, because the store did not know them. `ticket_count`: in all queues of the store.
    """

    def __init__(
        self,
        claims: Iterable[Claim],
        tickets: Collection[Ticket],
        leases: Mapping[Key, Lease],
        now: int,
        at: int,
        restored: Mapping[Key, Lease] = MappingProxyType({}),
        ticket_count: int = 0,
    ) -> None:
        self.claims = {claim.resource: claim for claim in sorted(claims)}
        self.tickets = {ticket[:2]: ticket for ticket in sorted(tickets, key=_TURN)} if tickets else {}
        self.restored = restored
        self.leases = {**leases, **restored}
        self.now = now
        self.at = at
        self.ticket_count = ticket_count
        self.queue = self._live_tickets() if tickets else {}
        """All live tickets, in queue order."""
        self._overlapping_holds: dict[str, list[LiveHold]] = {}

    # --- holds

    def claim(self, resource: str) -> Claim:
        return self.claims.get(resource) or Claim(resource)

    def lease(self, resource: str, version: int) -> Lease | None:
        """The lease, unless it has expired."""
        lease = self.leases.get((resource, version))
        return lease if lease is not None and lease.deadline > self.now else None

    def overlapping(self, resource: str) -> list[Claim]:
        claims = self.claims
        found = [claims[name] for name in covering(resource) if name in claims]
        if resource[-1] == "/":
            found += [claim for name, claim in claims.items() if name.startswith(resource) and name != resource]
        return found

    def holds(self, resource: str) -> list[LiveHold]:
        """The live grants of exactly this resource, oldest first."""
        if not self.leases or (claim := self.claims.get(resource)) is None:
            return []
        found: list[LiveHold] = []
        for grant in claim.grants:
            lease = self.leases.get((resource, grant.version))
            if lease is not None and lease.deadline > self.now:
                found.append(LiveHold(resource, grant, lease))
        return found

    def hold_of(self, resource: str, who: Who) -> LiveHold | None:
        claim = self.claims.get(resource)
        for grant in claim.grants if claim is not None else ():
            lease = self.leases.get((resource, grant.version))
            if lease is not None and lease.deadline > self.now and lease.is_of(who):
                return LiveHold(resource, grant, lease)
        return None

    def holds_all(self, option: ResourceSet, who: Who, mode: Mode) -> bool:
        for resource in option:
            hold = self.hold_of(resource, who)
            if hold is None or hold.grant.mode != mode:
                return False
        return True

    def former_holds(self, resource: str, who: Who) -> list[LiveHold]:
        """The holds of exactly this resource by ended sessions with the same agent name and principal."""
        return [hold for hold in self.holds(resource) if hold.lease.is_left_to(who, self.now)] if self.leases else []

    def conflicting_holds(
        self, resource: str, mode: Mode, who: Who | None, option: ResourceSet = ()
    ) -> Iterator[LiveHold]:
        """The holds that conflict with a claim of the resource. Two shared claims never conflict. `who` None: every
        holder counts as somebody else. Holds of resources in `option` that `who` may resume do not conflict."""
        for hold in self._holds_that_overlap(resource):
            if mode == "shared" == hold.grant.mode:
                continue
            if who is None or not self._admits(hold, who, option or (resource,)):
                yield hold

    def _holds_that_overlap(self, resource: str) -> list[LiveHold]:
        found = self._overlapping_holds.get(resource)
        if found is None:
            found = [hold for claim in self.overlapping(resource) for hold in self.holds(claim.resource)]
            self._overlapping_holds[resource] = found
        return found

    def _admits(self, hold: LiveHold, who: Who, option: ResourceSet) -> bool:
        lease = hold.lease
        if not lease.may_admit(who.agent):
            return False
        resumes = hold.resource in option and lease.is_left_to(who, self.now)
        return resumes or lease.is_of(who) or lease.lets_in(who)

    def last_end(self, option: ResourceSet) -> tuple[str, PastHold] | None:
        """The most recently ended hold of these resources or of overlapping ones, with its resource; None if there is
        none."""
        last: tuple[str, PastHold] | None = None
        for resource in option:
            exact = self.claims.get(resource)
            for claim in (*((exact,) if exact is not None else ()), *self.overlapping(resource)):
                if claim.past is not None and (last is None or claim.past.at > last[1].at):
                    last = claim.resource, claim.past
        return last

    # --- tickets

    def waiting(self) -> list[Waiting]:
        """All live tickets, in queue order."""
        return list(self.queue.values())

    def _live_tickets(self) -> dict[Key, Waiting]:
        leases, now = self.leases, self.now
        return {
            key: Waiting(ticket.resource, ticket, lease)
            for key, ticket in self.tickets.items()
            if (lease := leases.get(key)) is not None and lease.deadline > now
        }

    def present(self) -> list[Waiting]:
        """The live tickets whose waiters are in a call."""
        now = self.now
        return [waiting for waiting in self.queue.values() if waiting.lease.waiting_until > now]

    def tickets_of(self, resource: str, who: Who) -> list[Waiting]:
        """The tickets of `who` for exactly this resource, and those of ended sessions with the same name and
        principal."""
        if not self.queue:
            return []
        return [
            waiting
            for waiting in self.tickets_under(who.agent)
            if waiting.resource == resource and (waiting.lease.is_of(who) or waiting.lease.is_left_to(who, self.now))
        ]

    def tickets_under(self, agent: str) -> list[Waiting]:
        """The live tickets under an agent's name, in queue order."""
        return [waiting for waiting in self.queue.values() if waiting.ticket.agent == agent]

    def queued_for(self, *resources: str) -> list[Waiting]:
        """The live tickets for anything that overlaps these resources, in queue order."""
        if not self.queue:
            return []
        return [waiting for waiting in self.queue.values() if wants(waiting.ticket, resources)]

    # --- who may have what

    def is_free(self, wanted: WantedClaim, option: ResourceSet) -> bool:
        return self.blocking_hold(wanted, option) is None and not self.queued_before(wanted, option)

    def blocking_hold(self, wanted: WantedClaim, option: ResourceSet) -> LiveHold | None:
        """The first hold that conflicts with this option."""
        if not self.leases:
            return None
        for resource in option:
            for hold in self.conflicting_holds(resource, wanted.mode, wanted.who, option):
                return hold
        return None

    def queued_before(self, wanted: WantedClaim, option: ResourceSet) -> list[Waiting]:
        """The waiters in a call that came earlier and want the same, except those that wait for the caller. Nobody is
        ahead in the queue for a resource whose claim the caller resumes from an ended session of its name."""
        if not self.queue or not (present := self.present()):
            return []
        option = tuple(resource for resource in option if not self._resumes(resource, wanted))
        earlier = [
            waiting
            for waiting in present
            if waiting.ticket.turn < wanted.turn
            and precedes(waiting, wanted, option)
            and not waiting.lease.is_of(wanted.who)
        ]
        if not earlier or not self._holds_or_waits(wanted.who):
            return earlier
        links = WaitLinks(self)
        return [waiting for waiting in earlier if not links.reach(waiting.lease.who, wanted.who)]

    def _resumes(self, resource: str, wanted: WantedClaim) -> bool:
        former = self.former_holds(resource, wanted.who)
        return any(hold.grant.mode in ("exclusive", wanted.mode) for hold in former)

    def _holds_or_waits(self, who: Who) -> bool:
        """Whether `who` has a grant or a ticket here; otherwise no agent waits for it."""
        return any(lease.agent == who.agent and lease.who == who for lease in self.leases.values())

    def holders(self, wanted: WantedClaim, option: ResourceSet) -> set[Who]:
        """Who holds what conflicts with this option."""
        return {
            hold.lease.who
            for resource in option
            for hold in self.conflicting_holds(resource, wanted.mode, wanted.who, option)
        }


class WaitLinks:
    """Who waits for whom on a board: waiters wait for holders, and for waiters ahead of them."""

    def __init__(self, board: ClaimBoard) -> None:
        self._board = board
        self._present = board.present()
        self._known: dict[Who, set[Who]] = {}

    def reach(self, start: Who, goal: Who) -> bool:
        """Whether `start` waits for `goal`, directly or through others."""
        seen, rest = {start}, [start]
        while rest:
            for found in self._of(rest.pop()) - seen:
                if found == goal:
                    return True
                seen.add(found)
                rest.append(found)
        return False

    def _of(self, who: Who) -> set[Who]:
        found = self._known.get(who)
        if found is None:
            found = self._known[who] = set()
            for number, waiting in enumerate(self._present):
                if waiting.lease.agent == who.agent and waiting.lease.who == who:
                    found |= self._waited_for(waiting.wanted, self._present[:number])
            found.discard(who)
        return found

    def _waited_for(self, wanted: WantedClaim, earlier: list[Waiting]) -> set[Who]:
        found: set[Who] = set()
        for option in wanted.options:
            found |= self._board.holders(wanted, option)
            found |= {before.lease.who for before in earlier if precedes(before, wanted, option)}
        return found


def precedes(earlier: Waiting, wanted: WantedClaim, option: ResourceSet) -> bool:
    """Whether an earlier ticket has precedence for this option; not for a ticket of the same agent."""
    return (
        wants(earlier.ticket, option)
        and not (wanted.mode == "shared" == earlier.ticket.mode)
        and not earlier.lease.lets_in(wanted.who)
    )
