"""Group commit against one command per transaction: the same writer, with batches of one."""

from collections.abc import Iterator

from bench.bench import Bench
from bench.figures import Figure, interleaved, number

GROUP = "group"
TARGETS = {("coroutines", 1): None, ("coroutines", 16): 3.0, ("coroutines", 64): 4.0, ("threads", 16): 2.0}
WORST_WAIT_MS = 50.0


def run(bench: Bench) -> Iterator[Figure]:
    seconds = bench.pick(1.0, 0.3)
    with bench.folder(bench.disk) as folder, bench.processes(("holdlog",), folder) as processes:
        store = processes["holdlog"]
        for (kind, clients), target in TARGETS.items():
            store.ask(kind, clients=clients, seconds=0.2, max_batch=None)
            slowest: dict[str, list[float]] = {"grouped": [], "single": []}

            def measure(name: str, kind: str = kind, clients: int = clients, slowest: dict = slowest) -> list[float]:
                bench.progress(f"{clients} {kind}, {name}")
                told = store.ask(kind, clients=clients, seconds=seconds, max_batch=1 if name == "single" else None)
                slowest[name].append(told["slowest"] * 1000)
                return [told["per_second"]]

            measured = interleaved(("grouped", "single"), bench.pick(7, 3), measure, lambda turn: None)
            waits = ", ".join(f"{name} {number(max(worst))} ms" for name, worst in slowest.items())
            yield Figure(
                GROUP,
                f"{clients} {kind}, disk",
                measured.ratio("grouped", "single"),
                "x one per transaction",
                target,
                at_least=True,
                beside=f"{measured.described('/s')}; slowest wait {waits}",
            )
            if kind == "threads":
                worst = max(slowest["grouped"])
                yield Figure(GROUP, f"{clients} threads, slowest wait", worst, " ms", WORST_WAIT_MS)
