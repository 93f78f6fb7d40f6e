"""From the log to NATS: how fast a backlog drains, and how long after a commit a subscriber has the event."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nats

from bench.bench import Bench
from bench.figures import Figure, number, percentile
from holdlog.adapters.compose import open_holdlog, open_lead
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.nats.relay import Relay
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from holdlog.domain.record import Set, Transact
from holdlog.domain.value import Json
from tests.support.servers import nats_server

GROUP = "relay"
AT_ONCE: Final = 100
"""Events in a commit of the backlog."""
APART: Final = 0.01
"""Seconds between commits whose way to a subscriber is timed."""


def run(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.disk) as folder, nats_server(folder / "nats") as server:
        options = nats_options(server.url)
        yield _drained(bench, folder / "drain.db", options)
        yield from _timed(bench, folder / "timed.db", options)


def _drained(bench: Bench, path: Path, options: NatsOptions) -> Figure:
    events = bench.pick(50_000, 5_000)
    engine = open_holdlog(path)
    for number_of in range(events // AT_ONCE):
        bench.progress(f"writing {number_of * AT_ONCE:,} of {events:,} events")
        _write(engine, number_of, AT_ONCE)
    bench.progress("draining")
    started = time.perf_counter()
    asyncio.run(Relay(engine.store, engine.notifier, open_lead(path, options), options).run(once=True))
    seconds = time.perf_counter() - started
    engine.close()
    plain = asyncio.run(_published(options, min(events, 20_000)))
    beside = f"nats-py's publish_async alone, without headers: {number(plain)}/s"
    return Figure(GROUP, f"a backlog of {events:,} drains", events / seconds, "/s", 10_000, True, beside)


async def _published(options: NatsOptions, count: int) -> float:
    connection = await nats.connect(list(options.servers))
    js = connection.jetstream(publish_async_max_pending=512)
    await js.add_stream(name="plain", subjects=["plain.>"])
    payload = b"x" * 400
    started = time.perf_counter()
    for _ in range(count):
        await js.publish_async("plain.a.b.c", payload)
    await js.publish_async_completed()
    seconds = time.perf_counter() - started
    await connection.close()
    return count / seconds


def _timed(bench: Bench, path: Path, options: NatsOptions) -> Iterator[Figure]:
    commits = bench.pick(500, 60)
    engine = open_holdlog(path)
    with engine.store.reader() as reader:
        named = options._replace(name=reader.meta("store_id"))
    relay = subprocess.Popen(
        [sys.executable, "-m", "holdlog", "relay", "--db", path, "--nats", options.address, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert relay.stdout is not None
        while json.loads(relay.stdout.readline())["state"] != "current":
            bench.progress("the relay starts")
        seen: dict[int, float] = {}
        ready = threading.Event()
        listener = threading.Thread(target=lambda: asyncio.run(_listen(named, seen, commits, ready)), daemon=True)
        listener.start()
        ready.wait(10)
        done: dict[int, float] = {}
        for turn in range(commits + 1):
            bench.progress(f"commit {turn} of {commits}")
            _write(engine, turn, 1)
            done[turn + 1] = time.perf_counter()
            time.sleep(APART)
        listener.join(30)
    finally:
        relay.terminate()
        relay.wait()
        engine.close()
    late = [(seen[position] - done[position]) * 1000 for position in seen if position > 1]
    for share, target in ((0.5, 3.0), (0.99, None)):
        what = f"from commit to subscriber, p{share * 100:.0f}"
        yield Figure(GROUP, what, percentile(late, share), " ms", target, beside="three processes, one machine")


async def _listen(options: NatsOptions, seen: dict[int, float], count: int, ready: threading.Event) -> None:
    async with Subscription(options, after=0) as events:
        ready.set()
        async for event in events:
            seen[event.position] = time.perf_counter()
            if event.position > count:
                return


def _write(engine: Engine, turn: int, count: int) -> None:
    value = Json.of({"turn": turn, "text": "x" * 60})
    operations = tuple(Set(namespace=f"n{turn % 7}", key=f"k{key}", value=value) for key in range(count))
    engine.writer.run(Transact(operations=operations, by="ann"), NOBODY)
