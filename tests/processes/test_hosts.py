"""Servers on two hosts share a database: who waits on one is woken by what happens on the other."""

import asyncio
import statistics
import sys
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport

from tests.processes.test_servers import begun
from tests.support.agent import Agent, connected
from tests.support.hosts import Host, hosts, missing
from tests.support.postgres import PostgresOverTcp, postgres_over_tcp
from tests.support.servers import NatsServer
from tests.support.slow import slow

pytestmark = pytest.mark.xdist_group("postgres over tcp")

ROUNDS = 20
SERVER = """
import sys
from holdlog.adapters.compose import open_holdlog, publish_to_nats
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.mcp.stdio.serving import run_stdio
from holdlog.adapters.nats.options import nats_options
from holdlog.adapters.stores.postgres import session

_, url, nats, looks = sys.argv
if looks == "never looks":
    session.POLL_EVERY = 3600.0
opened = open_holdlog(url)
opened.keep_sessions()
beside = publish_to_nats(opened, url, nats_options(nats)) if nats else None

async def end():
    if beside is not None:
        beside.stop()
    opened.close()

run_stdio(build_server(opened, ("claims", "state"), progress_every=0.02), end)
"""
"""A server that tells of its waits so soon that a test can tell when one has begun."""


@pytest.fixture(scope="module")
def network() -> Iterator[list[Host]]:
    if (why := missing()) is not None:
        warnings.warn(f"both hosts are this one, with a process each: {why}", stacklevel=1)
        yield [Host((), "127.0.0.1"), Host((), "127.0.0.1")]
    else:
        with hosts(2) as found:
            yield found


@pytest.fixture(scope="module")
def server(network: list[Host]) -> Iterator[PostgresOverTcp]:
    with postgres_over_tcp("0.0.0.0", "trust") as found:
        yield found


@asynccontextmanager
async def agents(
    network: list[Host], schema: str, port: int, nats: NatsServer | None = None, looks: str = ""
) -> AsyncIterator[list[Agent]]:
    """One on each host, with a server process of its own there."""
    async with AsyncExitStack() as stack:
        entered = []
        for host in network:
            url = f"postgresql://postgres@{host.outside}:{port}/postgres?sslmode=disable&schema={schema}"
            bus = f"nats://{host.outside}:{nats.port}" if nats else ""
            first, *rest = *host.before, sys.executable, "-c", SERVER, url, bus, looks
            transport = StdioTransport(first, rest, keep_alive=False)
            entered.append(stack.enter_async_context(connected(transport)))
        yield list(await asyncio.gather(*entered))


async def hand_over(holder: Agent, waiter: Agent, how: str) -> float:
    """One lets go of what the other waits for; the seconds until it knew."""
    await holder("claim", resource="a.md", agent="holder")
    more: dict[str, Any] = {"agent": "waiter", "wait_seconds": 30} if how == "claim" else {"timeout_seconds": 30}
    waits = await begun(waiter, how, resource="a.md", **more)
    if how == "claim":
        await in_line(holder)
    let_go = time.monotonic()
    released = await holder("release", resource="a.md", agent="holder")
    answer = await waits
    seconds = time.monotonic() - let_go
    assert released.get("granted_to") == ("waiter" if how == "claim" else None)
    assert answer["status"] == ("claimed" if how == "claim" else "available")
    if how == "claim":
        assert (await holder("status", resource="a.md"))["held_by"] == "waiter"
        assert (await waiter("release", resource="a.md", agent="waiter"))["status"] == "released"
    return seconds


async def in_line(agent: Agent) -> None:
    while not (await agent("status", resource="a.md"))["queue_length"]:  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.check
@pytest.mark.parametrize("how", ["claim", *slow("wait")])
async def test_waiter_on_one_host_is_woken_by_a_release_on_the_other(
    network: list[Host], server: PostgresOverTcp, how: str
) -> None:
    async with agents(network, f"bell_{how}", server.port) as team:
        seconds = [await hand_over(*team[:: 1 if turn % 2 else -1], how) for turn in range(ROUNDS)]  # type: ignore[misc]
    report(f"{how} by the bell of PostgreSQL", seconds)


# --- a cable that is cut

AT = {"namespace": "n", "key": "k"}
TOLD = 30.0
"""Seconds, on a busy machine, after which a caller that nothing reaches must have been told."""


async def called(agent: Agent, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return await asyncio.wait_for(agent(tool, **arguments), TOLD)


@pytest.mark.slow
async def test_disconnected_host_gets_errors_and_blocks_nobody(network: list[Host], server: PostgresOverTcp) -> None:
    async with agents(network, "cut", server.port) as (here, there):
        write = {**AT, "updated_by": "ben", "force": True}
        assert (await there("set", **write, value=0))["status"] == "ok"
        assert (await there("claim", resource="b.md", agent="ben"))["status"] == "claimed"
        with cut(network[1]):
            refused = asyncio.create_task(called(there, "set", **write, value=1))
            assert (await called(here, "set", **AT, updated_by="ann", force=True, value=2))["status"] == "ok"
            assert (await refused)["status"] == "unavailable"
        assert (await called(there, "get", **AT))["value"] == 2
        assert (await called(there, "set", **write, value=3))["status"] == "ok"
        history = (await here("history", **AT))["history"]
        assert [past["value"] for past in history] in ([3, 2, 0], [3, 2, 1, 0])  # the second was in doubt


@pytest.mark.slow
async def test_disconnected_host_counts_as_gone_and_may_return(network: list[Host], server: PostgresOverTcp) -> None:
    async with agents(network, "gone", server.port) as (here, there):
        assert (await there("claim", resource="b.md", agent="ben"))["status"] == "claimed"
        with cut(network[1]):
            assert (await called(there, "get", **AT))["status"] == "unavailable"
            assert (await called(there, "claim", resource="c.md", agent="ben"))["status"] == "unavailable"
            await connected_is(False, here)
        await connected_is(True, here)
        assert (await called(there, "claim", resource="b.md", agent="ben"))["status"] == "already_claimed"


async def connected_is(expected: bool, agent: Agent) -> None:
    while (await agent("status", resource="b.md"))["holder_connected"] is not expected:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@contextmanager
def cut(host: Host) -> Iterator[None]:
    if not host.before:
        pytest.skip("both hosts are this one")
    host.cut()
    try:
        yield
    finally:
        host.mend()


# --- NATS alone


@asynccontextmanager
async def pooler(server: PostgresOverTcp) -> AsyncIterator[int]:
    """Between servers and database: as poolers in transaction mode, it passes on no notification. Its port."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def but_notifications(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:  # https://www.postgresql.org/docs/current/protocol-message-formats.html
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
            if head[:1] != b"A":
                writer.write(head + body)

    async def pair(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", server.port)
        ways = [forward(reader, there[1]), but_notifications(there[0], writer)]
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()

    listening = await asyncio.start_server(pair, "0.0.0.0", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


@pytest.mark.slow
async def test_nats_notifications_wake_waiters_where_those_of_the_database_fail(
    network: list[Host], server: PostgresOverTcp, tmp_path: Path
) -> None:
    nats = NatsServer(tmp_path / "nats", host="0.0.0.0")
    try:
        nats.start()
        async with pooler(server) as port:
            async with agents(network, "silent", port, looks="never looks") as (ann, ben):
                await ann("claim", resource="a.md", agent="ann")
                asked = time.monotonic()
                waits = await begun(ben, "claim", resource="a.md", agent="ben", wait_seconds=2)
                await in_line(ann)
                assert (await ann("release", resource="a.md", agent="ann"))["granted_to"] == "ben"
                assert (await waits)["status"] == "claimed"
                assert time.monotonic() - asked >= 2, "something woke it"
            async with agents(network, "nats", port, nats, looks="never looks") as team:
                seconds = [await hand_over(*team, "claim") for _ in range(ROUNDS)]  # type: ignore[misc]
                assert max(seconds) < 30, "nobody was woken"
    finally:
        nats.stop()
    report("claim by the bell of NATS alone", seconds)


def report(what: str, seconds: list[float]) -> None:
    """Figures, for who runs it with -s; no promise hangs on them here."""
    cuts = statistics.quantiles(seconds, n=100)
    print(f"\n{what}: release to answer, p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms")
