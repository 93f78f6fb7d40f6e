"""The rule of claims a second time, by brute force over a small world; nothing here is shared with the product.

A resource is the set of points that it covers, a deadlock is a set of agents found by trying all sets.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

POINTS = ("a", "a/b", "a/b/c", "a/b/d", "a/e", "d", "d/e")
RESOURCES = ("a", "a/", "a/b", "a/b/", "a/b/c", "d", "d/")
NEW = float("inf")
"""The turn of a call that is not in the queue yet."""


class Agent(NamedTuple):
    name: str
    session: str


class Has(NamedTuple):
    """A grant."""

    resource: str
    mode: str
    agent: Agent
    version: int = 0

    @property
    def resources(self) -> tuple[str, ...]:
        return (self.resource,)


class Wants(NamedTuple):
    """A waiter in its call, or who calls just now."""

    turn: float
    mode: str
    agent: Agent
    resources: tuple[str, ...]


class Scene(NamedTuple):
    has: tuple[Has, ...]
    wants: tuple[Wants, ...]

    def without(self, wish: Wants) -> "Scene":
        return self._replace(wants=tuple(it for it in self.wants if it.turn != wish.turn))


# --- what goes together


@lru_cache(None)
def points(resources: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        point
        for it in resources
        for point in POINTS
        if point == it.rstrip("/") or (it.endswith("/") and point.startswith(it))
    )


def overlap(one: Iterable[str], other: Iterable[str]) -> bool:
    return not points(tuple(one)).isdisjoint(points(tuple(other)))


def clash(one: Has | Wants, mode: str, resources: tuple[str, ...]) -> bool:
    return not (one.mode == mode == "shared") and overlap(one.resources, resources)


def is_family(above: Agent, below: Agent) -> bool:
    return above.session == below.session and below.name.startswith(above.name + "/")


def is_other(one: Has | Wants, agent: Agent) -> bool:
    """Neither the same agent nor, in one session, its ancestor."""
    return one.agent != agent and not is_family(one.agent, agent)


# --- who is in the way


def rivals(scene: Scene, wish: Wants) -> set[Agent]:
    """Those that hold what excludes it."""
    return {it.agent for it in scene.has if is_other(it, wish.agent) and clash(it, wish.mode, wish.resources)}


def waits_for(scene: Scene, start: Agent, goal: Agent) -> bool:
    """Over holders and earlier waiters, through as many others as it takes."""
    reached = {start}
    while True:
        more = {found for wish in scene.wants if wish.agent in reached for found in _waits_directly(scene, wish)}
        if goal in more or more <= reached:
            return goal in more
        reached |= more


def _waits_directly(scene: Scene, wish: Wants) -> set[Agent]:
    return rivals(scene, wish) | {it.agent for it in _earlier(scene, wish)}


def _earlier(scene: Scene, wish: Wants) -> list[Wants]:
    return [
        it
        for it in scene.wants
        if it.turn < wish.turn and is_other(it, wish.agent) and clash(it, wish.mode, wish.resources)
    ]


def in_front(scene: Scene, wish: Wants) -> list[Wants]:
    """Earlier waiters that do not wait for it themselves."""
    return [it for it in _earlier(scene, wish) if not waits_for(scene, it.agent, wish.agent)]


# --- the grant rule


def is_free(scene: Scene, wish: Wants) -> bool:
    return not rivals(scene, wish) and not in_front(scene, wish)


def is_grantable(scene: Scene, wish: Wants) -> bool:
    """Free, and nobody would then wait for ever."""
    return is_free(scene, wish) and not would_deadlock(scene, wish)


def would_deadlock(scene: Scene, wish: Wants) -> bool:
    return bool(deadlocked(grant(scene, wish)))


def grant(scene: Scene, wish: Wants) -> Scene:
    given = tuple(Has(resource, wish.mode, wish.agent) for resource in wish.resources)
    kept = [it for it in scene.has if not (it.resource in wish.resources and it.agent == wish.agent)]
    return scene.without(wish)._replace(has=(*kept, *given))


def becomes_grantable(scene: Scene, wish: Wants) -> bool:
    """Grantable, if need be after other waiters: its arrival may let them overtake one that waits for it."""
    while not is_grantable(scene, wish):
        others = [it for it in scene.wants if it != wish and is_grantable(scene, it)]
        if not others:
            return False
        scene = grant(scene, others[0])
    return True


def holds_all(scene: Scene, wish: Wants) -> bool:
    own = {it.resource for it in scene.has if it.agent == wish.agent and it.mode == wish.mode}
    return set(wish.resources) <= own


def shares_alone(scene: Scene, wish: Wants) -> bool:
    """It shares the resource and wants it alone: it would wait for itself."""
    own = [it for it in scene.has if it.agent == wish.agent and it.resource == wish.resources[0]]
    return wish.mode == "exclusive" and any(it.mode == "shared" for it in own)


def deadlocked(scene: Scene) -> set[Agent]:
    """A set of waiting agents that only one another could let go on; empty when there is none."""
    waiting = sorted({wish.agent for wish in scene.wants})
    blocked = [(wish.agent, rivals(scene, wish)) for wish in scene.wants]
    for size in range(2, len(waiting) + 1):
        for members in map(set, combinations(waiting, size)):
            if members <= {agent for agent, others in blocked if others & members}:
                return members
    return set()


# --- what must always hold


def exclude(one: Has, other: Has) -> bool:
    related = is_family(one.agent, other.agent) or is_family(other.agent, one.agent)
    return one.agent != other.agent and not related and clash(one, other.mode, other.resources)


def violations(scene: Scene) -> list[str]:
    found = [f"{wish} waits although it is free" for wish in scene.wants if is_grantable(scene, wish)]
    found += [f"{ring} wait for each other for ever" for ring in [deadlocked(scene)] if ring]
    pairs = combinations(scene.has, 2)
    return found + [f"{one} and {other} exclude each other" for one, other in pairs if exclude(one, other)]


def overtaken(then: Scene, now: Scene, asked: Wants | None) -> list[str]:
    """Whom somebody was served before that came later, although it waited neither for that one nor because of it, nor
    did once what was asked had been granted."""
    found = []
    gone = [it for it in then.wants if it.turn not in {wish.turn for wish in now.wants}]
    held = {(it.resource, it.version) for it in then.has}
    with_asked = then._replace(wants=(*then.wants, asked)) if asked else then
    for served in gone:
        new = [it for it in now.has if it.agent == served.agent and (it.resource, it.version) not in held]
        got = [it for it in new if it.resource in served.resources]
        needless = [it for it in gone if it.agent == served.agent]
        undone = now._replace(
            has=tuple(it for it in now.has if it not in got), wants=tuple(sorted((*now.wants, *needless)))
        )
        for it in then.wants:
            waits = it in now.wants and it.turn < served.turn and is_other(it, served.agent)
            if waits and any(clash(it, one.mode, one.resources) for one in got):
                scenes = [undone, then, with_asked]
                if asked and holds_all(now, asked):
                    scenes.append(grant(then, asked))
                if not any(waits_for(scene, it.agent, served.agent) for scene in scenes):
                    found.append(f"{served} was served before {it}")
    return found
