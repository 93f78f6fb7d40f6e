"""The board: all claims and leases that are relevant to one command, and the rules for which claims are compatible.

The rule: a wanted claim is granted if it is compatible with every live grant of others, and with every earlier ticket
whose waiter is in a call now, unless that waiter itself waits for the caller.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdlog.domain.claims.claim import Claim, ClaimEvent, Grant, Mode, PastHold, Ticket, evolve
from holdlog.domain.claims.lease import Lease, Loss, Who
from holdlog.domain.claims.resource import covering, overlap
from holdlog.domain.refusals import Link

ResourceSet = tuple[str, ...]
"""Resources that an agent requests together."""


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
    """All relevant claims and leases, and the changes that a command makes to them. `now`: the store's steady clock; a
    lease that is due by then counts as ended. `at`: microseconds UTC.

    Records each decision of a command immediately, so that the next step sees it: `changes` are the events, `kept` and
    `dropped` the changed and removed leases, `losses` the grants that ended without a release by their holder.
    """

    def __init__(self, claims: Iterable[Claim], leases: Iterable[Lease], now: int, at: int) -> None:
        self.claims = {claim.resource: claim for claim in sorted(claims, key=lambda claim: claim.resource)}
        self.leases = {lease.key: lease for lease in leases}
        self.now = now
        self.at = at
        self.changes: list[tuple[Claim, ClaimEvent, Claim]] = []
        self.kept: dict[tuple[str, int], Lease] = {}
        self.dropped: set[tuple[str, int]] = set()
        self.losses: list[Loss] = []

    def copy(self) -> "ClaimBoard":
        """A copy to try changes on."""
        return ClaimBoard(self.claims.values(), self.leases.values(), self.now, self.at)

    # --- read

    def claim(self, resource: str) -> Claim:
        return self.claims.get(resource) or Claim(resource)

    def lease(self, resource: str, version: int) -> Lease | None:
        """The lease, unless it has expired."""
        lease = self.leases.get((resource, version))
        return lease if lease is not None and lease.deadline > self.now else None

    def overlapping(self, resource: str) -> Iterator[Claim]:
        for name in covering(resource):
            if name in self.claims:
                yield self.claims[name]
        if resource.endswith("/"):
            yield from (claim for name, claim in self.claims.items() if name.startswith(resource) and name != resource)

    def holds(self, resource: str) -> list[LiveHold]:
        """The live grants of exactly this resource, oldest first."""
        found = ((grant, self.lease(resource, grant.version)) for grant in self.claim(resource).grants)
        return [LiveHold(resource, grant, lease) for grant, lease in found if lease is not None]

    def hold_of(self, resource: str, who: Who) -> LiveHold | None:
        return next((hold for hold in self.holds(resource) if hold.lease.is_of(who)), None)

    def former_holds(self, resource: str, who: Who) -> list[LiveHold]:
        """The holds of exactly this resource by ended sessions with the same agent name and principal."""
        return [hold for hold in self.holds(resource) if hold.lease.is_left_to(who, self.now)]

    def conflicting_holds(
        self, resource: str, mode: Mode, who: Who | None, option: ResourceSet = ()
    ) -> Iterator[LiveHold]:
        """The holds that conflict with a claim of the resource. Two shared claims never conflict. `who` None: every
        holder counts as somebody else. Holds of resources in `option` that `who` may resume do not conflict."""
        for claim in self.overlapping(resource):
            for hold in self.holds(claim.resource):
                if mode == "shared" == hold.grant.mode:
                    continue
                if who is None or not self._admits(hold, who, option or (resource,)):
                    yield hold

    def _admits(self, hold: LiveHold, who: Who, option: ResourceSet) -> bool:
        lease = hold.lease
        resumes = hold.resource in option and lease.is_left_to(who, self.now)
        return resumes or lease.is_of(who) or lease.lets_in(who)

    def waiting(self) -> list[Waiting]:
        """All live tickets, in queue order."""
        found = (
            Waiting(claim.resource, ticket, lease)
            for claim in self.claims.values()
            for ticket in claim.line
            if (lease := self.lease(claim.resource, ticket.version)) is not None
        )
        return sorted(found, key=lambda waiting: waiting.ticket.turn)

    def present(self) -> list[Waiting]:
        """The live tickets whose waiters are in a call."""
        return [waiting for waiting in self.waiting() if waiting.lease.waiting_until > self.now]

    def tickets_of(self, resource: str, who: Who) -> list[Waiting]:
        """The tickets of `who` for exactly this resource, and those of ended sessions with the same name and
        principal."""
        return [
            Waiting(resource, ticket, lease)
            for ticket in self.claim(resource).line
            if (lease := self.lease(resource, ticket.version)) is not None
            and (lease.is_of(who) or lease.is_left_to(who, self.now))
        ]

    def queued_for(self, resource: str) -> list[Waiting]:
        """The live tickets for anything that overlaps the resource, in queue order."""
        return [waiting for waiting in self.waiting() if _wants(waiting, (resource,))]

    def last_end(self, option: ResourceSet) -> tuple[str, PastHold] | None:
        """The most recently ended hold of these resources or of overlapping ones, with its resource; None if there is
        none."""
        claims = [claim for resource in option for claim in (self.claim(resource), *self.overlapping(resource))]
        ends = [(claim.resource, claim.past) for claim in claims if claim.past is not None]
        return max(ends, key=lambda end: end[1].at, default=None)

    # --- decide

    def is_free(self, wanted: WantedClaim, option: ResourceSet) -> bool:
        return not any(
            True for resource in option for _ in self.conflicting_holds(resource, wanted.mode, wanted.who, option)
        ) and not (self.queued_before(wanted, option))

    def queued_before(self, wanted: WantedClaim, option: ResourceSet) -> list[Waiting]:
        """The waiters in a call that came earlier and want the same, except those that wait for the caller. Nobody is
        ahead in the queue for a resource whose claim the caller resumes from an ended session of its name."""
        option = tuple(resource for resource in option if not self._resumes(resource, wanted))
        earlier = [
            waiting
            for waiting in self.present()
            if waiting.ticket.turn < wanted.turn
            and not waiting.lease.is_of(wanted.who)
            and not waiting.lease.lets_in(wanted.who)
            and not (wanted.mode == "shared" == waiting.ticket.mode)
            and _wants(waiting, option)
        ]
        if not earlier or not self._holds_or_waits(wanted.who):
            return earlier
        links = self._links()
        return [waiting for waiting in earlier if not _reaches(links, waiting.lease.who, wanted.who)]

    def _resumes(self, resource: str, wanted: WantedClaim) -> bool:
        former = self.former_holds(resource, wanted.who)
        return any(hold.grant.mode in ("exclusive", wanted.mode) for hold in former)

    def cycle(self, wanted: WantedClaim) -> list[Link]:
        """The cycle of agents that would wait for each other if this claim waited; empty if there is none."""
        all_wanted = [wanted, *(waiting.wanted for waiting in self.present())]
        return self._first_cycle(
            [it for it in all_wanted if it.who == wanted.who], all_wanted
        )  # or another call of the same agent

    def closed_cycle(self) -> list[Link]:
        """The cycle of agents that already wait for each other; empty if there is none. A grant to an agent that also
        waits can close one."""
        all_wanted = [waiting.wanted for waiting in self.present()]
        return self._first_cycle(all_wanted, all_wanted)

    # --- record

    def record(self, resource: str, event: ClaimEvent) -> int:
        """Record the event. Returns its version."""
        before = self.claim(resource)
        self.claims[resource] = after = evolve(before, event, self.at)
        self.changes.append((before, event, after))
        return after.version

    def keep(self, lease: Lease) -> None:
        self.leases[lease.key] = self.kept[lease.key] = lease
        self.dropped.discard(lease.key)

    def drop(self, key: tuple[str, int]) -> None:
        self.leases.pop(key, None)
        self.kept.pop(key, None)
        self.dropped.add(key)

    def revive(self, who: Who, server: str) -> bool:
        """Mark the leases of the caller's session as alive again. Returns whether any of them counted as belonging to
        an ended session."""
        if who.session is None or not server:
            return False
        theirs = [it for it in self.leases.values() if (it.session, it.principal) == (who.session, who.principal)]
        ended = [lease for lease in theirs if lease.has_ended(self.now)]
        for lease in ended:
            self.keep(lease.revived(server, self.now))
        return bool(ended)

    # --- who waits for whom

    def _holds_or_waits(self, who: Who) -> bool:
        """Whether `who` has a grant or a ticket here; otherwise no agent waits for it."""
        return any(lease.who == who for lease in self.leases.values())

    def _holders(self, wanted: WantedClaim, option: ResourceSet) -> set[Who]:
        return {
            hold.lease.who
            for resource in option
            for hold in self.conflicting_holds(resource, wanted.mode, wanted.who, option)
        }

    def _links(self) -> dict[Who, set[Who]]:
        """The agents that each waiter waits for: holders, and waiters ahead of it."""
        links: dict[Who, set[Who]] = {}
        present = self.present()
        for number, waiting in enumerate(present):
            wanted = waiting.wanted
            found = links.setdefault(wanted.who, set())
            for option in wanted.options:
                found |= self._holders(wanted, option)
                found |= {
                    before.lease.who
                    for before in present[:number]
                    if _wants(before, option)
                    and not (wanted.mode == "shared" == before.ticket.mode)
                    and not before.lease.lets_in(wanted.who)
                }
            found.discard(wanted.who)
        return links

    def _stuck(self, all_wanted: list[WantedClaim]) -> set[Who]:
        """The deadlocked waiters: each waits for a holder among them. A claim with several options is stuck if all of
        them are.

        The order of the queue does not matter: a waiter is overtaken by the agent that it waits for.
        """
        holders = [(wanted.who, [self._holders(wanted, option) for option in wanted.options]) for wanted in all_wanted]
        stuck = {who for who, _ in holders}
        while True:
            still = {who for who, options in holders if all(option & stuck for option in options)}
            if still == stuck:
                return stuck
            stuck = still

    def _first_cycle(self, starts: list[WantedClaim], all_wanted: list[WantedClaim]) -> list[Link]:
        stuck = self._stuck(all_wanted)
        return next((self._cycle_of(it, all_wanted, stuck) for it in starts if self._is_stuck(it, stuck)), [])

    def _cycle_of(self, wanted: WantedClaim, all_wanted: list[WantedClaim], stuck: set[Who]) -> list[Link]:
        path: list[tuple[Who, str]] = []  # an agent, and what it waits for
        while wanted.who not in (who for who, _ in path):
            hold = self._stuck_hold(wanted, stuck)
            path.append((wanted.who, hold.resource))
            wanted = next(it for it in all_wanted if it.who == hold.lease.who and self._is_stuck(it, stuck))
        cycle = path[[who for who, _ in path].index(wanted.who) :]
        return [
            Link(who.agent, cycle[number - 1][1], waited, who.principal) for number, (who, waited) in enumerate(cycle)
        ]

    def _is_stuck(self, wanted: WantedClaim, stuck: set[Who]) -> bool:
        return all(self._holders(wanted, option) & stuck for option in wanted.options)

    def _stuck_hold(self, wanted: WantedClaim, stuck: set[Who]) -> LiveHold:
        option = wanted.options[0]
        holds = (
            hold for resource in option for hold in self.conflicting_holds(resource, wanted.mode, wanted.who, option)
        )
        return next(hold for hold in holds if hold.lease.who in stuck)


def _wants(waiting: Waiting, option: ResourceSet) -> bool:
    """Whether any resource that a ticket requests overlaps one of these."""
    resources = (waiting.resource, *waiting.ticket.also, *waiting.ticket.alternatives)
    return any(overlap(one, other) for one in resources for other in option)


def _reaches(links: dict[Who, set[Who]], start: Who, goal: Who) -> bool:
    seen, rest = {start}, [start]
    while rest:
        for found in links.get(rest.pop(), set()) - seen:
            if found == goal:
                return True
            seen.add(found)
            rest.append(found)
    return False
