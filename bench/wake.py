"""From a commit to a waiter that knows, and what waiting costs while nothing happens."""

import random
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Any

from bench.bench import Bench, Process
from bench.figures import Figure, number, percentile

GROUP = "wake"
MANY = 200


def run(bench: Bench) -> Iterator[Figure]:
    across = _measured(bench, bench.pick(200, 25), waiters=1, here=False)
    for share, target in ((0.5, 3.0), (0.99, 15.0)):
        late = {name: percentile([_first(it) for it in ran], share) for name, ran in across.items()}
        from_call = percentile([(it["woken"][0] - it["called"]) * 1000 for it in across["holdlog"]], share)
        beside = f"{_told(late)} ms; since the call began {number(from_call)} ms"
        yield Figure(
            GROUP,
            f"in another process, p{share * 100:.0f} after the commit",
            late["holdlog"],
            " ms",
            target,
            beside=beside,
        )
    here = _measured(bench, bench.pick(200, 25), waiters=1, here=True)
    late = {name: median(_first(it) for it in ran) for name, ran in here.items()}
    beside = f"{_told(late)} ms; below zero = before the writer had its answer"
    yield Figure(GROUP, "in the same process, p50 after the answer", late["holdlog"], " ms", 1.0, beside=beside)
    for where, is_here in (("another", False), ("the same", True)):
        ran = _measured(bench, bench.pick(15, 3), waiters=MANY, here=is_here)
        late = {name: median((max(it["woken"]) - it["called"]) * 1000 for it in told) for name, told in ran.items()}
        what = f"last of {MANY} waiters in {where} process, since the call began"
        yield Figure(GROUP, what, late["holdlog"], " ms", 60.0, beside=f"{_told(late)} ms")
    yield from _idle(bench)


def _measured(bench: Bench, rounds: int, waiters: int, here: bool) -> dict[str, list[dict[str, Any]]]:
    """What writer and waiters saw in each round, by contestant. The disk holds the store: waking comes after fsync."""
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in bench.shared_stores}
    rounds_of = {name: rounds if name == "holdlog" else min(rounds, bench.pick(40, 6)) for name in seen}
    with bench.folder(bench.disk) as folder:
        for name in seen:
            path = folder / f"{name}.db"
            with closing(bench.start(name, path)) as waiter, closing(bench.start(name, path)) as writer:
                for turn in range(rounds_of[name]):
                    bench.progress(f"{name}, {waiters} waiting, {turn}")
                    seen[name].append(_woken_here(waiter, waiters) if here else _woken(waiter, writer, waiters))
    return seen


def _woken(waiter: Process, writer: Process, waiters: int) -> dict[str, Any]:
    waiter.send("watch", key="watched", waiters=waiters)
    assert waiter.answer() == "ready"
    time.sleep(random.uniform(0.0, 0.2))  # anywhere between two looks of a poller
    wrote = writer.ask("change", key="watched")
    return wrote | {"woken": waiter.answer()}


def _woken_here(waiter: Process, waiters: int) -> dict[str, Any]:
    return waiter.ask("watch_here", key="watched", waiters=waiters)


def _first(seen: dict[str, Any]) -> float:
    """Milliseconds from the writer's answer to the waiter's; below zero when the bell was faster than the answer."""
    return (seen["woken"][0] - seen["done"]) * 1000


def _told(late: dict[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in late.items())


def _idle(bench: Bench) -> Iterator[Figure]:
    seconds = bench.pick(5.0, 1.0)
    with bench.folder(bench.disk) as folder:
        for waiters in (1, MANY):
            share = {}
            for name in bench.shared_stores:
                bench.progress(f"{name}, {waiters} idle")
                with closing(bench.start(name, folder / f"{name}.db")) as process:
                    share[name] = process.ask("idle", waiters=waiters, seconds=seconds) * 100
            yield Figure(
                GROUP,
                f"{waiters} idle waiters in a process",
                share["holdlog"],
                " % of a core",
                0.5,
                beside=f"{_told(share)} %",
            )
