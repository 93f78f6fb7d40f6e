"""Clients that vanish over HTTP: their waits end with them, and nothing of them stays."""

import asyncio
import gc
import os
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoint import ERAS, INITIALIZE, LEGACY, MODERN, Place, call, one_replica, until

WATCH = {"namespace": "n", "key": "k", "since_version": 0, "timeout_seconds": 50}
QUEUE = {"resource": "a.md", "agent": "bob", "wait_seconds": 50}
CLIENTS = 200


async def status(place: Place) -> Any:
    return (await place.call(MODERN, "status", {"resource": "a.md"})).content


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("token", [{}, {"progressToken": 1}], ids=["silent", "with progress"])
async def test_dropped_connection_leaves_the_queue(era: str, token: Any) -> None:
    async with one_replica(progress_every=0.01) as place, place.connect() as connection:
        await place.call(era, "claim", {"resource": "a.md", "agent": "ann"})
        await connection.send("POST", *call(era, "claim", QUEUE, token))
        await until(lambda: place.waiters)
        with place.engine.store.reader() as reader:
            assert [ticket.agent for ticket in reader.tickets(["a.md"])] == ["bob"]
            present = reader.leases.next_end()
        connection.drop()
        await until(lambda: not place.waiters)
        await until(lambda: next_end(place) != present)  # its ticket is no longer that of somebody present
        await place.call(era, "release", {"resource": "a.md", "agent": "ann"})
        assert (await place.call(era, "claim", {"resource": "a.md", "agent": "cat"})).content["status"] == "claimed"


def next_end(place: Place) -> int | None:
    with place.engine.store.reader() as reader:
        return reader.leases.next_end()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", [("watch", WATCH), ("wait", {"resource": "a.md", "timeout_seconds": 50})])
async def test_dropped_connection_leaves_no_waiter(era: str, tool: tuple[str, Any]) -> None:
    async with one_replica() as place:
        await place.call(era, "claim", {"resource": "a.md", "agent": "ann"})
        async with place.connect() as connection:
            await connection.send("POST", *call(era, *tool))
            await until(lambda: place.waiters)
        await until(lambda: not place.waiters)


@pytest.mark.parametrize("era", ERAS)
async def test_cleanly_closed_connection_ends_its_call(era: str) -> None:
    async with one_replica() as place, place.connect() as connection:
        await connection.send("POST", *call(era, "watch", WATCH))
        await until(lambda: place.waiters)
        connection.writer.close()
        await until(lambda: not place.waiters)


async def test_client_that_reads_nothing_counts_as_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reply", "stream"):
        monkeypatch.setattr(f"holdlog.adapters.mcp.http.{module}.STALLED", 0.2)
    for module in ("exchange", "stream"):
        monkeypatch.setattr(f"holdlog.adapters.mcp.http.{module}.PING_EVERY", 0.2)
    async with one_replica(progress_every=0.001) as place, place.connect() as one, place.connect() as two:
        given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
        for connection in (one, two):
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            connection.writer.get_extra_info("socket").setsockopt(1, 8, 4096)  # SO_RCVBUF
        await one.send("POST", *call(MODERN, "watch", WATCH, {"progressToken": "p" * 100_000}))
        await two.send("GET", b"", {"mcp-session-id": given})
        await until(lambda: place.endpoint.sessions.open)
        (session,) = place.endpoint.sessions.open.values()
        for number in range(1000):
            await session.connection.notify("notifications/resources/updated", {"uri": f"{number}" * 5000})
        await until(lambda: not session.users)
        await until(lambda: not place.waiters)


async def vanish(place: Place, clients: int) -> None:
    """In mid-call and mid-stream, of both eras, at once."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(place.connect()) for _ in range(clients)]
        for number, connection in enumerate(connections):
            era = ERAS[number % 2]
            match number % 5:
                case 0:
                    await connection.send("POST", *call(era, "watch", WATCH))
                case 1:
                    await connection.send("POST", *call(era, "claim", QUEUE | {"agent": f"a{number}"}))
                case 2:
                    await connection.send("POST", *call(era, "watch", WATCH, {"progressToken": 1}))
                case 3:
                    given = (await place.ask(LEGACY, "initialize", INITIALIZE)).headers["mcp-session-id"]
                    await connection.send("GET", b"", {"mcp-session-id": given})
                    await connection.chunk() if (await connection.head())[0] == 200 else None
                case 4:
                    body, _ = call(era, "get", {"namespace": "n", "key": "k"})
                    connection.writer.write(b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n" + body)
                    await connection.writer.drain()
        waits = clients * 3 // 5
        await until(lambda: place.waiters >= waits)
    await until(lambda: not place.waiters)
    await until(lambda: not place.endpoint.sessions.open)


@pytest.mark.slow
async def test_two_hundred_abandoned_clients_leave_nothing_behind(tmp_path: Path) -> None:
    async with one_replica(tmp_path / "state.db", progress_every=0.05) as place:
        place.endpoint.sessions._idle = 0.05
        await place.call(LEGACY, "claim", {"resource": "a.md", "agent": "ann", "lease_seconds": 3600})
        tracemalloc.start()
        await vanish(place, CLIENTS)  # what is loaded and cached once
        await until(lambda: len(asyncio.all_tasks()) <= 3)
        tasks, descriptors, held = counts()
        bounds = tasks, descriptors, held + CLIENTS * 512
        await vanish(place, CLIENTS)
        await until(lambda: all(now <= most for now, most in zip(counts(), bounds, strict=True)))
        tracemalloc.stop()
        assert not place.endpoint.sessions.calls
        assert (await place.call(MODERN, "get", {"namespace": "n", "key": "k"})).content["status"] == "not_found"


def counts() -> tuple[int, int, int]:
    """Tasks, descriptors, bytes."""
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]
