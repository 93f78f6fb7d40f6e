"""8 processes add 1 to one number by compare-and-set: nothing lost, and who waits how long."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from statistics import median

from bench.bench import Bench
from bench.figures import Figure, number

GROUP = "contend"
PROCESSES = 8


def run(bench: Bench) -> Iterator[Figure]:
    rounds, seconds = bench.pick(3, 1), bench.pick(5.0, 2.0)
    told: dict[str, list[dict[str, float]]] = {name: [] for name in bench.contestants}
    for turn in range(rounds):
        for name in bench.contestants:
            bench.progress(f"{name}, round {turn + 1}")
            told[name].append(_compete(bench, name, seconds))
    middle = {name: {fact: median(it[fact] for it in ran) for fact in ran[0]} for name, ran in told.items()}

    def beside(fact: str, unit: str) -> str:
        return ", ".join(f"{name} {number(middle[name][fact])}" for name in middle) + unit

    holdlog = middle["holdlog"]
    lost = max(abs(it["lost"]) for it in told["holdlog"])
    yield Figure(GROUP, "increments lost or doubled, disk", lost, "", 0, beside=beside("lost", ""))
    yield Figure(GROUP, "slowest call", holdlog["call"], " s", 0.5, beside=beside("call", " s"))
    yield Figure(
        GROUP, "slowest increment, with its conflicts", holdlog["increment"], " s", beside=beside("increment", " s")
    )
    yield Figure(
        GROUP, "busiest to least busy process", holdlog["unfairness"], "x", 3.0, beside=beside("unfairness", "x")
    )
    yield Figure(
        GROUP,
        "increments a second",
        holdlog["rate"],
        "/s",
        beside=beside("rate", "/s") + "; calls " + beside("calls", "/s"),
    )


def _compete(bench: Bench, name: str, seconds: float) -> dict[str, float]:
    with bench.folder(bench.disk) as folder, ExitStack() as stack:
        path = folder / "contended.db"
        processes = [stack.enter_context(closing(bench.start(name, path))) for _ in range(PROCESSES)]
        start = time.monotonic() + 0.2
        for process in processes:
            process.send("compete", start=start, end=start + seconds)
        ran = [process.answer() for process in processes]
        done = [it["done"] for it in ran]
        return {
            "lost": sum(done) - processes[0].ask("value", key="contended"),
            "call": max(it["slowest_call"] for it in ran),
            "increment": max(it["slowest_increment"] for it in ran),
            "unfairness": max(done) / max(1, min(done)),
            "rate": sum(done) / seconds,
            "calls": sum(it["done"] + it["conflicts"] for it in ran) / seconds,
        }
