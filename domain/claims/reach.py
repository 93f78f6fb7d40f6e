"""Which claims and tickets a decision may depend on: those that can be reached from some resources.

A claim leads to what its tickets request, and to what its holders and waiters wait for elsewhere. So the board has
everyone that an agent may wait for, directly or through others, and a claim elsewhere costs nothing.
"""

from collections.abc import Iterable

from holdlog.domain.claims.claim import Claim, Ticket, requested, wants
from holdlog.domain.claims.lease import Who
from holdlog.domain.ports import Reader


def reach(
    reader: Reader, resources: Iterable[str], ticket_count: int, who: Who | None = None
) -> tuple[list[Claim], list[Ticket]]:
    """The claims that overlap these resources or what the caller's session waits for, all that can be reached from
    them, and the tickets in their queues. `ticket_count`: of all tickets in the store."""
    claims: dict[str, Claim] = {}
    tickets: list[Ticket] = []
    joint = reader.joint_tickets()
    wanted, agents = set(resources), {who.agent} if who is not None else set()
    if who is not None and who.session is not None:
        wanted |= {lease.resource for lease in reader.leases.of_session(who.session) if lease.kind == "waits"}
    loaded_for: set[str] = set()
    followed: set[str] = set()
    while wanted or agents:
        new = {it.resource: it for it in reader.overlapping(sorted(wanted)) if it.resource not in claims}
        claims |= new
        awaited = [claim.resource for claim in new.values() if claim.waiting]
        queued = reader.tickets(awaited)
        tickets += queued
        agents |= {grant.agent for claim in new.values() for grant in claim.grants}
        loaded_for |= wanted
        wanted = {*awaited, *(it for ticket in joint if wants(ticket, wanted) for it in requested(ticket))}
        if ticket_count > len(tickets):
            agents |= {ticket.agent for ticket in queued}
            wanted |= set(reader.awaited_by(sorted(agents - followed)))
            followed |= agents
        wanted, agents = wanted - loaded_for, set()
    return list(claims.values()), tickets
