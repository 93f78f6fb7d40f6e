"""Processes to compare, each in its own environment, and what alternating between them yields."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
PEER = ("agenthold==0.10.0", "mcp<2")
"""In an environment of its own, because it needs an old `mcp`."""
PLACES = {"tmpfs": Path("/dev/shm"), "disk": Path("/var/tmp")}
KINDS = ("raw", "peer", "holdlog")
BLOCK = 20
"""Calls of one contestant in a row."""
Row = dict[str, Any]


class Process:
    """A worker that runs one request at a time."""

    def __init__(self, kind: str, place: str) -> None:
        command = [find_python(kind), str(ROOT / "bench/worker.py"), kind, place]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._responses = self._process.stdin, self._process.stdout
        self.receive()

    def ask(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.receive()

    def send(self, do: str, **arguments: Any) -> None:
        self._requests.write(json.dumps({"do": do, **arguments}) + "\n")

    def receive(self) -> Any:
        if not (line := self._responses.readline()):
            raise RuntimeError(f"{self._process.args!r} ended")
        return json.loads(line)

    def close(self) -> None:
        self._requests.close()
        self._process.wait(20)


def find_python(kind: str) -> str:
    """The interpreter of a contestant's environment."""
    if kind != "peer":
        return sys.executable
    python = Path(sys.prefix, "peer/bin/python")
    if not python.exists():
        uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".uv/bin/uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(python.parents[1])], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *PEER], check=True)
    return str(python)


Running = dict[str, list[Process]]


@contextmanager
def contestants(kinds: Sequence[str], place: str, processes: int = 1) -> Iterator[Running]:
    """So many processes of each kind, which share a file; `place`: one of PLACES, or a URL for all kinds."""
    with ExitStack() as stack:
        stores = dict.fromkeys(kinds, place)
        if place in PLACES:
            folder = stack.enter_context(TemporaryDirectory(prefix="holdlog-bench-", dir=PLACES[place]))
            stores = {kind: f"{folder}/{kind}.db" for kind in kinds}
        running: Running = {}
        for kind in kinds:
            running[kind] = [Process(kind, stores[kind]) for _ in range(processes)]
            for process in running[kind]:
                stack.callback(process.close)
        yield running


class Samples:
    """What each contestant measured in each round."""

    def __init__(self, values: dict[str, list[list[float]]]) -> None:
        self._values = values

    def median(self, kind: str) -> float:
        return statistics.median(value for block in self._values[kind] for value in block)

    def worst(self, kind: str, part: float = 0.99) -> float:
        """The value that this part of all values does not exceed."""
        values = sorted(value for block in self._values[kind] for value in block)
        return values[min(len(values) - 1, int(part * len(values)))]

    def ratio(self, of: str, to: str) -> float:
        """The median of the ratios within a round: noise that lasts longer falls out."""
        pairs = zip(self._values[of], self._values[to], strict=True)
        return statistics.median(statistics.median(mine) / statistics.median(other) for mine, other in pairs)


def alternate(
    name: str, kinds: Sequence[str], rounds: int, seconds: float, measure: Callable[[str], list[float]]
) -> Samples:
    """Let the contestants measure in turn, in another order each round, for so many rounds or seconds."""
    values: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    end = time.monotonic() + seconds
    for number in range(rounds):
        if number >= 3 and time.monotonic() > end:
            break
        if sys.stderr.isatty():
            print(f"\r\033[K{name}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        first = number % len(kinds)
        for kind in (*kinds[first:], *kinds[:first]):
            values[kind].append(measure(kind))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return Samples(values)


def compare(samples: Samples, kinds: Sequence[str]) -> Row:
    return {f"holdlog / {kind}": samples.ratio("holdlog", kind) for kind in kinds if kind != "holdlog"}


def time_block(processes: Sequence[Process], do: str) -> list[float]:
    """The times of some calls of the first process, in µs."""
    times: list[float] = processes[0].ask(do, calls=BLOCK)
    return times


def time_calls(do: str, place: str, kinds: Sequence[str], running: Running) -> Row:
    """The times of one kind of call, in µs."""
    what, rounds = f"{do}, {place}", 200 if place == "tmpfs" else 60
    samples = alternate(what, kinds, rounds, 12, lambda kind: time_block(running[kind], do))
    p50 = {f"{kind} µs": samples.median(kind) for kind in kinds}
    p99 = {f"{kind} p99": samples.worst(kind) for kind in kinds}
    return {"what": what} | p50 | p99 | compare(samples, kinds)
