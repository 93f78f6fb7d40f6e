"""The rule of claims a second time, by brute force over a small world; nothing here is shared with the product.

A resource is the set of points that it covers, a deadlock is a set of agents found by trying all sets.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

POINTS = ("a", "a/b", "a/b/c", "a/b/d", "a/e", "d", "d/e")
RESOURCES = ("a", "a/", "a/b", "a/b/", "a/b/c", "d", "d/")
NEW = float("inf")
"""The turn of a call that is not in the queue yet."""


class Rules(NamedTuple):
    """What the next session of the same name may do with claims of a session that ended. `resumes`: claim that very
    resource, which is a new grant (0.1). Else it acts as their holder: the grant stays (0.2, design 7)."""

    resumes: bool


class Agent(NamedTuple):
    name: str
    session: str


class Has(NamedTuple):
    """A grant. `left`: its session ended."""

    resource: str
    mode: str
    agent: Agent
    version: int = 0
    left: bool = False

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
    rules: Rules

    def without(self, wish: Wants) -> "Scene":
        return self._replace(wants=tuple(it for it in self.wants if it.turn != wish.turn))


# --- what goes together


def points(resources: Iterable[str]) -> set[str]:
    return {
        point
        for it in resources
        for point in POINTS
        if point == it.rstrip("/") or (it.endswith("/") and point.startswith(it))
    }


def clash(one: Has | Wants, mode: str, resources: Iterable[str]) -> bool:
    return bool(points(one.resources) & points(resources)) and not (one.mode == mode == "shared")


def is_family(above: Agent, below: Agent) -> bool:
    return above.session == below.session and below.name.startswith(above.name + "/")


def is_same(scene: Scene, one: Has | Wants, agent: Agent) -> bool:
    acts = not scene.rules.resumes and isinstance(one, Has) and one.left and one.agent.name == agent.name
    return one.agent == agent or acts


def is_other(scene: Scene, one: Has | Wants, agent: Agent) -> bool:
    """Neither the same agent nor, in one session, its ancestor."""
    return not is_same(scene, one, agent) and not is_family(one.agent, agent)


def is_resumed(scene: Scene, one: Has, wish: Wants) -> bool:
    return scene.rules.resumes and one.left and one.agent.name == wish.agent.name and one.resource in wish.resources


# --- who is in the way


def rivals(scene: Scene, wish: Wants) -> set[Agent]:
    """Those that hold what excludes it."""
    return {
        it.agent
        for it in scene.has
        if is_other(scene, it, wish.agent) and clash(it, wish.mode, wish.resources) and not is_resumed(scene, it, wish)
    }


def waits_for(scene: Scene, start: Agent, goal: Agent) -> bool:
    """Over holders and earlier waiters, through as many others as it takes."""
    reached = {start}
    while True:
        more = {found for wish in scene.wants if wish.agent in reached for found in _waits_directly(scene, wish)}
        if goal in more or more <= reached:
            return goal in more
        reached |= more


def _waits_directly(scene: Scene, wish: Wants) -> set[Agent]:
    return rivals(scene, wish) | {it.agent for it in _earlier(scene, wish, wish.resources)}


def _earlier(scene: Scene, wish: Wants, resources: Iterable[str]) -> list[Wants]:
    return [
        it
        for it in scene.wants
        if it.turn < wish.turn and is_other(scene, it, wish.agent) and clash(it, wish.mode, resources)
    ]


def in_front(scene: Scene, wish: Wants) -> list[Wants]:
    """Earlier waiters that do not wait for it themselves. What is taken back from an ended session is held already."""
    modes = ("exclusive", wish.mode)
    back = {it.resource for it in scene.has if is_resumed(scene, it, wish) and it.mode in modes}
    earlier = _earlier(scene, wish, [it for it in wish.resources if it not in back])
    return [it for it in earlier if not waits_for(scene, it.agent, wish.agent)]


# --- the grant rule


def is_free(scene: Scene, wish: Wants) -> bool:
    return not rivals(scene, wish) and not in_front(scene, wish)


def is_grantable(scene: Scene, wish: Wants) -> bool:
    """Free, and nobody would then wait for ever."""
    return is_free(scene, wish) and not would_deadlock(scene, wish)


def would_deadlock(scene: Scene, wish: Wants) -> bool:
    given = tuple(Has(resource, wish.mode, wish.agent) for resource in wish.resources)
    kept = [
        it
        for it in scene.has
        if not (it.resource in wish.resources and is_same(scene, it, wish.agent)) and not is_resumed(scene, it, wish)
    ]
    return bool(deadlocked(scene.without(wish)._replace(has=(*kept, *given))))


def holds_all(scene: Scene, wish: Wants) -> bool:
    own = {it.resource for it in scene.has if is_same(scene, it, wish.agent) and it.mode == wish.mode}
    return set(wish.resources) <= own


def shares_alone(scene: Scene, wish: Wants) -> bool:
    """It shares the resource and wants it alone: it would wait for itself."""
    return wish.mode == "exclusive" and any(
        it.resource == wish.resources[0] and it.mode == "shared" and is_same(scene, it, wish.agent) for it in scene.has
    )


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


def violations(scene: Scene) -> list[str]:
    found = [f"{wish} waits although it is free" for wish in scene.wants if is_grantable(scene, wish)]
    found += [f"{ring} wait for each other for ever" for ring in [deadlocked(scene)] if ring]
    for one, other in combinations(scene.has, 2):
        related = is_family(one.agent, other.agent) or is_family(other.agent, one.agent)
        if clash(one, other.mode, other.resources) and one.agent != other.agent and not related:
            found.append(f"{one} and {other} exclude each other")
    return found


def is_taken_back(got: Has, old: Has) -> bool:
    """Whether another session of the name held it until now: nobody is ahead of it there."""
    return got.resource == old.resource and got.agent.name == old.agent.name and old.mode in ("exclusive", got.mode)


def overtaken(then: Scene, now: Scene, asked: Wants | None) -> list[str]:
    """Whom somebody was served before that came later, although it waited neither for that one nor because of it."""
    found = []
    gone = [it for it in then.wants if it.turn not in {wish.turn for wish in now.wants}]
    held = {(it.resource, it.version) for it in then.has}
    with_asked = then._replace(wants=(*then.wants, asked)) if asked else then
    for served in gone:
        new = [it for it in now.has if it.agent == served.agent and (it.resource, it.version) not in held]
        got = [it for it in new if it.resource in served.resources]
        got = [it for it in got if not any(is_taken_back(it, old) for old in then.has if old not in now.has)]
        needless = [it for it in gone if it.agent == served.agent]
        undone = now._replace(
            has=tuple(it for it in now.has if it not in got), wants=tuple(sorted((*now.wants, *needless)))
        )
        for it in then.wants:
            waits = it in now.wants and it.turn < served.turn and is_other(then, it, served.agent)
            if waits and any(clash(it, one.mode, one.resources) for one in got):
                scenes = (undone, then, with_asked)
                if not any(waits_for(scene, it.agent, served.agent) for scene in scenes):
                    found.append(f"{served} was served before {it}")
    return found
