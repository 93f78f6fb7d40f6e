"""The demo's third scene: one agent edits a file, another waits in the queue and gets the claim on its release."""

import asyncio
from typing import Any, Final

from holdlog.adapters.cli.demo.agents import Agent, Wrong, require
from holdlog.adapters.cli.demo.screen import Screen
from holdlog.adapters.cli.drawing.timeline import Span, Tick, Wake

RESOURCE: Final = "src/report.md"
EDIT_SECONDS: Final = {"ada": 1.5, "ben": 0.8}
"""Seconds that each agent holds the claim, to simulate editing the file."""
QUEUE_SECONDS: Final = 10.0
"""Seconds that ben is willing to wait in the queue."""
NOTE: Final = "section 2 is new"


async def queued(screen: Screen, ada: Agent, ben: Agent) -> None:
    """ada claims; ben is refused, joins the queue, and gets the claim when she releases it. Raises Wrong."""
    screen.title("3  A claim: one edits, the other is next in the queue", f"Both want to edit {RESOURCE}.")
    timeline = screen.timeline
    with timeline.scene("3  with holdlog: a claim") as scene:
        hold = await _claim(screen, ada)
        await _refused(screen, ben, ada)
        with timeline.during(ben.name, "wait", "in the queue"):
            waiting = asyncio.create_task(_queue(ben, screen))
            await _until_queued(ada, ben)
            screen.act(ben.name, "queues", f"in one call: claim(wait_seconds={QUEUE_SECONDS:.0f})")
            await asyncio.sleep(EDIT_SECONDS[ada.name])
            if waiting.done():
                await waiting
                raise Wrong(f"{ben.name} got the claim while {ada.name} still held it")
            release_sent = timeline.now()
            release = await ada.call("release", resource=RESOURCE, agent=ada.name, outcome="modified", note=NOTE)
            released = timeline.end(hold)
            require(
                release["status"] == "released" and release.get("granted_to") == ben.name,
                f"{ada.name}'s release returned {release['status']}, granted to {release.get('granted_to')}",
            )
            screen.act(ada.name, "releases", f'"{NOTE}": granted to {ben.name}', at=released)
            granted, response = await waiting
        next_hold = timeline.begin(ben.name, "hold", f"holds {RESOURCE}")
        screen.act(ben.name, "claimed", _latency(release_sent, released, granted), "green", at=granted)
        screen.note(
            "past:", f'{response["previous_outcome"]} by {response["previous_holder"]}: "{response["previous_note"]}"'
        )
        screen.note("hint:", response["hint"])
        timeline.wakes.append(Wake(ada.name, ben.name, released, granted))
        await asyncio.sleep(EDIT_SECONDS[ben.name])
        timeline.end(next_hold)
        scene.outcome = (
            f"granted {granted - release_sent:.1f} ms after the release was sent",
            "to the first in the queue",
        )
    screen.outcome(
        f"{ben.name} got it {granted - release_sent:.1f} ms after the release was sent, with one call.", good=True
    )


async def _claim(screen: Screen, agent: Agent) -> Span:
    response = await agent.call("claim", resource=RESOURCE, agent=agent.name)
    require(response["status"] == "claimed", f"{agent.name}'s claim returned {response['status']}, not claimed")
    hold = screen.timeline.begin(agent.name, "hold", f"holds {RESOURCE}")
    screen.act(agent.name, "claims", f"{RESOURCE}: claimed, version {response['version']}; and edits it")
    return hold


async def _refused(screen: Screen, waiter: Agent, holder: Agent) -> None:
    response = await waiter.call("claim", resource=RESOURCE, agent=waiter.name)
    status, held_by = response["status"], response.get("held_by")
    require(
        status == "busy" and held_by == holder.name,
        f"{waiter.name}'s claim of what {holder.name} holds returned {status}, held by {held_by}",
    )
    screen.timeline.ticks.append(Tick(waiter.name, "busy", screen.timeline.now(), "busy"))
    screen.act(waiter.name, "busy", f"{RESOURCE}: held_by {held_by} for {response['held_for_seconds']:.3f} s", "red")
    screen.note("hint:", response["hint"])


async def _queue(agent: Agent, screen: Screen) -> tuple[float, dict[str, Any]]:
    """Wait in the queue; returns the time of the grant, and the response."""
    response = await agent.call("claim", resource=RESOURCE, agent=agent.name, wait_seconds=QUEUE_SECONDS)
    granted = screen.timeline.now()
    status = response["status"]
    require(status == "claimed", f"{agent.name}'s queued claim returned {status}, not claimed")
    require(response.get("previous_note") == NOTE, f"{agent.name} did not get the note of the previous holder")
    return granted, response


async def _until_queued(holder: Agent, waiter: Agent) -> None:
    """Wait until the holder sees the other agent in the queue."""
    for _ in range(1_000):
        response = await holder.call("claim", resource=RESOURCE, agent=holder.name)
        if [it["agent"] for it in response.get("waiting", ())] == [waiter.name]:
            return
    raise Wrong(f"{waiter.name} never joined the queue")


def _latency(sent: float, released: float, woken: float) -> str:
    if woken >= released:
        return f"{woken - released:.1f} ms after the release returned"
    return f"{woken - sent:.1f} ms after the release, before it returned"
