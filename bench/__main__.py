"""`python -m bench`: runs the groups, prints the figures with their targets, and what was met and what was missed."""

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import peer
from bench.bench import ROOT, Bench
from bench.figures import Figure, aligned, number

GROUPS = {
    "library": "one lone caller against sqlite3 and agenthold's library",
    "transactions": "a transaction of 100 keys against a plain SQLite transaction with the same rows",
    "group": "group commit against one command per transaction",
    "contend": "8 processes that compare and set one key",
    "size": "bytes per event; latency as the log grows",
    "claims": "claims among many others, handed over in line, guarding writes",
    "wake": "from a commit to a waiter that knows; what idle waiters cost",
    "mcp_calls": "tool calls over stdio against an empty FastMCP tool; start-up",
    "http": "tool calls and REST over HTTP against an empty FastMCP tool, at 1, 16 and 64 clients",
    "hooks": "what a host waits for before an edit",
    "rebuild": "events per second",
    "past": "reads of an earlier moment: one key of a million events, the board of 1,000 claims",
    "replay": "events per second of `replay`, `verify`, `export` and `import`, their memory; a checkpoint; evidence",
    "events": "events per second in pages of the library",
    "projections": "events per second through ProjectionRunner; how long activity and collisions take to catch up",
    "postgres": "the store in PostgreSQL: one caller, many callers, another server woken",
    "threads": "a result beside a set, the last 50 of 10,000, opening a thread of 100,000 events",
    "relay": "from the log to NATS: a backlog, and one event at a time",
}


def main() -> None:
    options = _options()
    started = time.monotonic()
    cache = ROOT / "build"
    places = {"disk": options.dir or cache / "bench"}
    places["disk"].mkdir(parents=True, exist_ok=True)
    memory = options.tmpfs or (Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None)
    if memory is not None:
        places["tmpfs"] = memory
    bench = Bench(places, options.quick, peer.environment(cache) if options.peer else None)
    machine = _machine(places)
    print("\n".join(aligned(list(machine.items()))), end="\n\n")
    figures: list[Figure] = []
    for name in options.groups or GROUPS:
        bench.begin(name)
        figures.extend(import_module(f"bench.{name}").run(bench))
    bench.begin("")
    _print(figures)
    seconds = time.monotonic() - started
    print(f"\n{seconds:.0f} s; again: {_command()}")
    if options.json:
        shown = [figure.__dict__ | ({"met": figure.met} if figure.target is not None else {}) for figure in figures]
        options.json.write_text(
            json.dumps(
                {"machine": machine, "command": _command(), "seconds": round(seconds), "figures": shown}, indent=1
            )
            + "\n"
        )


def _options() -> argparse.Namespace:
    groups = "\n".join(f"  {name:10} {what}" for name, what in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure holdlog beside its yardsticks.",
        epilog=f"groups:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], metavar="group", help="which figures; all without")
    parser.add_argument("--quick", action="store_true", help="about a minute, rougher figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="measure agenthold, too")
    parser.add_argument("--dir", type=Path, help="a folder on a disk (build/bench)")
    parser.add_argument("--tmpfs", type=Path, metavar="DIR", help="a folder in memory (/dev/shm)")
    return parser.parse_args()


def _machine(places: dict[str, Path]) -> dict[str, str]:
    from holdlog.adapters.operating_system.platform import file_system

    folders = ", ".join(
        f"{name} {file_system(path) or 'unknown'} with {_sync_time(path)}" for name, path in places.items()
    )
    return {
        "cores": f"{os.cpu_count()} ({_processor()}), load {' '.join(f'{load:.1f}' for load in os.getloadavg())}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        "packages": ", ".join(
            f"{name} {_version(name)}" for name in ("holdlog", "eventsourcing", "pydantic", "fastmcp", "mcp")
        ),
        "folders": folders,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _sync_time(folder: Path) -> str:
    """How long the disk takes to make 4 KiB durable: half of what a lone commit costs."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(50):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            started = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return f"fsync {number(sorted(times)[25] * 1e6)} µs"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def _print(figures: list[Figure]) -> None:
    rows = [("group", "figure", "measured", "target", "")]
    for figure in figures:
        target = ""
        if figure.target is not None:
            target = f"{'≥' if figure.at_least else '≤'} {number(figure.target)}"
        rows.append((figure.group, figure.what, number(figure.value) + figure.unit, target, figure.beside))
    print("\n".join(aligned(rows, right=frozenset({2, 3}))), end="\n\n")
    for figure in sorted((it for it in figures if it.target is not None), key=lambda it: it.met, reverse=True):
        print(figure.verdict)


def _command() -> str:
    return " ".join(["python -m bench", *sys.argv[1:]])


if __name__ == "__main__":
    main()
