"""What an event costs on the disk, and what calls cost as the log grows."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from bench.bench import Bench
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, Rounds, interleaved, number
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.operating_system.platform import now, steady
from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller

GROUP = "size"
BATCH = 1000
CALLER = Caller(session="p-0123456789")
"""As the library names its process."""
CALLS = Requests(RequestRules(Settings(), now, steady, bool, Identity("salt")))
FLAT = 1.25
"""What counts as flat: the largest log at most this many times the smallest."""


def run(bench: Bench) -> Iterator[Figure]:
    events = bench.pick(20_000, 5_000)
    per_event = _bytes(bench, (_set(f"key-{number:06}") for number in range(events)), events)
    again = _bytes(bench, (_set(f"key-{number % 64:06}") for number in range(events)), events)
    beside = f"value of 116 bytes; a later event of the key: {number(again)} bytes"
    yield Figure(GROUP, "first event of a key, with its view row", per_event, " bytes", 400, beside=beside)
    cycle = _bytes(bench, _cycles(events // 2, events), events // 2)
    again = _bytes(bench, _cycles(events // 2, 64), events // 2)
    beside = f"of a resource claimed before: {number(again)}"
    yield Figure(GROUP, "claim + release of a new resource", cycle, " bytes", 650, beside=beside)
    yield from _growth(bench)


def _growth(bench: Bench) -> Iterator[Figure]:
    sizes = (1_000, 20_000) if bench.quick else (1_000, 100_000, 1_000_000)
    with bench.folder(bench.memory) as folder:
        paths = _grown(bench, folder, sizes)
        processes = {name: bench.start("holdlog", path) for name, path in paths.items()}
        try:
            for do, arguments in (("set", {"keys": 64}), ("get", {"keys": 64})):
                measured = interleaved(
                    tuple(paths),
                    bench.pick(60, 20),
                    lambda name, do=do, arguments=arguments: processes[name].ask(do, n=20, **arguments),
                    lambda turn, do=do: bench.progress(f"{do} {turn}"),
                )
                yield _flat(do, measured, tuple(paths))
        finally:
            for process in processes.values():
                process.close()


def _flat(do: str, measured: Rounds, names: tuple[str, ...]) -> Figure:
    ratio = measured.ratio(names[-1], names[0])
    return Figure(
        GROUP, f"{do} at {names[-1]} to {names[0]} events", ratio, "x", FLAT, beside=measured.described(" µs")
    )


def _grown(bench: Bench, folder: Path, sizes: tuple[int, ...]) -> dict[str, Path]:
    """One store of each size: 10 events to a key."""
    growing, paths = folder / "growing.db", {}
    commands = (_set(f"key-{index % max(1, sizes[-1] // 10)}") for index in range(sizes[-1]))
    filled = 0
    for size in sizes:
        fill(
            growing,
            islice(commands, size - filled),
            lambda done, filled=filled: bench.progress(f"{filled + done} events"),
        )
        filled = size
        paths[f"{size:,}"] = folder / f"{size}.db"
        shutil.copyfile(growing, paths[f"{size:,}"])
    return paths


def fill(path: Path, commands: Iterator[AnyCommand], progress: Callable[[int], None] = lambda done: None) -> None:
    """Run commands in large transactions: what the writer does with what waits, without the waiting."""
    store = open_sqlite(path)
    done = 0
    while batch := list(islice(commands, BATCH)):
        with store.transaction(time.monotonic() + 10) as transaction:
            for command in batch:
                handle(command, CALLER, transaction)
        done += len(batch)
        progress(done)
    store.close()


def _set(key: str) -> AnyCommand:
    return CALLS.values.set(NAMESPACE, key, VALUE, AGENT, None).command


def _cycles(cycles: int, resources: int) -> Iterator[AnyCommand]:
    for cycle in range(cycles):
        resource = f"src/module-{cycle % resources:06}.py"
        yield CALLS.claims.claim(resource, AGENT).command
        yield CALLS.claims.release(resource, AGENT).command


def _bytes(bench: Bench, commands: Iterator[AnyCommand], count: int) -> float:
    """Growth of the file per unit, after a closing that leaves nothing in the write-ahead log."""
    bench.progress("bytes")
    with bench.folder(bench.memory) as folder:
        path = folder / "store.db"
        fill(path, iter(()))
        empty = os.path.getsize(path)
        fill(path, commands)
        return (os.path.getsize(path) - empty) / count
