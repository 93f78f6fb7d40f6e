"""Random histories of claims, through the library: what agents do, a step at a time, and what they see."""

import asyncio
import math
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

import holdlog
from tests.support import claim_rule
from tests.support.claim_rule import NEW, RESOURCES, Agent, Has, Scene, Wants
from tests.support.faults import Clock, Faults

PATIENCE = 20.0
"""Seconds of a step, by a clock that the history moves by less."""
AGENTS = ("x", "x/1", "x/2", "y", "z")
STEP, STEPS_OF_TIME = 4, 4
"""Seconds that pass at once, and how often: less than a command waits for the write lock, and in all than a beat."""
LEASES = (3, 7, 11, 15)
"""Seconds: each ends with another step of time."""
WAIT = 50


Key = tuple[str, int]
"""Resource and version of a grant."""


class Grant(NamedTuple):
    """What the log says."""

    mode: str
    hold: Key
    """The first grant, which this one has replaced."""
    deadline: tuple[float, float] | None = None
    """Between these its own lease ends."""


class Call:
    """A claim that waits. Its number is in its note, so the board shows whose ticket is whose."""

    def __init__(self, number: int, wish: Wants) -> None:
        self.number = number
        self.wish = wish._replace(turn=number)
        self.lease: float | None = None
        self.task: asyncio.Task[Any] | None = None


class Seen(NamedTuple):
    changes: int
    grants: dict[Key, Grant]
    wants: tuple[Wants, ...]
    absent: tuple[int, ...]
    """Numbers of calls that keep a place in the queue although nobody waits."""


class Turn(NamedTuple):
    """A step, for the oracle. `asked`, `waits` and `said`: of a claim; `by`: the session that got a response."""

    by: str | None = None
    asked: Wants | None = None
    waits: bool = False
    said: Any = None
    refused: bool = False


class World:
    """A store, opened once for each session and once to look at it."""

    def __init__(self, place: Any, sessions: int, faults: Faults | Clock | None) -> None:
        self.place, self.faults = place, faults
        self.watch = holdlog.StateStore(place)
        self.stores: dict[str, Any] = {}
        self.left: set[str] = set()
        self.began = time.monotonic()
        """The step."""
        self.numbers = self.position = self.changes = self.passed = 0
        self.calls: dict[int, Call] = {}
        self.present: set[int] = set()
        """Those that wait in the queue."""
        self.waits: list[tuple[str, str, asyncio.Task[Any]]] = []
        """Calls of `wait`: session, resource."""
        self.grants: dict[Key, Grant] = {}
        self.holders: dict[Key, Agent] = {}
        """Of all grants that ever were, the last one."""
        self.holds: dict[Key, Key] = {}
        """The first grant of the hold of each."""
        self.tickets: dict[Key, int] = {}
        """Numbers of the calls that ever queued, by resource and version."""
        self.owed: dict[str, Counter[tuple[str, str]]] = {}
        """What agents of each session have lost and not been told: agents and resources."""
        for _ in range(sessions):
            self.open()

    def open(self) -> None:
        name = f"s{len(self.stores) + len(self.left) + 1}"
        self.stores[name] = holdlog.AsyncStateStore(self.place, session=name)
        self.owed[name] = Counter()

    async def close(self) -> None:
        for task in [*(it.task for it in self.calls.values()), *(it for _, _, it in self.waits)]:
            await cancel(task)
        for store in self.stores.values():
            await store.close()
        self.watch.close()

    # --- what is to be seen

    async def see(self) -> Seen:
        """What is, once every call has returned whose turn came, and every other one waits."""
        end = time.monotonic() + PATIENCE
        while isinstance(seen := self._look(), str):
            assert time.monotonic() < end, seen
            await asyncio.sleep(0.0005)
        return seen

    def _look(self) -> Seen | str:
        """Why there is nothing to be seen yet, as a text."""
        done = [(it, it.task) for it in self.calls.values() if it.task and it.task.done()]
        began, board, now = time.monotonic(), self.watch.status(), time.monotonic()
        self._read_log(now)
        waiting = {int(row.note): row.present for queue in board.queues for row in queue.line}
        self.present = {number for number, is_present in waiting.items() if is_present}
        for call, task in done:
            call.task = None
            self.take_over(call.wish.agent, call.wish.resources)  # the end of its wait is a call, too
            self.collect(call, task.result())
        self.calls = {number: call for number, call in self.calls.items() if number in waiting or call.task}
        for number, call in self.calls.items():
            if (call.task is not None) != waiting.get(number, False):
                return f"{call.wish} waits: {call.task is not None}; is in the queue: {waiting.get(number)}"
        assert set(waiting) <= set(self.calls), "a call that ended waits"
        ended = {key for key, it in self.grants.items() if it.deadline and it.deadline[0] <= now}
        shown = {(it.resource, it.version): (it.mode, it.held_by) for it in board.claims}
        lives = {
            key: (it.mode, self.holders[key].name)
            for key, it in self.grants.items()
            if key in shown or key not in ended
        }
        if shown != lives:
            return f"the board has {shown}, the log {lives}"
        late = [key for key in shown if (lease := self.grants[key].deadline) and lease[1] < began - 0.001]
        assert late == [], "claims outlive their leases"
        for number, (_, resource, task) in reversed([*enumerate(self.waits)]):
            if task.done():
                assert task.result().status == "available"
                del self.waits[number]
            elif not any(claim_rule.overlap([resource], [it]) for it, _ in shown):
                return f"{resource} is free, and somebody waits for it"
        wants = sorted(call.wish for call in self.calls.values() if call.task)
        absent = tuple(number for number, present in waiting.items() if not present)
        return Seen(self.changes, {key: self.grants[key] for key in shown}, tuple(wants), absent)

    def _read_log(self, now: float) -> None:
        """At each position, no two grants exclude each other, and none ends before its lease."""
        for event in self.watch.events(after=self.position, limit=1000).events:
            self.position = event.position
            self.changes += event.kind != "ClaimExpired"  # which a refusal may record
            fields = event.fields
            if event.kind == "ClaimGranted":
                old = self.grants.pop((fields["resource"], fields.get("instead_of", 0)), None)
                key = (fields["resource"], event.version)
                self.grants[key] = Grant(fields["mode"], *((key,) if old is None else old[1:]))
                self.holders[key] = Agent(event.by, fields["of_session"])
                self.holds[key] = self.grants[key].hold
                new, *others = self.list_held({key: self.grants[key]} | self.grants)
                rivals = [it for it in others if claim_rule.exclude(it, new)]
                assert rivals == [], f"{new} was granted although others hold it: {rivals}"
            elif event.kind == "ClaimQueued":
                self.tickets[fields["resource"], event.version] = int(fields["note"])
            elif event.kind == "ClaimHandedOver":
                self.read_hand_over((fields["resource"], fields["claim"]), fields["of_session"])
            elif "grant" in fields:
                key = (fields["resource"], fields["grant"])
                if event.kind == "ClaimReleased" and fields["session"] in self.stores:
                    by = Agent(event.by, fields["session"])
                    self.read_hand_over(key, by.session)  # which releases what both share
                    assert self.holders[key] == by, f"{by} released {key} of {self.holders[key]}"
                deadline = self.grants.pop(key).deadline
                if event.kind == "ClaimExpired":
                    assert deadline, f"{key} ended, although its holder lives"
                    assert deadline[0] <= now, f"{key} ended before its lease"
                    self.owed[self.holders[key].session][self.holders[key].name, key[0]] += 1

    def list_held(self, grants: dict[Key, Grant]) -> tuple[Has, ...]:
        return tuple(Has(key[0], it.mode, self.holders[key], key[1]) for key, it in grants.items())

    def scene(self, seen: Seen) -> Scene:
        return Scene(self.list_held(seen.grants), seen.wants)

    # --- who is who

    def is_left_to(self, agent: Agent, other: Agent) -> bool:
        return other.name == agent.name and other.session in self.left

    def take_over(self, agent: Agent, resources: tuple[str, ...]) -> bool:
        """Before a call of an agent: if one of its name left something that overlaps these, its session takes over from
        that one's family, unless agents would then wait for each other. Returns whether there was anything."""
        now, live = time.monotonic(), self.grants
        if any(it.deadline and it.deadline[0] <= now for it in live.values()):  # they may have ended, or not
            shown = {(it.resource, it.version) for it in self.watch.status().claims}
            live = {key: it for key, it in live.items() if key in shown}
        named = [self.holders[key] for key in live if claim_rule.overlap([key[0]], resources)]
        named += [it.wish.agent for it in self.calls.values() if claim_rule.overlap(it.wish.resources, resources)]
        took = False
        for left in sorted({it for it in named if self.is_left_to(agent, it)}):
            family = (left.name.split("/")[0], left.session)

            def pass_on(it: Agent, family: tuple[str, str] = family) -> Agent:
                return it._replace(session=agent.session) if (it.name.split("/")[0], it.session) == family else it

            before = self.holders
            self.holders = before | {key: pass_on(before[key]) for key in live}
            wants = tuple(sorted(it.wish for it in self.calls.values() if it.number in self.present))
            if claim_rule.deadlocked(Scene(self.list_held(live), wants)):
                self.holders = before
                continue
            took = True
            self.pass_losses_on(left, agent.session)
            for call in self.calls.values():
                call.wish = call.wish._replace(agent=pass_on(call.wish.agent))
        return took

    def read_hand_over(self, key: Key, session: str) -> None:
        """What one that left held or waited for is that of another session, unless `take_over` has foreseen it."""
        call = self.calls.get(self.tickets.get(key, NEW))
        left = self.holders[key] if key in self.grants else call and call.wish.agent
        if left is None or left.session == session:
            return
        assert left.session in self.left, f"{key} of {left}, who is there, was handed over"
        if key in self.grants:
            self.holders[key] = left._replace(session=session)
        elif call:
            call.wish = call.wish._replace(agent=left._replace(session=session))
        self.pass_losses_on(left, session)

    def pass_losses_on(self, left: Agent, session: str) -> None:
        """Of a family."""
        owed = self.owed[left.session]
        for key in [it for it in owed if it[0].split("/")[0] == left.name.split("/")[0]]:
            self.owed[session][key] += owed.pop(key)

    async def tick(self, session: str) -> None:
        """Somebody makes a call that reads all of the board, as beats do, and notices what is due."""
        self.hear(Agent("tick", session), await self.stores[session].release(agent="tick"))

    def namesake(self, agent: Agent, chance: Random) -> Agent:
        """The agent in its session, or if that has ended, in any."""
        return agent if agent.session in self.stores else agent._replace(session=chance.choice(sorted(self.stores)))

    # --- what agents do

    async def claim(self, wish: Wants, waits: bool, lease: float | None) -> tuple[Wants, Any]:
        """The wish with its turn, and the response; None while it waits."""
        mine = [it for it in self.places(wish) if it.wish.agent == wish.agent]
        call = mine[0] if mine else Call(self.numbers, wish)
        call.lease = lease
        self.numbers += not mine
        resource, *also = wish.resources
        claiming = self.stores[wish.agent.session].claim(
            resource, agent=wish.agent.name, also=also, mode=wish.mode, note=str(call.number), lease_seconds=lease,
            wait_seconds=WAIT if waits else 0,
        )  # fmt: skip
        asked = wish._replace(turn=call.wish.turn if mine else NEW)
        if not waits:
            return asked, self.collect(call, await claiming)
        call.task = task = asyncio.ensure_future(claiming)
        self.calls[call.number] = call
        end = time.monotonic() + PATIENCE
        while not task.done():
            board = self.watch.status()
            if call.number in (int(row.note) for queue in board.queues for row in queue.line if row.present):
                return asked, None
            assert time.monotonic() < end, f"{wish} is not in the queue"
            await asyncio.sleep(0.0005)
        call.task = None
        return asked, self.collect(call, task.result())

    def collect(self, call: Call, said: Any) -> Any:
        """The response to a claim."""
        now = time.monotonic()
        self.hear(call.wish.agent, said)
        if said and call.lease is not None:
            for it in (said, *(said.also or ())):
                for key, grant in self.grants.items():  # another call of its agent may have replaced it
                    if grant.hold == self.holds[it.resource, it.version]:
                        deadline = max((self.began + call.lease, now + call.lease), grant.deadline or (0, 0))
                        self.grants[key] = grant._replace(deadline=deadline)
        return said

    def hear(self, agent: Agent, response: Any) -> Any:
        """Each loss is reported once, to the session of its holder, or to whom it left."""
        self._read_log(time.monotonic())
        for lost in response.lost or ():
            assert lost.why == "expired"
            owed = [(agent.session, name, lost.resource) for name in AGENTS]
            family = [it for it in AGENTS if it.split("/")[0] == agent.name.split("/")[0]]  # losses go on to an heir
            owed += [(session, name, lost.resource) for session in sorted(self.left) for name in family]
            session, *key = next((it for it in owed if self.owed[it[0]][it[1:]]), (None,))
            assert session, f"{lost} was reported to {agent} too often"
            self.owed[session][key[0], key[1]] -= 1
        return response

    def places(self, wish: Wants) -> list[Call]:
        """Calls whose place in the queue it may continue: its own, or those that an ended session of its name left."""
        return [
            it
            for it in self.calls.values()
            if it.wish[1::2] == wish[1::2]
            and (it.wish.agent == wish.agent or self.is_left_to(wish.agent, it.wish.agent))
        ]


async def cancel(task: asyncio.Task[Any] | None) -> None:
    if task:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# --- steps: each returns a Turn, or None when there is nothing to do it to


async def claims(world: World, seen: Seen, chance: Random) -> Turn | None:
    agent = Agent(chance.choice(AGENTS), chance.choice(sorted(world.stores)))
    resources = tuple(chance.sample(RESOURCES, chance.choice((1, 1, 1, 2, 3))))
    wish = Wants(NEW, chance.choice(("exclusive", "exclusive", "shared")), agent, resources)
    lease = chance.choice(LEASES) if world.faults and chance.random() < 0.3 else None
    return await _claim(world, wish, chance.random() < 0.75, lease)


async def _claim(world: World, wish: Wants, waits: bool, lease: float | None = None) -> Turn | None:
    pending = [it.wish for it in world.calls.values() if it.task]
    if any(it.agent == wish.agent and it.resources[0] == wish.resources[0] for it in pending):
        return None  # two calls with one ticket
    if len(world.places(wish)) > 1:
        return None  # either may be continued
    took_over = world.take_over(wish.agent, wish.resources)
    asked, said = await world.claim(wish, waits, lease)
    is_refused = said is not None and not said and not took_over
    return Turn(None if said is None else wish.agent.session, asked, waits, said, is_refused)


async def calls_again(world: World, seen: Seen, chance: Random) -> Turn | None:
    if not seen.absent:
        return None
    wish = world.calls[chance.choice(seen.absent)].wish
    return await _claim(world, wish._replace(turn=NEW, agent=world.namesake(wish.agent, chance)), waits=True)


async def gives_up(world: World, seen: Seen, chance: Random) -> Turn | None:
    """A call is cancelled: its ticket stays for a while."""
    pending = [it for it in world.calls.values() if it.task]
    if not pending:
        return None
    call = chance.choice(pending)
    task, call.task = call.task, None
    await cancel(task)
    return Turn()


async def releases(world: World, seen: Seen, chance: Random) -> Turn | None:
    """Something that is held or waited for, or everything of its agent."""

    def list_releasable() -> list[tuple[Agent, str]]:
        absent = [world.calls[number].wish for number in seen.absent]
        return [(world.holders[key], key[0]) for key in seen.grants] + [(it.agent, it.resources[0]) for it in absent]

    if not list_releasable():
        return None
    agent, resource = chance.choice(list_releasable())
    agent = world.namesake(agent, chance)
    releases_all = chance.random() < 0.25
    world.take_over(agent, RESOURCES if releases_all else (resource,))
    released = await world.stores[agent.session].release(None if releases_all else resource, agent=agent.name)
    world.hear(agent, released)
    own = [name for who, name in list_releasable() if who == agent]
    may_release = bool(own) if releases_all else resource in own
    assert released.status == "released" or not may_release, f"{agent} may not release {resource}"
    return Turn(agent.session)


async def guards(world: World, seen: Seen, chance: Random) -> Turn | None:
    """A write that relies on a grant, which may have ended."""
    if not world.holders:
        return None
    resource, version = key = chance.choice(sorted(world.holders))
    agent = world.namesake(world.holders[key], chance)
    held = False
    for now in [it for it, grant in seen.grants.items() if key in (it, grant.hold)]:
        holder = world.holders[now]
        held = holder == agent or world.is_left_to(agent, holder)
    guard = [{"resource": resource, "version": version}]
    try:
        response = await world.stores[agent.session].set("n", "k", 1, updated_by=agent.name, guard=guard)
    except holdlog.FencedError:
        assert not held, f"{agent} is fenced although it holds {resource}"
    else:
        world.hear(agent, response)
        assert held, f"{agent} wrote with a claim of {resource} that ended"
    return Turn(agent.session if held else None, refused=not held)


async def waits(world: World, seen: Seen, chance: Random) -> Turn | None:
    """A call that only waits until something is free."""
    session, resource = chance.choice(sorted(world.stores)), chance.choice(RESOURCES)
    waiting = asyncio.ensure_future(world.stores[session].wait(resource, timeout_seconds=WAIT))
    world.waits.append((session, resource, waiting))
    return Turn()


async def ends(world: World, seen: Seen, chance: Random) -> Turn | None:
    """A session ends and another one begins. Its calls end with it, or are cancelled before. A namesake that waits for
    what it held takes over."""
    name = chance.choice(sorted(world.stores))
    mine = [it for it in world.calls.values() if it.task and it.wish.agent.session == name]
    claims = [(it, it.task) for it in mine]
    tasks = [*(task for _, task in claims), *(it for session, _, it in world.waits if session == name)]
    world.waits = [it for it in world.waits if it[0] != name]
    for call in mine:
        call.task = None
        world.present.discard(call.number)
    if chance.random() < 0.5:
        for task in tasks:
            await cancel(task)
        await world.see()
    await world.stores.pop(name).close()
    await asyncio.gather(*tasks, return_exceptions=True)
    world.left.add(name)
    world._read_log(time.monotonic())
    for call in sorted(world.calls.values(), key=lambda it: it.wish):
        if call.task:
            world.take_over(call.wish.agent, call.wish.resources)
    world._read_log(time.monotonic())
    for call, task in claims:  # one that is cancelled may have been granted by the end of another, and have its lease
        for key in [it for it in world.grants if call.lease and world.holders[it] == call.wish.agent]:
            world.grants[key] = world.grants[key]._replace(deadline=(0.0, math.inf))
        if not task.cancelled() and task.exception() is None:
            world.collect(call, task.result())
    world.open()
    return Turn()


async def passes(world: World, seen: Seen, chance: Random) -> Turn | None:
    """Some time, after which somebody makes a call."""
    if world.faults is None or world.passed == STEPS_OF_TIME:
        return None
    world.passed += 1
    world.faults.pass_time(STEP)
    world.began = time.monotonic()
    await world.tick(session := chance.choice(sorted(world.stores)))
    return Turn(session)


STEPS: dict[Any, int] = {
    claims: 16, releases: 8, calls_again: 3, gives_up: 2, guards: 3, waits: 1, passes: 2, ends: 2,
}  # fmt: skip
seeds = st.lists(st.integers(0, 2**32), min_size=25, max_size=50)
"""Of the steps: Hypothesis shrinks a history by leaving out steps."""


# --- the oracle


async def live(place: Any, sessions: int, seeds: list[int], faults: Faults | Clock | None = None) -> None:
    """Take the steps; after each, all that must always hold holds. Only three sessions end."""
    world = World(place, sessions, faults)
    try:
        seen = await world.see()
        for seed in seeds:
            seen = await take(world, seen, Random(seed))
        for session in world.stores:
            await world.tick(session)
            assert not +world.owed[session], f"{session} was not told of {world.owed[session]}"
    finally:
        await world.close()


async def take(world: World, seen: Seen, chance: Random) -> Seen:
    step = chance.choices([*STEPS][: 7 + (len(world.stores) == 3)], [*STEPS.values()][: 7 + (len(world.stores) == 3)])[
        0
    ]
    world.began = time.monotonic()
    turn = await step(world, seen, chance)
    if turn is None:
        return seen
    then = world.scene(seen)  # before a call that was granted takes over
    after = await world.see()
    now = world.scene(after)
    faults = claim_rule.violations(now) + claim_rule.overtaken(then, now, turn.asked)
    assert faults == [], f"{faults} after {turn}"
    assert after == seen or not turn.refused, f"a refusal of {turn} changed something"
    assert turn.by is None or not +world.owed[turn.by], f"{turn.by} was not told of {world.owed[turn.by]}"
    if turn.asked:
        require_response(then, turn.asked, turn)
    return after


def require_response(scene: Scene, wish: Wants, turn: Turn) -> None:
    """The rule says who is granted what, and who may not wait."""
    said = turn.said
    free = claim_rule.holds_all(scene, wish) or claim_rule.is_grantable(scene, wish)
    with_it = scene.without(wish)._replace(wants=tuple(sorted((*scene.without(wish).wants, wish))))
    if said is not None and said:
        assert free or claim_rule.becomes_grantable(with_it, wish), f"{wish} was granted against the rule"
        assert {said.resource, *(it.resource for it in said.also or ())} == set(wish.resources)
        return
    assert not free, f"{wish} was not granted although it is free"
    if said is not None and said.status == "deadlock":
        would = claim_rule.is_free(scene, wish) and claim_rule.would_deadlock(scene, wish)
        assert would or claim_rule.deadlocked(with_it), f"{wish} was refused without a cycle"
    elif said is not None:
        assert not turn.waits or claim_rule.shares_alone(scene, wish), f"{wish} may not wait although it should"
