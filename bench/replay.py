"""How fast `holdlog replay` prints a log, `verify` verifies it, and `export` and `import` carry it to another store;
their memory, and the time of a checkpoint and of evidence."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.figures import Figure
from bench.rebuild import commands
from bench.size import fill
from holdlog import StateStore
from holdlog.adapters.stores.event_log.tree import checkpoint_of
from holdlog.adapters.stores.sqlite.opening import open_sqlite

GROUP = "replay"
SMALL = 1_000
"""Events of a log whose replay is mostly the start of the process."""
PROVEN = 10_000
"""Events in a bundle of evidence."""
_COMMANDS = (
    ("replay as text", 50_000, ["replay"]),
    ("replay as JSON", None, ["replay", "--json"]),
    ("verify", 50_000, ["verify"]),
    ("export --log", None, ["export", "--log"]),
)


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(1_000_000, 50_000)
    with bench.folder(bench.memory) as folder:
        path = folder / "store.db"
        fill(path, commands(events), lambda done: bench.progress(f"{done} events to replay"))
        small = folder / "small.db"
        fill(small, commands(SMALL))
        for what, target, words in _COMMANDS:
            taken, starts, sizes = [], [], []
            for turn in range(bench.pick(5, 3)):
                bench.progress(f"{what}, {turn}")
                seconds, size = _cost_of(words, path)
                start, least = _cost_of(words, small)
                taken.append(seconds)
                starts.append(start)
                sizes.append((size, least))
            rate = (events - SMALL) / (median(taken) - median(starts))
            most, least = map(median, zip(*sizes, strict=True))
            beside = f"without the start of {median(starts):.1f} s; {most:.0f} MB, for {SMALL:,} events {least:.0f} MB"
            yield Figure(GROUP, f"{what}, {events:,} events", rate, " events/s", target, at_least=True, beside=beside)
        yield _evidence(path, events, bench)
        yield _checkpoint(path, bench)
        yield _import(folder, bench)


def _import(folder: Path, bench: Bench) -> Figure:
    """An import into a new file."""
    many = bench.pick(200_000, 20_000)
    seconds: dict[int, list[float]] = {many: [], SMALL: []}
    most = 0.0
    for events, taken in seconds.items():
        source, export, target = (folder / f"{name}-{events}" for name in ("source", "export", "target"))
        fill(source, commands(events))
        _cost_of(["export", "--log", "-o", str(export)], source)
        for turn in range(bench.pick(5, 3)):
            bench.progress(f"import of {events:,} events, {turn}")
            spent, size = _cost_of(["import", str(export)], target)
            target.unlink()
            taken.append(spent)
            most = max(most, size)
        export.unlink()
    start = median(seconds[SMALL])
    rate = (many - SMALL) / (median(seconds[many]) - start)
    beside = f"without the start of {start:.1f} s; {most:.0f} MB"
    return Figure(GROUP, f"import, {many:,} events", rate, " events/s", beside=beside)


def _evidence(path: Path, events: int, bench: Bench) -> Figure:
    """A bundle of the last `PROVEN` events."""
    bundle, taken, size = path.with_name("case.zip"), [], 0
    for turn in range(bench.pick(5, 3)):
        bench.progress(f"evidence, {turn}")
        seconds, _ = _cost_of(["evidence", "--from", str(events - PROVEN + 1), "-o", str(bundle)], path)
        taken.append(seconds)
        size = bundle.stat().st_size
        bundle.unlink()
    beside = f"with the start; {size / 1e6:.1f} MB"
    return Figure(GROUP, f"evidence of {PROVEN:,} events", median(taken), " s", 5, beside=beside)


def _checkpoint(path: Path, bench: Bench) -> Figure:
    """A checkpoint each time after `SMALL` more events."""
    taken = []
    with StateStore(path) as store, closing(open_sqlite(path)) as log:
        checkpoint_of(log)
        for turn in range(bench.pick(9, 5)):
            for number in range(SMALL):
                store.set("n", "k", [turn, number], updated_by="ann")
            started = time.perf_counter()
            checkpoint_of(log)
            taken.append(time.perf_counter() - started)
    return Figure(GROUP, f"checkpoint after {SMALL:,} new events", median(taken) * 1000, " ms", 50)


def _cost_of(words: Sequence[str], path: Path) -> tuple[float, float]:
    """Seconds and the most memory (MB) of a command."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "holdlog", *words, "--db", str(path)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - started, used.ru_maxrss / 1024
