"""Transactions of many keys against a plain SQLite transaction that writes the same rows; updates in the store."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.figures import Figure, interleaved

GROUP = "transactions"
KEYS = 100
CALLS = 5
"""In a row, before the next contestant has its turn."""
TARGETS = {"disk": 2.0, "tmpfs": 2.0}
"""Without a disk, all that holdlog does besides SQLite counts in full."""


def run(bench: Bench) -> Iterator[Figure]:
    for place, parent in bench.places.items():
        with bench.folder(parent) as folder, bench.processes(("sql", "holdlog"), folder) as processes:
            for process in processes.values():
                process.ask("transact", n=3, keys=KEYS)
            measured = interleaved(
                ("sql", "holdlog"),
                bench.pick(60, 15),
                lambda name, processes=processes: processes[name].ask("transact", n=CALLS, keys=KEYS),
                lambda turn, place=place: bench.progress(f"{place} {turn}"),
            )
            ratio, told = measured.ratio("holdlog", "sql"), measured.told(" µs")
            yield Figure(GROUP, f"set of {KEYS} keys, {place}", ratio, "x SQLite", TARGETS[place], beside=told)
            counted = interleaved(
                ("holdlog",),
                bench.pick(20, 5),
                lambda name, processes=processes: processes[name].ask("increment_all", n=CALLS, keys=KEYS),
                lambda turn: None,
            )
            yield Figure(GROUP, f"increment of {KEYS} keys, {place}", counted.median("holdlog"), " µs")
