"""Transactions of many keys against a plain SQLite transaction that writes the same rows; updates in the store."""

import gc
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from bench.bench import Bench
from bench.figures import Figure, interleaved
from holdlog.domain.json_patch import MAX_STEPS, patch
from holdlog.domain.refusals import HoldlogError
from holdlog.domain.updates import Work
from holdlog.domain.value import Json

GROUP = "transactions"
KEYS = 100
CALLS = 5
"""In a row, before the next contestant has its turn."""
TARGETS = {"disk": 2.0, "tmpfs": 2.0}
"""Without a disk, all that holdlog does besides SQLite counts in full."""

LARGEST = 256 * 1024
PARTS = {"numbers": "0", "texts": '""', "objects": '{"a":1,"b":"xyz","c":[1]}', "long integers": "9" * 4300}
"""What the largest values consist of."""
STEPS: dict[str, list[dict[str, Any]]] = {
    "tests": [{"op": "test", "path": "/0", "value": 0}],
    "insertions": [{"op": "add", "path": "/0", "value": 0}, {"op": "remove", "path": "/0"}],
    "copies": [{"op": "copy", "from": "", "path": "/0"}, {"op": "remove", "path": "/0"}],
    "moves": [{"op": "move", "from": "/0", "path": "/1"}],
    "replacements": [{"op": "replace", "path": "/0", "value": 1}],
}


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
            ratio, times = measured.ratio("holdlog", "sql"), measured.described(" µs")
            yield Figure(GROUP, f"set of {KEYS} keys, {place}", ratio, "x SQLite", TARGETS[place], beside=times)
            counted = interleaved(
                ("holdlog",),
                bench.pick(20, 5),
                lambda name, processes=processes: processes[name].ask("increment_all", n=CALLS, keys=KEYS),
                lambda turn: None,
            )
            yield Figure(GROUP, f"increment of {KEYS} keys, {place}", counted.median("holdlog"), " µs")
    took = {f"{steps} in {parts}": _patching(parts, steps) for parts in PARTS for steps in STEPS}
    costliest = max(took, key=took.__getitem__)
    yield Figure(GROUP, "costliest JSON patch of a 256 KiB value", took[costliest] * 1e3, " ms", 50, beside=costliest)


def _patching(parts: str, steps: str) -> float:
    """Seconds until a patch of as many steps as allowed ends or is refused, the best of three times."""
    value = Json(f"[{','.join([PARTS[parts]] * (LARGEST // (len(PARTS[parts]) + 1) - 1))}]")
    given = Json.of((STEPS[steps] * MAX_STEPS)[:MAX_STEPS])
    best = 60.0
    for _ in range(3):
        gc.collect()
        begun = time.perf_counter()
        with suppress(HoldlogError):
            patch(value, given, 2 * LARGEST, Work())
        best = min(best, time.perf_counter() - begun)
    return best
