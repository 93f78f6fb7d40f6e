"""What an agent of a framework does with holdlog's tools, each call in a server of its own. Runs in the framework's
environment, without holdlog; prints each response as a line of JSON."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

SERVER = {"command": "holdlog", "args": ["serve", "--tools", "claims,state"]}
FILE = "src/report.md"
KEY = {"namespace": "n", "key": "k", "updated_by": "ann", "force": True}


async def tell(call: Callable[[str, dict[str, Any]], Awaitable[str]]) -> None:
    """`call`: call a tool, and return the text of its result."""

    async def step(tool: str, **arguments: Any) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(await call(f"holdlog_{tool}", arguments))
        print(json.dumps(response), flush=True)
        return response

    claimed = await step("claim", resource=FILE, agent="ann")
    guard = [{"resource": FILE, "version": claimed["version"]}]
    await step("claim", resource=FILE, agent="bob")
    await step("set", **KEY, value=1, guard=guard)
    await step("claim", resource=FILE, agent="ann", note="ten more minutes")
    await step("release", resource=FILE, agent="ann", outcome="modified")
    await step("set", **KEY, value=2, guard=guard)
    await step("claim", resource=FILE, agent="bob")
