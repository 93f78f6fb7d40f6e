"""Two agents of a framework want one file, over stdio and over HTTP. Runs in the framework's environment, without
holdlog: a recipe of docs/frameworks.md is next to it as `recipe`."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import recipe

HELD = 6.0
"""Seconds for which the second agent waits at least: more than the 5 s after which frameworks end a call."""
FILE = "src/report.md"


class Agent(Protocol):
    """One connection of an agent."""

    async def tools(self) -> list[str]: ...

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]: ...


Connect = Callable[[Any], AbstractAsyncContextManager[Agent]]


async def story(transport: str, ann: Agent, bob: Agent) -> dict[str, Any]:
    first = await ann.call("holdlog_claim", resource=FILE, agent="ann")
    waits = asyncio.create_task(bob.call("holdlog_claim", resource=FILE, agent="bob", wait_seconds=50))
    while not (await ann.call("holdlog_status", resource=FILE)).get("queue_length"):
        assert not waits.done(), await waits
    await asyncio.sleep(HELD)  # not to synchronise: how long bob waits is what is tested
    released = await ann.call(
        "holdlog_release", resource=FILE, agent="ann", outcome="modified", note="section 2 is new"
    )
    second = await waits
    await bob.call("holdlog_release", resource=FILE, agent="bob")
    return {
        "transport": transport,
        "tools": sorted(await ann.tools()),
        "first": first["status"],
        "granted_to": released.get("granted_to"),
        "second": second["status"],
        "note": second.get("previous_note"),
    }


def run(connect: Connect) -> None:
    """Print what happened over each transport, one JSON object a line."""

    async def over(transport: str, first: Any, second: Any) -> None:
        async with connect(first) as ann, connect(second) as bob:
            print(json.dumps(await story(transport, ann, bob)), flush=True)

    async def both() -> None:
        stories: list[Awaitable[None]] = [
            over("stdio", recipe.over_stdio(), recipe.over_stdio()),
            over("http", recipe.over_http("ann"), recipe.over_http("bob")),
        ]
        await asyncio.gather(*stories)

    asyncio.run(both())
