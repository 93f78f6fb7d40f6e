"""Two agents want to edit one file: the second is told who holds it, waits, and goes on when it is free."""

import asyncio
import sys
import tempfile
from pathlib import Path

from holdlog import AsyncStateStore

RESOURCE = "src/report.md"


async def first_agent(store: AsyncStateStore, claimed: asyncio.Event, refused: asyncio.Event) -> list[str]:
    answer = await store.claim(RESOURCE, agent="writer-1")
    print(f"writer-1  claims    {answer.status}")
    claimed.set()
    await refused.wait()
    await asyncio.sleep(0.5)  # where the file is edited
    released = await store.release(RESOURCE, agent="writer-1")
    print(f"writer-1  releases  {released.status}")
    return [answer.status, released.status]


async def second_agent(store: AsyncStateStore, claimed: asyncio.Event, refused: asyncio.Event) -> list[str]:
    await claimed.wait()
    answer = await store.claim(RESOURCE, agent="writer-2")
    told: list[str] = [answer.status]
    if answer.status == "busy":
        print(f"writer-2  claims    {answer.status}, held by {answer.held_by}")
        refused.set()
        waited = await store.wait(RESOURCE, timeout_seconds=30)
        print(f"writer-2  waits     {waited.status} after {waited.elapsed_seconds} s")
        answer = await store.claim(RESOURCE, agent="writer-2")
        told += [waited.status, answer.status]
    print(f"writer-2  claims    {answer.status}")
    return told


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncStateStore(Path(folder) / "state.db") as store:
            claimed, refused = asyncio.Event(), asyncio.Event()
            first, second = await asyncio.gather(
                first_agent(store, claimed, refused), second_agent(store, claimed, refused)
            )
            holds = await store.status(RESOURCE)
    print(f"\n{RESOURCE} is {holds.status}; each agent edited it alone.")
    as_told = first == ["claimed", "released"] and second == ["busy", "available", "claimed"]
    return 0 if as_told else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
