"""The demo's third scene: one agent edits a file, the other is told who holds it, waits, and is woken."""

import asyncio
from typing import Final

from holdlog.adapters.demo.agents import Agent, Wrong, require
from holdlog.adapters.demo.screen import Screen
from holdlog.adapters.demo.timeline import Span, Tick, Wake

RESOURCE: Final = "src/report.md"
EDITS: Final = {"ada": 1.5, "ben": 0.8}
"""Seconds that an agent holds the claim, as if it edited the file."""


async def taken_in_turn(screen: Screen, ada: Agent, ben: Agent) -> None:
    """ada claims; ben is refused, waits, is woken by her release and claims. Raises Wrong."""
    screen.title("3  A claim: one edits, the other waits its turn", f"Both want to edit {RESOURCE}.")
    timeline = screen.timeline
    with timeline.scene("3  with holdlog: a claim") as scene:
        hold = await _claim(screen, ada)
        await _refused(screen, ben, ada)
        with timeline.during(ben.name, "wait", "waits"):
            waiting = asyncio.create_task(_wait(ben, screen))
            await ben.call("status", resource=RESOURCE)  # sent after the wait: when it is answered, the wait has begun
            screen.act(ben.name, "waits", "in one call, without asking again and again")
            await asyncio.sleep(EDITS[ada.name])
            if waiting.done():
                await waiting
                raise Wrong(f"{ben.name}'s wait ended while {ada.name} held the claim")
            asked = timeline.now()
            answer = await ada.call("release", resource=RESOURCE, agent=ada.name)
            released = timeline.end(hold)
            require(answer["status"] == "released", f"{ada.name}'s release was answered {answer['status']}")
            screen.act(ada.name, "releases", f"after {EDITS[ada.name]} s of work", at=released)
            woken = await waiting
        screen.act(ben.name, "wakes", _latency(asked, released, woken), "green", at=woken)
        timeline.wakes.append(Wake(ada.name, ben.name, released, woken))
        await _claim(screen, ben)
        await asyncio.sleep(EDITS[ben.name])
        scene.outcome = (f"woken {woken - asked:.1f} ms after the release was sent", "by one call that waited")
    screen.outcome(f"{ben.name} was woken {woken - asked:.1f} ms after the release was sent, by one call.", good=True)


async def _claim(screen: Screen, agent: Agent) -> Span:
    answer = await agent.call("claim", resource=RESOURCE, agent=agent.name)
    require(answer["status"] == "claimed", f"{agent.name}'s claim was answered {answer['status']}, not claimed")
    hold = screen.timeline.begin(agent.name, "hold", f"holds {RESOURCE}")
    screen.act(agent.name, "claims", f"{RESOURCE}: claimed, version {answer['version']}; and edits it")
    return hold


async def _refused(screen: Screen, asker: Agent, holder: Agent) -> None:
    answer = await asker.call("claim", resource=RESOURCE, agent=asker.name)
    status, held_by = answer["status"], answer.get("held_by")
    require(
        status == "busy" and held_by == holder.name,
        f"{asker.name}'s claim of what {holder.name} holds was answered {status}, held by {held_by}",
    )
    screen.timeline.ticks.append(Tick(asker.name, "busy", screen.timeline.now(), "busy"))
    screen.act(asker.name, "busy", f"{RESOURCE}: held_by {held_by} for {answer['held_for_seconds']:.3f} s", "red")
    screen.aside("hint:", answer["hint"])


async def _wait(agent: Agent, screen: Screen) -> float:
    """When the wait was over."""
    answer = await agent.call("wait", resource=RESOURCE)
    woken = screen.timeline.now()
    require(answer["status"] == "available", f"{agent.name}'s wait was answered {answer['status']}, not available")
    return woken


def _latency(asked: float, released: float, woken: float) -> str:
    if woken >= released:
        return f"{woken - released:.1f} ms after the release was answered"
    return f"{woken - asked:.1f} ms after the release was sent, before its answer"
