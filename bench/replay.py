"""How fast `holdlog replay` prints a log, from its start to its end, and the memory that it needs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.figures import Figure
from bench.rebuild import commands
from bench.size import fill

GROUP = "replay"
SMALL = 1_000
"""Events of a log whose replay is mostly the start of the process."""


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(1_000_000, 50_000)
    with bench.folder(bench.memory) as folder:
        path = folder / "store.db"
        fill(path, commands(events), lambda done: bench.progress(f"{done} events to replay"))
        small = folder / "small.db"
        fill(small, commands(SMALL))
        for what, target, words in (("text", 50_000, []), ("JSON", None, ["--json"])):
            taken, starts, sizes = [], [], []
            for turn in range(bench.pick(5, 3)):
                bench.progress(f"{what}, {turn}")
                seconds, size = _replay(path, words)
                start, least = _replay(small, words)
                taken.append(seconds)
                starts.append(start)
                sizes.append((size, least))
            rate = (events - SMALL) / (median(taken) - median(starts))
            most, least = map(median, zip(*sizes, strict=True))
            beside = f"without the start of {median(starts):.1f} s; {most:.0f} MB, for {SMALL:,} events {least:.0f} MB"
            yield Figure(GROUP, f"{events:,} events as {what}", rate, " events/s", target, at_least=True, beside=beside)


def _replay(path: Path, words: list[str]) -> tuple[float, float]:
    """Seconds and the most memory (MB) of one replay."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdlog", "replay", "--db", str(path), *words], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - started, used.ru_maxrss / 1024
