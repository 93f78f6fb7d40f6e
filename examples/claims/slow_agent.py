"""An agent falls silent for longer than its lease. Another one goes on, and what the first writes then is refused."""

import asyncio
import sys
import tempfile
from pathlib import Path

from holdlog import AsyncStateStore, FencedError

RESOURCE = "custom://release-notes"
LEASE = 1.0
"""Seconds; 300 where nothing is said."""


async def slow_agent(store: AsyncStateStore, claimed: asyncio.Event, written: asyncio.Event) -> str:
    mine = await store.claim(RESOURCE, agent="slow", lease_seconds=LEASE)
    assert mine.status == "claimed"
    print(f"slow  claims   {mine.status}, for {LEASE:g} s")
    claimed.set()
    await written.wait()  # a model that thinks, a host that hangs: nobody hears of it, and nothing renews its claim
    try:
        guard = [{"resource": RESOURCE, "version": mine.version}]
        await store.set("release", "notes", "by slow, too late", updated_by="slow", guard=guard)
    except FencedError as fenced:
        print(f"slow  writes   {fenced.code}, held by {fenced.held_by}")
        return fenced.code
    return "written"


async def next_agent(store: AsyncStateStore, claimed: asyncio.Event, written: asyncio.Event) -> str:
    await claimed.wait()
    granted = await store.claim(RESOURCE, agent="next", wait_seconds=30)
    assert granted.status == "claimed"
    print(f"next  in line  {granted.status}; {granted.previous_outcome} before, of {granted.previous_holder}")
    guard = [{"resource": RESOURCE, "version": granted.version}]
    await store.set("release", "notes", "by next", updated_by="next", guard=guard)
    written.set()
    return f"{granted.previous_outcome} {granted.previous_holder}"


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncStateStore(Path(folder) / "state.db") as store:
            claimed, written = asyncio.Event(), asyncio.Event()
            late, before = await asyncio.gather(
                slow_agent(store, claimed, written), next_agent(store, claimed, written)
            )
            notes = (await store.get("release", "notes")).value
    print(f"\nThe notes are {notes!r}.")
    return 0 if (late, before, notes) == ("fenced", "expired slow", "by next") else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
