"""Random histories of claims, through the asynchronous library: what agents do, a step at a time, and what they see."""

import asyncio
from contextlib import suppress
from random import Random
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

    async def cancel(self) -> None:
        task, self.task = self.task, None
        if task:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


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
            await call.cancel()
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
    """A step, for the oracle. `asked`, `waits` and `said`: of a claim."""

    asked: Wants | None = None
    waits: bool = False
    said: Any = None
    refused: bool = False


# --- steps: each returns a Turn, or None when there is nothing to do it to


async def claims(world: World, chance: Random) -> Turn | None:
    agent = Agent(chance.choice(AGENTS), chance.choice(sorted(world.stores)))
    resources = tuple(chance.sample(RESOURCES, chance.choice((1, 1, 1, 2, 3))))
    wish = Wants(NEW, chance.choice(("exclusive", "exclusive", "shared")), agent, resources)
    return await _claim(world, wish, chance.random() < 0.75)


async def _claim(world: World, wish: Wants, waits: bool) -> Turn | None:
    pending = [it.wish for it in world.calls.values() if it.task]
    if any(it.agent == wish.agent and it.resources[0] == wish.resources[0] for it in pending):
        return None  # two calls with one ticket
    if len(world.places(wish)) > 1:
        return None  # either may be continued
    asked, said = await world.claim(wish, waits)
    return Turn(asked, waits, said, said is not None and not said)


async def calls_again(world: World, chance: Random) -> Turn | None:
    wishes = [world.calls[number].wish for number in (await world.see()).absent]
    wishes = [it for it in wishes if it.agent.session in world.stores]
    return await _claim(world, chance.choice(wishes), waits=True) if wishes else None


async def gives_up(world: World, chance: Random) -> Turn | None:
    """A call is cancelled: its ticket stays for a while."""
    pending = [it for it in world.calls.values() if it.task]
    if not pending:
        return None
    await chance.choice(pending).cancel()
    return Turn()


async def releases(world: World, chance: Random) -> Turn | None:
    """Something that is held or waited for, or everything of its agent."""
    seen = await world.see()
    mine: list[Has | Wants] = [*seen.scene.has, *(world.calls[number].wish for number in seen.absent)]
    mine = [it for it in mine if it.agent.session in world.stores]
    if not mine:
        return None
    it = chance.choice(mine)
    resource = None if chance.random() < 0.25 else it.resources[0]
    released = await world.stores[it.agent.session].release(resource, agent=it.agent.name)
    assert released.status == "released"
    return Turn()


async def guards(world: World, chance: Random) -> Turn | None:
    """A write that relies on a grant, which may have ended."""
    grants = [it for it in world.owners.items() if it[1].session in world.stores]
    if not grants:
        return None
    (resource, version), agent = chance.choice(grants)
    held = [it for it in (await world.see()).scene.has if (it.resource, it.version) == (resource, version)]
    guard = [{"resource": resource, "version": version}]
    try:
        await world.stores[agent.session].set("n", "k", 1, updated_by=agent.name, guard=guard)
    except holdlog.FencedError:
        assert not held, f"{agent} is fenced although it holds {resource}"
        return Turn(refused=True)
    assert held, f"{agent} wrote with a claim of {resource} that ended"
    return Turn()


async def ends(world: World, chance: Random) -> Turn | None:
    """A session ends and another one begins. The first one observes and stays."""
    name = chance.choice(sorted(world.stores)[1:])
    for call in world.calls.values():
        if call.wish.agent.session == name:
            await call.cancel()
    world.left.add(name)
    await world.stores.pop(name).close()
    world.open()
    return Turn()


STEPS: list[Any] = [claims, releases, calls_again, gives_up, guards, ends]
seeds = st.lists(st.integers(0, 2**32), min_size=25, max_size=50)
"""Of the steps: Hypothesis shrinks a history by leaving out steps."""


# --- the oracle


async def live(world: World, seeds: list[int], endings: bool) -> None:
    """Take the steps; after each, all that must always hold holds."""
    before = await world.see()
    for seed in seeds:
        chance = Random(seed)
        step = chance.choices(STEPS, (8, 4, 1, 1, 1, endings))[0]
        turn = await step(world, chance)
        if turn is None:
            continue
        after = await world.see()
        assert claim_rule.violations(after.scene) == [], step
        assert claim_rule.overtaken(before.scene, after.scene, turn.asked) == [], step
        assert after == before or not turn.refused, f"a refusal of {turn} changed something"
        if turn.asked:
            require_response(before.scene, turn.asked, turn)
        before = after


def require_response(scene: Scene, wish: Wants, turn: Turn) -> None:
    """The rule says who is granted what, and who may not wait."""
    said = turn.said
    free = claim_rule.holds_all(scene, wish) or claim_rule.is_grantable(scene, wish)
    with_it = scene.without(wish)._replace(wants=tuple(sorted((*scene.without(wish).wants, wish))))
    if said is not None and said:
        assert free or claim_rule.is_grantable(with_it, wish), f"{wish} was granted against the rule"
        assert {said.resource, *(it.resource for it in said.also or ())} == set(wish.resources)
        return
    assert not free, f"{wish} was not granted although it is free"
    if said is not None and said.status == "deadlock":
        would = claim_rule.is_free(scene, wish) and claim_rule.would_deadlock(scene, wish)
        assert would or claim_rule.deadlocked(with_it), f"{wish} was refused without a cycle"
    elif said is not None:
        assert not turn.waits or claim_rule.shares_alone(scene, wish), f"{wish} may not wait although it should"
