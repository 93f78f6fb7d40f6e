"""One caller: set, get, history and claims against plain sqlite3, holdlog's own SQL, and agenthold's library; and four
processes that write keys of their own."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

from bench.bench import Bench
from bench.figures import Figure, Rounds, interleaved

GROUP = "library"
KEYS = 64
CALLS = 20
"""In a row, before the next contestant has its turn."""
PROCESSES = 4


class Target(NamedTuple):
    """The most that holdlog's call may take, as a multiple of another's, per place."""

    of: str
    disk: float | None
    tmpfs: float | None

    def at(self, place: str) -> float | None:
        return self.tmpfs if place == "tmpfs" else self.disk


TARGETS = {
    "set": (Target("raw", 1.4, 2.5), Target("sql", None, 1.7), Target("agenthold", 1.15, 1.5)),
    "set_new": (Target("raw", None, None), Target("agenthold", None, None)),
    "get": (Target("raw", 2.0, 2.0), Target("agenthold", 1.0, 1.0)),
    "claim_release": (Target("raw", None, None), Target("agenthold", 0.8, 1.0)),
    "history": (Target("agenthold", 1.2, 1.2),),
}
NAMES = {
    "set": "set, 64 keys",
    "set_new": "set, new keys",
    "get": "get",
    "claim_release": "claim + release",
    "history": "history, last 10 of many versions",
}


def run(bench: Bench) -> Iterator[Figure]:
    for place in bench.places:
        yield from _one_caller(bench, place)
        yield from _disjoint(bench, place)


def _one_caller(bench: Bench, place: str) -> Iterator[Figure]:
    rounds = bench.pick(100, 20)
    names = ("sql", *bench.contestants)
    calls = (
        ("set", names, {"keys": KEYS}),
        ("set_new", bench.contestants, {}),
        ("get", bench.contestants, {"keys": KEYS}),
        ("claim_release", bench.contestants, {"resources": KEYS}),
        ("history", tuple(name for name in bench.contestants if name != "raw"), {}),
    )
    with bench.folder(bench.places[place]) as folder, bench.processes(names, folder) as processes:
        for name, process in processes.items():
            process.ask("set", n=3 * KEYS, keys=KEYS)
            if name != "sql":
                process.ask("claim_release", n=2 * KEYS, resources=KEYS)
        for name in calls[-1][1]:
            processes[name].ask("versions", n=bench.pick(10_000, 1_000))
        for do, contestants, arguments in calls:
            measured = interleaved(
                contestants,
                rounds,
                lambda name, do=do, arguments=arguments: processes[name].ask(do, n=CALLS, **arguments),
                lambda turn, do=do: bench.progress(f"{place} {do} {turn}"),
            )
            yield from _ratios(measured, do, place)


def _ratios(measured: Rounds, do: str, place: str) -> Iterator[Figure]:
    for target in TARGETS[do]:
        if target.of in measured:
            ratio, unit = measured.ratio("holdlog", target.of), f"x {target.of}"
            yield Figure(
                GROUP, f"{NAMES[do]}, {place}", ratio, unit, target.at(place), beside=measured.described(" µs")
            )


def _disjoint(bench: Bench, place: str) -> Iterator[Figure]:
    """Four processes on one file, each with its keys: the time per call of all together."""
    names = tuple(name for name in bench.contestants if name != "raw")
    with bench.folder(bench.places[place]) as folder, ExitStack() as stack:
        running = {
            name: [stack.enter_context(closing(bench.start(name, folder / f"{name}.db"))) for _ in range(PROCESSES)]
            for name in names
        }

        def per_call(name: str) -> list[float]:
            start = time.monotonic() + 0.05
            for number, process in enumerate(running[name]):
                process.send("sets_until", start=start, end=start + 0.5, prefix=f"p{number}")
            return [0.5e6 / sum(process.answer() for process in running[name])]

        progress = bench.progress
        measured = interleaved(names, bench.pick(15, 5), per_call, lambda turn: progress(f"{place} processes {turn}"))
        if "agenthold" in measured:
            ratio, target = measured.ratio("holdlog", "agenthold"), 1.5 if place == "tmpfs" else None
            what = f"{PROCESSES} processes, keys of their own, {place}"
            yield Figure(GROUP, what, ratio, "x agenthold", target, beside=measured.described(" µs a call"))
