"""One lone caller: set, get, claim + release against plain sqlite3 and agenthold's library."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.figures import Figure, interleaved, number

GROUP = "library"
KEYS = 64
CALLS = 20
"""In a row, before the next contestant has its turn."""


def run(bench: Bench) -> Iterator[Figure]:
    for place, folder in bench.places.items():
        yield from _place(bench, place, folder)


def _place(bench: Bench, place: str, base: object) -> Iterator[Figure]:
    calls = (
        ("set", {"keys": KEYS}, bench.pick(100, 20)),
        ("set_new", {}, bench.pick(100, 20)),
        ("get", {"keys": KEYS}, bench.pick(100, 20)),
        ("claim_release", {"resources": KEYS}, bench.pick(100, 20)),
    )
    with bench.folder(bench.places[place]) as folder, bench.processes(bench.contestants, folder) as processes:
        for process in processes.values():
            process.ask("set", n=3 * KEYS, keys=KEYS)
            process.ask("claim_release", n=2 * KEYS, resources=KEYS)
        for do, arguments, rounds in calls:
            measured = interleaved(
                bench.contestants,
                rounds,
                lambda name, do=do, arguments=arguments: processes[name].ask(do, n=CALLS, **arguments),
                lambda turn, do=do: bench.progress(f"{place} {do} {turn}"),
            )
            told = measured.told(" µs")
            peer = f"; agenthold {number(measured.ratio('agenthold', 'raw'))}x" if "agenthold" in measured else ""
            ratio = measured.ratio("holdlog", "raw")
            if do in ("set", "set_new"):
                target = 2.0 if place == "tmpfs" else 1.5
                what = "set, 64 keys" if do == "set" else "set, new keys"
                yield Figure(GROUP, f"{what}, {place}", ratio, "x raw", target, beside=told + peer)
            elif do == "get":
                yield Figure(GROUP, f"get, {place}", ratio, "x raw", 2.0, beside=told + peer)
                if "agenthold" in measured:
                    beside = "not slower than agenthold's"
                    yield Figure(
                        GROUP,
                        f"get, {place}",
                        measured.ratio("holdlog", "agenthold"),
                        "x agenthold",
                        1.0,
                        beside=beside,
                    )
            else:
                if "agenthold" in measured:
                    yield Figure(
                        GROUP,
                        f"claim + release, {place}",
                        measured.ratio("holdlog", "agenthold"),
                        "x agenthold",
                        0.6,
                        beside=told,
                    )
                yield Figure(GROUP, f"claim + release, {place}", ratio, "x raw", beside=told + peer)
