"""Which claims a decision may depend on: those that can be reached from some resources.

A claim leads to what its tickets request, and to what its holders and waiters wait for elsewhere. So the board has
everyone that an agent may wait for, directly or through others, and a claim elsewhere costs nothing.
"""

from collections.abc import Iterable

from holdlog.domain.claims.claim import Claim, Grant, Ticket
from holdlog.domain.claims.lease import Who
from holdlog.domain.claims.resource import overlap
from holdlog.domain.ports import Reader


def reach(reader: Reader, resources: Iterable[str], who: Who | None = None) -> list[Claim]:
    """The claims that overlap these resources or what the caller's session waits for, and all that can be reached from
    them."""
    tickets = reader.leases.tickets()
    if not tickets:
        return list({claim.resource: claim for claim in reader.overlapping(list(resources))}.values())
    found: dict[str, Claim] = {}
    joint = reader.joint()
    wanted, waiters = set(resources), {who.agent} if who is not None else set()
    if who is not None and who.session is not None:
        wanted |= {lease.resource for lease in reader.leases.of_session(who.session) if lease.kind == "waits"}
    followed: set[str] = set()
    loaded_for: set[str] = set()
    while wanted or waiters:
        claims = [it for it in reader.overlapping(sorted(wanted)) if it.resource not in found]
        claims += [it for it in joint if it.resource not in found and _requests(it, wanted)]
        found |= {claim.resource: claim for claim in claims}
        loaded_for |= wanted
        wanted = {resource for claim in claims for ticket in claim.line for resource in requested(claim, ticket)}
        waiters |= {part.agent for claim in claims for part in parts(claim)}
        if tickets > sum(len(claim.line) for claim in found.values()):
            wanted |= set(reader.leases.waited_for(sorted(waiters - followed)))
            followed |= waiters
        wanted, waiters = wanted - loaded_for, set()
    return list(found.values())


def parts(claim: Claim) -> list[Grant | Ticket]:
    return [*claim.grants, *claim.line]


def requested(claim: Claim, ticket: Ticket) -> tuple[str, ...]:
    """The resources that a ticket requests, of any of its options."""
    return claim.resource, *ticket.also, *ticket.alternatives


def _requests(claim: Claim, wanted: set[str]) -> bool:
    """Whether a ticket of the claim requests something that overlaps one of these."""
    named = {resource for ticket in claim.line for resource in requested(claim, ticket)}
    return any(overlap(one, other) for one in named for other in wanted)
