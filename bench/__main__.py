"""Measure: python -m bench values|claims|coroutines|processes|postgres|http|hooks|soak [--json]

All contestants of a table alternate in one run: compare the ratios, not the times. Nothing else should run meanwhile.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.claims import measure_claims
from bench.contestants import BLOCK, KINDS, Row, Running, alternate, compare, contestants, time_block, time_calls
from bench.hooks import measure_hooks
from bench.http import measure_http
from bench.soak import measure_soak
from tests.support.proxy import Proxy
from tests.support.servers import Postgres, create_user


def measure_values() -> Iterator[Row]:
    """One caller."""
    for place in ("tmpfs", "disk"):
        with contestants(KINDS, place) as running:
            for do in ("set", "set_new", "get", "history"):
                yield time_calls(do, place, KINDS, running)


def measure_coroutines() -> Iterator[Row]:
    """64 coroutines that write their own keys."""
    for place in ("tmpfs", "disk"):
        with contestants(("holdlog",), place) as running:
            yield _measure_rate(f"64 coroutines, {place}", running, "coroutines", 64)


def _measure_rate(what: str, running: Running, do: str, callers: int) -> Row:
    process = running["holdlog"][0]
    samples = alternate(what, ("holdlog",), 15, 20, lambda _: [process.ask(do, callers=callers, seconds=0.5)])
    return {"what": what, "holdlog /s": samples.median("holdlog")}


def measure_processes() -> Iterator[Row]:
    """Four processes: writes of their own keys, and increments of one number by compare-and-set."""
    kinds = ("peer", "holdlog")
    for place in ("tmpfs", "disk"):
        with contestants(kinds, place, processes=4) as running:
            for do in ("own_keys", "one_key"):
                slowest = dict.fromkeys(kinds, 0.0)

                def measure(kind: str, do: str = do, slowest: Row = slowest, running: Running = running) -> list[float]:
                    start = time.monotonic() + 0.02
                    for number, process in enumerate(running[kind]):
                        process.send(do, start=start, seconds=0.6, name=f"process-{number}")
                    responses = [process.receive() for process in running[kind]]
                    slowest[kind] = max(slowest[kind], *(it["slowest"] for it in responses))
                    return [sum(it["count"] for it in responses) / 0.6]

                samples = alternate(f"{do}, {place}", kinds, 12, 25, measure)
                rates = {f"{kind} /s": samples.median(kind) for kind in kinds}
                worst = {f"{kind} slowest ms": slowest[kind] for kind in kinds}
                yield {"what": f"4 processes, {do}, {place}"} | rates | compare(samples, kinds) | worst


def measure_postgres() -> Iterator[Row]:
    """PostgreSQL behind a proxy that adds 1 ms to a round trip."""
    create_user()
    with TemporaryDirectory(prefix="holdlog-bench-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder, "server")).start()
        proxy = Proxy(server.url, delay=0.0005)
        try:
            with contestants(("holdlog",), proxy.url) as running:
                for do in ("set", "claim_release"):

                    def measure(_: str, do: str = do) -> list[float]:
                        return time_block(running["holdlog"], do)

                    milliseconds = alternate(do, ("holdlog",), 40, 15, measure).median("holdlog") / 1000
                    messages = _count_messages(running["holdlog"][0], proxy, do)
                    yield {"what": f"{do}, 1 ms", "holdlog ms": milliseconds, "messages": messages}
                yield _measure_rate("16 threads, 1 ms", running, "threads", 16)
        finally:
            proxy.close()
            server.stop()


def _count_messages(process: Any, proxy: Proxy, do: str) -> float:
    """Messages from the one with the lock to the one with COMMIT, both included, per call."""
    proxy.messages.clear()
    process.ask(do, calls=BLOCK)
    return proxy.count_locked() / (BLOCK + 1)


MEASURES: dict[str, Callable[..., Iterator[Row]]] = {
    "values": measure_values,
    "claims": measure_claims,
    "coroutines": measure_coroutines,
    "processes": measure_processes,
    "postgres": measure_postgres,
    "http": measure_http,
    "hooks": measure_hooks,
    "soak": measure_soak,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--minutes", type=float, default=60, help="of soak")
    options = parser.parse_args()
    arguments = [options.minutes] if options.measure == "soak" else []
    for row in MEASURES[options.measure](*arguments):
        if options.json:
            print(json.dumps(row, ensure_ascii=False), flush=True)
        else:
            print(row.pop("what"))
            print("   ", "   ".join(f"{name} {value:,.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
