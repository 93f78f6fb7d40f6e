"""What it costs to read an earlier moment, and to make that possible."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.contestants import NAMESPACE
from bench.figures import Figure, interleaved
from bench.size import _set, fill
from holdlog.adapters.python.store import StateStore
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.message import Caller
from holdlog.projections.claims import SNAPSHOT_EVERY

GROUP = "past"
KEYS = 1_000
LIVE = 1_000
"""Claims."""
READS = 50


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(1_000_000, 50_000)
    with bench.folder(bench.memory) as folder:
        path = folder / "values.db"
        commands = (_set(f"key-{number % KEYS:06}") for number in range(events))
        fill(path, commands, lambda done: bench.progress(f"{done} events"))
        with StateStore(path) as store:
            yield from _reads(bench, store, events)
        path = folder / "claims.db"
        last = _fill_claims(path)
        with StateStore(path) as store:
            yield from _boards(bench, store, last)


def _reads(bench: Bench, store: StateStore, events: int) -> Iterator[Figure]:
    address = (NAMESPACE, "key-000005")
    middle = events // 2
    view = store.at(position=middle)
    at = view.as_of().at
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(*address),
        "view": lambda: view.get(*address),
        "position": lambda: store.at(position=middle).get(*address),
        "time": lambda: store.at(time=at).get(*address),
    }

    def measure(name: str) -> list[float]:
        taken = []
        for _ in range(READS):
            started = time.perf_counter()
            calls[name]()
            taken.append((time.perf_counter() - started) * 1e6)
        return taken

    measured = interleaved(tuple(calls), bench.pick(60, 20), measure, lambda turn: bench.progress(f"reads {turn}"))
    for name, target, what in (
        ("view", 3.0, "get in a view of the middle of the log"),
        ("position", None, "the same, with finding the position"),
        ("time", None, "the same, with finding the time"),
    ):
        ratio = measured.ratio(name, "get")
        beside = f"{events:,} events, {KEYS:,} keys; {measured.described(' µs')}"
        yield Figure(GROUP, f"{what}, to get now", ratio, "x", target, beside=beside)


def _boards(bench: Bench, store: StateStore, last: int) -> Iterator[Figure]:
    after = last // SNAPSHOT_EVERY * SNAPSHOT_EVERY
    for what, position in (("most events after a snapshot", after - 1), ("just after a snapshot", after + 100)):
        taken = []
        for turn in range(bench.pick(30, 5)):
            bench.progress(f"board {what}, {turn}")
            started = time.perf_counter()
            board = store.at(position=position).board(limit=LIVE)
            taken.append((time.perf_counter() - started) * 1e3)
            assert len(board.claims) == LIVE
        yield Figure(GROUP, f"board of {LIVE:,} claims, {what}", median(taken), " ms", 100)


def _fill_claims(path: Path) -> int:
    """Hold `LIVE` claims, and claim and release others for more than two snapshots. Returns the last position."""
    store = open_sqlite(path)
    sessions = LIVE // 50
    for number in range(sessions):
        caller = Caller(session=f"s{number}", server="bench")
        with store.transaction(time.monotonic() + 30) as transaction:
            for file in range(50):
                resource = f"src/m{number}/f{file}.py"
                handle(AcquireClaim(resource=resource, agent=f"w{number}", lease=10**12), caller, transaction)
    caller = Caller(session="churn", server="bench")
    while True:
        with store.transaction(time.monotonic() + 30) as transaction:
            for file in range(50):
                handle(AcquireClaim(resource=f"tmp/{file}", agent="churn"), caller, transaction)
                handle(ReleaseClaim(resource=f"tmp/{file}", agent="churn"), caller, transaction)
            last = transaction.position()
        if last >= 3 * SNAPSHOT_EVERY + LIVE:
            store.close()
            return last
