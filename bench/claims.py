"""Claims as their number grows, handed over to who stands in line, and as guards of writes."""

import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median

from bench.bench import Bench
from bench.figures import Figure, interleaved, number, percentile

GROUP = "claims"
LIVE = 10_000
WAITERS = 100
CALLS = 20


def run(bench: Bench) -> Iterator[Figure]:
    yield from _live(bench)
    yield from _hand_over(bench)
    yield from _guarded(bench)


def _live(bench: Bench) -> Iterator[Figure]:
    """The same calls on a store without other claims, and on one where others hold many."""
    live = bench.pick(LIVE, LIVE)
    with bench.folder(bench.memory) as folder:
        stores = {
            "empty": bench.start("holdlog", folder / "empty.db"),
            "full": bench.start("holdlog", folder / "full.db"),
        }
        try:
            bench.progress(f"{live} claims")
            stores["full"].ask("hold", n=live)
            for what, do in (("claim + release", "claim_release"), ("claim + release of a subtree", "subtree")):
                measured = interleaved(
                    tuple(stores),
                    bench.pick(100, 20),
                    lambda name, do=do: stores[name].ask(do, n=CALLS, resources=64),
                    lambda turn, what=what: bench.progress(f"{what} {turn}"),
                )
                yield Figure(
                    GROUP,
                    f"{what} beside {live} live claims",
                    measured.ratio("full", "empty"),
                    "x an empty store",
                    2.0,
                    beside=measured.described(" µs"),
                )
        finally:
            for process in stores.values():
                process.close()


def _hand_over(bench: Bench) -> Iterator[Figure]:
    """From the release to the answer that the next in line has it, in another process."""
    rounds = bench.pick(200, 40)
    with bench.folder(bench.disk) as folder:
        path = folder / "line.db"
        with closing(bench.start("holdlog", path)) as holder, closing(bench.start("holdlog", path)) as waiter:
            late, whole = [], []
            for turn in range(rounds):
                bench.progress(f"hand-over {turn}")
                holder.ask("take", resource=f"line-{turn}", agent="holder")
                waiter.send("stand", resource=f"line-{turn}", agent="waiter")
                assert waiter.answer() == "ready"
                while holder.ask("in_line", resource=f"line-{turn}") == 0:
                    time.sleep(0.001)
                let = holder.ask("let", resource=f"line-{turn}", agent="holder")
                granted = waiter.answer()
                late.append((granted - let["done"]) * 1000)
                whole.append((granted - let["called"]) * 1000)
    beside = f"p99 {number(percentile(late, 0.99))} ms; since the release was called {number(median(whole))} ms"
    yield Figure(GROUP, "granted in another process, p50 after the release", median(late), " ms", 5.0, beside=beside)


def _guarded(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.memory) as folder, closing(bench.start("holdlog", folder / "guard.db")) as process:
        process.ask("take", resource="guarded", agent="agent-1")
        measured = interleaved(
            ("set", "set_guarded"),
            bench.pick(100, 20),
            lambda do: process.ask(do, n=CALLS, keys=64),
            lambda turn: bench.progress(f"guarded {turn}"),
        )
        ratio = measured.ratio("set_guarded", "set")
        yield Figure(GROUP, "set that names a claim as guard", ratio, "x set", beside=measured.described(" µs"))
