"""The demo's first two scenes: one budget and two agents, without a version check and with it."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from holdlog.adapters.cli.demo.agents import Agent, require, together
from holdlog.adapters.cli.demo.screen import Screen
from holdlog.adapters.cli.drawing.timeline import Tick

BUDGET: Final = 10_000
WANTED: Final = {"ada": 8_000, "ben": 7_000}
THINKS: Final = {"ada": 0.9, "ben": 1.2}
"""Seconds between reading and writing, as a model would need; both have read before either writes."""
THINKS_AGAIN: Final = 0.8
MOST_TRIES: Final = 5


async def overspent(screen: Screen, ada: Agent, ben: Agent) -> None:
    """Both write unconditionally, so that the second write overwrites the first. Raises Wrong."""
    screen.title(
        "1  Without holdlog: the last write wins",
        f"One budget of {usd(BUDGET)}. ada wants {usd(WANTED['ada'])}, ben wants {usd(WANTED['ben'])}.",
    )
    with screen.timeline.scene("1  without a check") as scene:
        committed = sum(await _spend(screen, "blind", (ada, ben), checked=False))
        scene.outcome, scene.good = (f"{usd(committed)} of {usd(BUDGET)}", "unnoticed"), False
    last = await ada.call("get", namespace="blind", key="budget")
    recorded = spent(last["value"])
    require(
        committed == sum(WANTED.values()) and recorded in WANTED.values(),
        f"without a check {usd(committed)} were committed and {usd(recorded)} recorded: the race did not happen",
    )
    screen.outcome(
        f"{usd(committed)} of {usd(BUDGET)} committed. The record shows {usd(recorded)}. Nobody noticed.",
        good=False,
    )


async def exact(screen: Screen, ada: Agent, ben: Agent) -> None:
    """Both pass the version they have read; the second write is refused, so that agent reads again and spends what is
    left. Raises Wrong."""
    screen.title("2  With holdlog: each write names the version it read", "The same budget, the same two agents.")
    with screen.timeline.scene("2  with holdlog: versions") as scene:
        committed = sum(await _spend(screen, "checked", (ada, ben), checked=True))
        scene.outcome = (f"{usd(committed)} of {usd(BUDGET)} spent", "exactly, after one refusal")
    recorded = spent((await ben.call("get", namespace="checked", key="budget"))["value"])
    require(
        committed == recorded == BUDGET,
        f"with versions {usd(committed)} were committed and {usd(recorded)} recorded, not {usd(BUDGET)}",
    )
    conflicts = sum(tick.kind == "conflict" for tick in screen.timeline.ticks)
    require(conflicts == 1, f"{conflicts} writes were refused as conflicts, not 1")
    screen.outcome(f"{usd(committed)} of {usd(BUDGET)} committed, exactly.", good=True)
    history = (await ada.call("history", namespace="checked", key="budget"))["history"]
    wrote = ", ".join(f"version {past['version']} by {past['updated_by']}" for past in reversed(history))
    screen.line(f"   Who wrote what: {wrote}.")


def spent(budget: dict[str, Any]) -> int:
    """The total that a budget records as spent."""
    return sum(budget["spent"].values())


def usd(amount: int) -> str:
    return f"${amount:,}"


async def _spend(screen: Screen, namespace: str, agents: tuple[Agent, Agent], checked: bool) -> list[int]:
    """Two agents spend from one budget at the same time; returns what each believes to have."""
    first = {"limit": BUDGET, "spent": {}}
    await agents[0].call("set", namespace=namespace, key="budget", value=first, updated_by="demo", expected_version=0)
    both_have_read = asyncio.Barrier(len(agents))
    return await together(*(_Spender(screen, agent, namespace, checked).take(both_have_read) for agent in agents))


@dataclass
class _Spender:
    """One agent that reads, thinks and writes, and retries when another agent has written."""

    screen: Screen
    agent: Agent
    namespace: str
    checked: bool

    async def take(self, both_have_read: asyncio.Barrier) -> int:
        record = await self._read()
        await both_have_read.wait()
        seconds = THINKS[self.agent.name]
        for _ in range(MOST_TRIES):
            amount = min(WANTED[self.agent.name], BUDGET - spent(record["value"]))
            with self.screen.timeline.during(self.agent.name, "think", "thinks"):
                await asyncio.sleep(seconds)
            if await self._write(record, amount):
                return amount
            record, seconds = await self._read(), THINKS_AGAIN
        require(False, f"{self.agent.name} was refused {MOST_TRIES} times in a row")
        return 0

    async def _read(self) -> dict[str, Any]:
        record = await self.agent.call("get", namespace=self.namespace, key="budget")
        left = BUDGET - spent(record["value"])
        self.screen.act(self.agent.name, "reads", f"version {record['version']}: {usd(left)} left, and thinks")
        return record

    async def _write(self, record: dict[str, Any], amount: int) -> bool:
        name, timeline = self.agent.name, self.screen.timeline
        value = record["value"] | {"spent": record["value"]["spent"] | {name: amount}}
        guard = {"expected_version": record["version"]} if self.checked else {"force": True}
        with timeline.during(name, "write") as span:
            answer = await self.agent.call(
                "set", namespace=self.namespace, key="budget", value=value, updated_by=name, **guard
            )
        if answer["status"] == "conflict":
            timeline.spans.remove(span)
            timeline.ticks.append(Tick(name, "conflict", span.end, "conflict"))
            newer = f"{answer['actual_updated_by']} wrote version {answer['actual_version']} meanwhile"
            self.screen.act(name, "conflict", f"{newer}: refused", "red")
            return False
        require(answer["status"] == "ok", f"{name}'s write returned {answer['status']}")
        span.text = f"{usd(amount)}, v{answer['version']}"
        instead = f" instead of {usd(WANTED[name])}" if amount < WANTED[name] else ""
        self.screen.act(name, "writes", f"version {answer['version']}: {usd(amount)} for {name}{instead}")
        return True
