"""The rule of claims a second time, by brute force over a small world; nothing here is shared with the product.

A resource is the set of points that it covers, a deadlock is a set of agents found by trying all sets.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import NamedTuple

from holdlog.domain.claims.lease import Lease
from tests.claim_steps import Seen

POINTS = ("a", "a/b", "a/b/c", "a/b/d", "a/e", "d", "d/e")


class Agent(NamedTuple):
    name: str
    session: str | None


class Has(NamedTuple):
    """A grant. `gone`: its session ended, so that whoever has the name is the same agent."""

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
    gone: bool = False

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
                has.append(Has(claim.resource, grant.mode, _agent(lease), not lease.server))
        for ticket in claim.line:
            lease = seen.leases.get((claim.resource, ticket.version))
            if lease is not None and lease.deadline > seen.now and lease.present_until > seen.now:
                options = ((claim.resource, *ticket.also), *((other,) for other in ticket.alternatives))
                wants.append(Wants(ticket.turn, ticket.mode, _agent(lease), options, not lease.server))
    return Scene(tuple(has), tuple(sorted(wants)))


def _agent(lease: Lease) -> Agent:
    return Agent(lease.agent, lease.session)


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
    """Neither the same agent nor, in one session, its ancestor."""
    ancestor = one.agent.session == agent.session and agent.name.startswith(one.agent.name + "/")
    return not is_same(one, agent) and not ancestor


def is_same(one: Has | Wants, agent: Agent) -> bool:
    return one.agent.name == agent.name and (one.agent.session == agent.session or one.gone)


def rivals(scene: Scene, wish: Wants, option: tuple[str, ...]) -> set[Agent]:
    return {it.agent for it in scene.has if is_other(it, wish.agent) and clash(it, wish.mode, option)}


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
    for option in wish.options:
        if not rivals(scene, wish, option) and not in_front(scene, wish, option):
            given = tuple(Has(resource, wish.mode, wish.agent) for resource in option)
            kept = [it for it in scene.has if it.resource not in option or not is_same(it, wish.agent)]
            if not deadlocked(Scene((*kept, *given), tuple(it for it in scene.wants if it.turn != wish.turn))):
                return option
    return None


def holds_all(scene: Scene, wish: Wants, option: tuple[str, ...]) -> bool:
    own = {it.resource for it in scene.has if is_same(it, wish.agent) and it.mode == wish.mode}
    return set(option) <= own


def come_back(scene: Scene, agent: Agent) -> Scene:
    """What a session that is gone left to the agent is its own from now on."""

    return Scene(
        tuple(it._replace(agent=agent, gone=False) if is_same(it, agent) else it for it in scene.has),
        tuple(it._replace(agent=agent, gone=False) if is_same(it, agent) else it for it in scene.wants),
    )


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
