"""How fast programs read the events of a store."""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from bench.bench import Bench
from bench.contestants import NAMESPACE
from bench.figures import Figure
from bench.rebuild import commands
from bench.size import fill
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.python.store import StateStore

GROUP = "events"


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(100_000, 20_000)
    with bench.folder(bench.memory) as folder:
        path = folder / "store.db"
        fill(path, commands(events), lambda done: bench.progress(f"{done} events to read"))
        with StateStore(path) as store:
            for what, target, read in (
                ("pages of 1,000", 50_000, lambda: _pages(store)),
                ("pages of a namespace", None, lambda: _pages(store, namespace=NAMESPACE)),
            ):
                rates = []
                for turn in range(bench.pick(7, 3)):
                    bench.progress(f"{what}, {turn}")
                    rates.append(_rate(read))
                yield Figure(GROUP, f"{what}, library", median(rates), " events/s", target, at_least=True)


def _rate(read: Callable[[], int]) -> float:
    started = time.perf_counter()
    return read() / (time.perf_counter() - started)


def _pages(store: StateStore, **filters: Any) -> int:
    """Read all pages of the log; returns the number of events."""
    after, found = 0, 0
    while True:
        page = store.events(after, limit=MAX_PAGE, **filters)
        found += len(page.events)
        after = page.next_position
        if after == page.bookmark:
            return found
