"""The rule of claims a second time, by brute force over a small world; nothing here is shared with the product.

A resource is the set of points that it covers, a deadlock is a set of agents found by trying all sets.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import NamedTuple

from holdlog.domain.claims.lease import Lease
from tests.support.claim_steps import Seen

POINTS = ("a", "a/b", "a/b/c", "a/b/d", "a/e", "d", "d/e")


class Agent(NamedTuple):
    name: str
    session: str | None


class Has(NamedTuple):
    """A grant. `gone`: its session ended, so an agent of that name may resume it."""

    resource: str
    mode: str
    agent: Agent
    gone: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        return (self.resource,)


class Wants(NamedTuple):
    """A ticket whose waiter is in its call, or who asks just now: all resources of one of the options."""

    turn: float
    mode: str
    agent: Agent
    options: tuple[tuple[str, ...], ...]

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(chain(*self.options))


class Scene(NamedTuple):
    has: tuple[Has, ...]
    wants: tuple[Wants, ...]


def scene(seen: Seen) -> Scene:
    """What counts now: live grants, and tickets of waiters that are in their calls, in turn."""
    has, wants = [], []
    for claim in seen.claims.values():
        for grant in claim.grants:
            lease = seen.leases.get((claim.resource, grant.version))
            if lease is not None and lease.deadline > seen.now:
                has.append(Has(claim.resource, grant.mode, agent_of(lease), lease.has_ended(seen.now)))
    for ticket in seen.tickets:
        lease = seen.leases.get((ticket.resource, ticket.version))
        if lease is not None and lease.deadline > seen.now and lease.waiting_until > seen.now:
            options = ((ticket.resource, *ticket.also), *((other,) for other in ticket.alternatives))
            wants.append(Wants(ticket.turn, ticket.mode, agent_of(lease), options))
    return Scene(tuple(has), tuple(sorted(wants)))


def agent_of(lease: Lease) -> Agent:
    """Who has no session is told from others by the receipt."""
    return Agent(lease.agent, lease.session or lease.receipt)


# --- what goes together


def points(resources: Iterable[str]) -> set[str]:
    found = set()
    for resource in resources:
        found |= {
            it for it in POINTS if it == resource.rstrip("/") or (resource[-1] == "/" and it.startswith(resource))
        }
    return found


def clash(one: Has | Wants, mode: str, resources: Iterable[str]) -> bool:
    return bool(points(one.resources) & points(resources)) and not (one.mode == mode == "shared")


def is_other(one: Has | Wants, agent: Agent) -> bool:
    """Neither the same agent nor, in one session, its ancestor. Receipts (`r…`) are no sessions."""
    family = one.agent.session == agent.session and not (agent.session or "r").startswith("r")
    return not is_same(one, agent) and not (family and agent.name.startswith(one.agent.name + "/"))


def is_same(one: Has | Wants, agent: Agent) -> bool:
    return one.agent == agent


def is_resumed(one: Has, wish: Wants, option: tuple[str, ...]) -> bool:
    """Whether an ended session of the same name left this very resource."""
    return one.gone and one.agent.name == wish.agent.name and one.resource in option


def rivals(scene: Scene, wish: Wants, option: tuple[str, ...]) -> set[Agent]:
    return {
        it.agent
        for it in scene.has
        if is_other(it, wish.agent) and clash(it, wish.mode, option) and not is_resumed(it, wish, option)
    }


# --- the grant rule


def waits_for(scene: Scene, start: Agent, goal: Agent) -> bool:
    """Over holders and earlier tickets, through as many others as it takes."""
    reached = {start}
    while True:
        more = {found for wish in scene.wants if wish.agent in reached for found in _waits_directly(scene, wish)}
        if goal in more:
            return True
        if more <= reached:
            return False
        reached |= more


def _waits_directly(scene: Scene, wish: Wants) -> Iterator[Agent]:
    for option in wish.options:
        yield from rivals(scene, wish, option)
        for it in scene.wants:
            if it.turn < wish.turn and is_other(it, wish.agent) and clash(it, wish.mode, option):
                yield it.agent


def in_front(scene: Scene, wish: Wants, option: tuple[str, ...]) -> list[Wants]:
    """What is only taken back from an ended session is held already."""
    modes = ("exclusive", wish.mode)
    back = {it.resource for it in scene.has if is_resumed(it, wish, option) and it.mode in modes}
    option = tuple(resource for resource in option if resource not in back)
    return [
        it
        for it in scene.wants
        if it.turn < wish.turn
        and is_other(it, wish.agent)
        and clash(it, wish.mode, option)
        and not waits_for(scene, it.agent, wish.agent)
    ]


def grantable(scene: Scene, wish: Wants) -> tuple[str, ...] | None:
    """The first option that the rule lets the agent have, unless some would then wait for each other for ever."""
    free = (option for option in wish.options if is_free(scene, wish, option))
    return next((option for option in free if not deadlocks(scene, wish, option)), None)


def is_free(scene: Scene, wish: Wants, option: tuple[str, ...]) -> bool:
    return not rivals(scene, wish, option) and not in_front(scene, wish, option)


def deadlocks(scene: Scene, wish: Wants, option: tuple[str, ...]) -> bool:
    """Whether some would wait for each other for ever once the agent had this option."""
    given = tuple(Has(resource, wish.mode, wish.agent) for resource in option)
    kept = [
        it
        for it in scene.has
        if not (it.resource in option and is_same(it, wish.agent)) and not is_resumed(it, wish, option)
    ]
    return bool(deadlocked(Scene((*kept, *given), tuple(it for it in scene.wants if it.turn != wish.turn))))


def holds_all(scene: Scene, wish: Wants, option: tuple[str, ...]) -> bool:
    own = {it.resource for it in scene.has if is_same(it, wish.agent) and it.mode == wish.mode}
    return set(option) <= own


def deadlocked(scene: Scene) -> set[Agent]:
    """A set of waiting agents that only one another could let go on; empty when there is none."""
    waiting = sorted({wish.agent for wish in scene.wants})
    blocked = [(wish.agent, [rivals(scene, wish, option) for option in wish.options]) for wish in scene.wants]
    for size in range(2, len(waiting) + 1):
        for members in map(set, combinations(waiting, size)):
            stuck = {agent for agent, options in blocked if all(option & members for option in options)}
            if members <= stuck:
                return members
    return set()
