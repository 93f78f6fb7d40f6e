"""Random histories of claims, through the asynchronous library: what agents do, a step at a time, and what they see."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import strategies as st

import holdlog
from tests.doors import old
from tests.support import claim_rule
from tests.support.claim_rule import NEW, RESOURCES, Agent, Has, Rules, Scene, Wants
from tests.support.waiting import PATIENCE

AGENTS = ("x", "x/1", "x/2", "y", "z")


class Call:
    """A claim that waits. Its number is in its note, so the board shows whose ticket is whose."""

    def __init__(self, number: int, wish: Wants) -> None:
        self.number = number
        self.wish = wish._replace(turn=number)
        self.task: asyncio.Task[Any] | None = None


class Seen(NamedTuple):
    position: int
    scene: Scene
    absent: tuple[int, ...]
    """Numbers of calls that keep a place in the queue although nobody waits."""


class World:
    """A store, opened once for each session; `s1` observes."""

    def __init__(self, place: Any, sessions: int, rules: Rules) -> None:
        self.place, self.rules = place, rules
        self.stores: dict[str, Any] = {}
        self.left: set[str] = set()
        self.numbers = self.position = 0
        self.calls: dict[int, Call] = {}
        self.agents: dict[int, Agent] = {}
        self.owners: dict[tuple[str, int], Agent] = {}
        for _ in range(sessions):
            self.open()

    def open(self) -> None:
        name = f"s{len(self.stores) + len(self.left) + 1}"
        self.stores[name] = old.store(holdlog.AsyncStateStore(self.place, session=name))

    async def close(self) -> None:
        for call in self.calls.values():
            if call.task:
                call.task.cancel()
                with suppress(asyncio.CancelledError, holdlog.HoldlogError):
                    await call.task
        for store in self.stores.values():
            await store.close()

    # --- what is to be seen

    async def see(self) -> Seen:
        """What is, once every call has returned that was granted something, and every other one is in the queue."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if (seen := await self._look()) is not None:
                    return seen
                await asyncio.sleep(0.001)  # reads may not give others their turn

    async def _look(self) -> Seen | None:
        for call in self.calls.values():
            if call.task and call.task.done():
                call.task.result()
                call.task = None
        store = next(iter(self.stores.values()))
        board = await store.status()
        waiting = {int(row.note): row.present for queue in board.queues for row in queue.line}
        self.calls = {number: call for number, call in self.calls.items() if number in waiting or call.task}
        if any((call.task is not None) != waiting.get(number, False) for number, call in self.calls.items()):
            return None
        assert set(waiting) <= set(self.calls)
        has = []
        for it in board.claims:
            owner = self.owners.setdefault((it.resource, it.version), self.agents[int(it.holder_note)])
            has.append(Has(it.resource, it.mode, owner, it.version, owner.session in self.left))
        wants = sorted(call.wish for call in self.calls.values() if call.task)
        absent = tuple(number for number, present in waiting.items() if not present)
        self.position = (await store.events(after=self.position, limit=1000)).next_position
        return Seen(self.position, Scene(tuple(has), tuple(wants), self.rules), absent)

    # --- what agents do

    async def claim(self, wish: Wants, waits: bool) -> tuple[Wants, Any]:
        """The wish with its turn, and the response; None while it waits."""
        mine = self.places(wish)
        call = mine[0] if mine else Call(self.numbers, wish)
        call.wish = call.wish._replace(agent=wish.agent)
        self.agents[call.number] = wish.agent
        self.numbers += not mine
        resource, *also = wish.resources
        store = self.stores[wish.agent.session]
        claiming = store.claim(
            resource, agent=wish.agent.name, also=also, mode=wish.mode, note=str(call.number),
            wait_seconds=50 if waits else 0,
        )  # fmt: skip
        asked = wish._replace(turn=call.wish.turn if mine else NEW)
        if not waits:
            return asked, await claiming
        call.task = task = asyncio.ensure_future(claiming)
        self.calls[call.number] = call
        async with asyncio.timeout(PATIENCE):
            while not task.done():
                if call.number in await self._present():
                    return asked, None
                await asyncio.sleep(0.001)
        call.task = None
        return asked, task.result()

    def places(self, wish: Wants) -> list[Call]:
        """Calls whose place in the queue it may have: its own, or those that an ended session of its name left."""
        return [
            it
            for it in self.calls.values()
            if it.wish._replace(turn=0, agent=wish.agent) == wish._replace(turn=0)
            and it.wish.agent.name == wish.agent.name
            and (it.wish.agent == wish.agent or it.wish.agent.session in self.left)
        ]

    async def _present(self) -> set[int]:
        board = await next(iter(self.stores.values())).status()
        return {int(row.note) for queue in board.queues for row in queue.line if row.present}


class Turn(NamedTuple):
    """A step, for the oracle. `asked` and `said`: of a claim."""

    asked: Wants | None = None
    said: Any = None
    refused: bool = False


Step = Callable[[World], Any]
"""Does something; returns a Turn, or None when there is nothing to do it to."""


class Claims(NamedTuple):
    name: str
    session: int
    resources: tuple[str, ...]
    mode: str
    waits: bool

    async def take(self, world: World) -> Turn | None:
        agent = Agent(self.name, _pick(sorted(world.stores), self.session))
        wish = Wants(NEW, self.mode, agent, self.resources)
        pending = [it.wish for it in world.calls.values() if it.task]
        if any(it.agent == agent and it.resources[0] == self.resources[0] for it in pending):
            return None  # two calls with one ticket
        if len(world.places(wish)) > 1:
            return None  # either may be continued
        asked, said = await world.claim(wish, self.waits)
        return Turn(asked, said, said is not None and not said)


class GivesUp(NamedTuple):
    """A call is cancelled: its ticket stays for a while."""

    number: int

    async def take(self, world: World) -> Turn | None:
        pending = [it for it in world.calls.values() if it.task]
        if not pending:
            return None
        call = _pick(pending, self.number)
        task, call.task = call.task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return Turn()


class CallsAgain(NamedTuple):
    number: int

    async def take(self, world: World) -> Turn | None:
        absent = [world.calls[number] for number in (await world.see()).absent]
        absent = [it for it in absent if it.wish.agent.session in world.stores]
        if not absent:
            return None
        wish = _pick(absent, self.number).wish
        return await Claims(
            wish.agent.name, sorted(world.stores).index(wish.agent.session), wish.resources, wish.mode, True
        ).take(world)


class Releases(NamedTuple):
    """The n-th of what is held and waited for, or everything of its agent."""

    number: int
    everything: bool

    async def take(self, world: World) -> Turn | None:
        seen = await world.see()
        mine: list[Has | Wants] = [*seen.scene.has, *(world.calls[number].wish for number in seen.absent)]
        mine = [it for it in mine if it.agent.session in world.stores]
        if not mine:
            return None
        it = _pick(mine, self.number)
        released = await world.stores[it.agent.session].release(
            None if self.everything else it.resources[0], agent=it.agent.name
        )
        assert released.status == "released"
        return Turn()


class Guards(NamedTuple):
    """A write that relies on a grant, which may have ended."""

    number: int

    async def take(self, world: World) -> Turn | None:
        grants = [it for it in world.owners.items() if it[1].session in world.stores]
        if not grants:
            return None
        (resource, version), agent = _pick(grants, self.number)
        held = [it for it in (await world.see()).scene.has if (it.resource, it.version) == (resource, version)]
        write = world.stores[agent.session].set(
            "n", "k", 1, updated_by=agent.name, guard=[{"resource": resource, "version": version}]
        )
        try:
            await write
        except holdlog.FencedError:
            assert not held, f"{agent} is fenced although it holds {resource}"
            return Turn(refused=True)
        assert held, f"{agent} wrote with a claim of {resource} that ended"
        return Turn()


class Ends(NamedTuple):
    """A session ends and another one begins. The first one observes and stays."""

    number: int

    async def take(self, world: World) -> Turn | None:
        name = _pick(sorted(world.stores)[1:], self.number)
        pending = [it for it in world.calls.values() if it.task and it.wish.agent.session == name]
        for call in pending:
            assert call.task
            call.task.cancel()
            with suppress(asyncio.CancelledError):
                await call.task
            call.task = None
        world.left.add(name)
        await world.stores.pop(name).close()
        world.open()
        return Turn()


def _pick(things: Any, number: int) -> Any:
    return things[number % len(things)]


def step(seed: int, endings: bool) -> Any:
    """One that the seed picks: Hypothesis shrinks a history by leaving out steps."""
    chance = random.Random(seed)
    number = chance.randrange(30)
    match chance.choices(range(6), (8, 4, 1, 1, 1, endings))[0]:
        case 0:
            resources = tuple(chance.sample(RESOURCES, chance.choice((1, 1, 1, 2, 3))))
            mode = chance.choice(("exclusive", "exclusive", "shared"))
            return Claims(chance.choice(AGENTS), number, resources, mode, chance.random() < 0.75)
        case 1:
            return Releases(number, everything=chance.random() < 0.25)
        case kind:
            return (CallsAgain, GivesUp, Guards, Ends)[kind - 2](number)


def steps(endings: bool) -> st.SearchStrategy[list[Any]]:
    seeds = st.lists(st.integers(0, 2**32), min_size=25, max_size=50)
    return seeds.map(lambda found: [step(it, endings) for it in found])


# --- the oracle


async def live(world: World, history: list[Any]) -> None:
    """Take the steps; after each, all that must always hold holds."""
    before = await world.see()
    for step in history:
        turn = await step.take(world)
        if turn is None:
            continue
        after = await world.see()
        assert claim_rule.violations(after.scene) == [], step
        assert claim_rule.overtaken(before.scene, after.scene, turn.asked) == [], step
        if turn.refused:
            assert after == before, f"the refusal of {step} changed something"
        if turn.asked:
            require_response(before.scene, turn.asked, turn.said)
        before = after


def require_response(scene: Scene, wish: Wants, said: Any) -> None:
    """The rule says who is granted what, and who may not wait."""
    free = claim_rule.holds_all(scene, wish) or claim_rule.is_grantable(scene, wish)
    if said is not None and said:
        queued = scene.without(wish)._replace(wants=tuple(sorted((*scene.without(wish).wants, wish))))
        assert free or claim_rule.is_grantable(queued, wish), f"{wish} was granted against the rule"
        assert {said.resource, *(it.resource for it in said.also or ())} == set(wish.resources)
    elif said is None:
        assert not free, f"{wish} waits although it is free"
    elif said.status == "deadlock":
        rings = claim_rule.deadlocked(scene.without(wish)._replace(wants=(*scene.without(wish).wants, wish)))
        assert rings or (claim_rule.is_free(scene, wish) and claim_rule.would_deadlock(scene, wish))
        assert not free
    else:
        assert said.status == "busy"
        assert not free, f"{wish} is busy although it is free"
