"""Two agents want to edit one file: the second is told who holds it, stands in line, and has it with the release."""

import asyncio
import sys
import tempfile
from pathlib import Path

from holdlog import AsyncStateStore

RESOURCE = "src/report.md"
NOTE = "section 2 is new"


async def first_agent(store: AsyncStateStore, claimed: asyncio.Event) -> list[str | None]:
    answer = await store.claim(RESOURCE, agent="writer-1")
    print(f"writer-1  claims    {answer.status}")
    claimed.set()
    for _ in range(100):
        await asyncio.sleep(0.05)  # where the file is edited
        again = await store.claim(RESOURCE, agent="writer-1")  # renews, and tells who waits
        if again.status == "already_claimed" and again.waiting:
            print(f"writer-1  is told   {again.waiting[0].agent} waits")
            break
    released = await store.release(RESOURCE, agent="writer-1", outcome="modified", note=NOTE)
    told: list[str | None] = [answer.status, released.status]
    if released.status == "released":
        print(f"writer-1  releases  {released.status}, granted to {released.granted_to}")
        told.append(released.granted_to)
    return told


async def second_agent(store: AsyncStateStore, claimed: asyncio.Event) -> list[str | None]:
    await claimed.wait()
    answer = await store.claim(RESOURCE, agent="writer-2")
    told: list[str | None] = [answer.status]
    if answer.status == "busy":
        print(f"writer-2  claims    {answer.status}, held by {answer.held_by}")
        answer = await store.claim(RESOURCE, agent="writer-2", wait_seconds=30)
        told.append(answer.status)
    if answer.status == "claimed":
        print(f"writer-2  in line   {answer.status}; {answer.previous_outcome} before: {answer.previous_note}")
        told.append(answer.previous_note)
        await store.release(RESOURCE, agent="writer-2")
    return told


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncStateStore(Path(folder) / "state.db") as store:
            claimed = asyncio.Event()
            first, second = await asyncio.gather(first_agent(store, claimed), second_agent(store, claimed))
            holds = await store.status(RESOURCE)
    print(f"\n{RESOURCE} is {holds.status}; each agent edited it alone.")
    as_told = first == ["claimed", "released", "writer-2"] and second == ["busy", "claimed", NOTE]
    return 0 if as_told else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
