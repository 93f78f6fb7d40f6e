"""Claims: one agent alone, next to others, against a holder, after a holder; and calls that wait."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.contestants import KINDS, Row, Running, alternate, compare, contestants, time_block, time_calls

OURS = ("0.1", "0.2")
WAITS = 1_000


def measure_claims() -> Iterator[Row]:
    """Claim + release, and what others add to it."""
    for place in ("tmpfs", "disk"):
        with contestants(KINDS, place) as running:
            yield time_calls("claim_release", place, KINDS, running)
    yield from _measure_next_to_others()
    for place in ("tmpfs", "disk"):
        kinds = KINDS[1:]
        with contestants(kinds, place, processes=2) as running:
            for kind in kinds:
                running[kind][1].ask("hold", count=1)
            yield time_calls("claim_busy", place, kinds, running)
    for place in ("tmpfs", "disk"):
        yield _measure_hand_over(place)
    yield from _measure_idle()


def _measure_next_to_others() -> Iterator[Row]:
    """Of each kind three stores, in one run: nobody else, 1,000 claims of others, somebody who waits for another."""
    conditions = {"alone": 0, "next to 1,000 claims": 1_000, "next to a waiter": 1}
    running: Running = {}
    with ExitStack() as stack:
        for condition, claims in conditions.items():
            for kind, processes in stack.enter_context(contestants(OURS, "tmpfs", processes=3)).items():
                processes[1].ask("hold", count=claims)
                if claims == 1:
                    processes[2].ask("queue")
                running[f"{kind}, {condition}"] = processes
        samples = alternate("others", tuple(running), 200, 40, lambda it: time_block(running[it], "claim_release"))
        for kind in OURS:
            _, holder, waiter = running[f"{kind}, next to a waiter"]
            holder.ask("release")
            waiter.ask("granted")
        for condition in conditions:
            names = {kind: f"{kind}, {condition}" for kind in OURS}
            p50 = {f"{kind} µs": samples.median(name) for kind, name in names.items()}
            added = {f"{kind} / alone": samples.ratio(name, f"{kind}, alone") for kind, name in names.items()}
            ratio = {"0.2 / 0.1": samples.ratio(names["0.2"], names["0.1"])}
            yield {"what": f"claim_release, {condition}"} | p50 | added | ratio


def _measure_hand_over(place: str) -> Row:
    """From the call of release to the return of a claim that waits in another process."""

    def hand_over(kind: str) -> list[float]:
        holder, waiter = running[kind]
        holder.ask("hold", count=1)
        waiter.ask("queue")
        began = holder.ask("release")
        return [(waiter.ask("granted") - began) * 1000]

    with contestants(OURS, place, processes=2) as running:
        samples = alternate(f"hand-over, {place}", OURS, 300, 40, hand_over)
    p50, p99 = {f"{it} ms": samples.median(it) for it in OURS}, {f"{it} p99": samples.worst(it) for it in OURS}
    return {"what": f"hand-over, {place}"} | p50 | p99 | compare(samples, OURS)


def _measure_idle() -> Iterator[Row]:
    """Coroutines that wait for claims of another process: in calls that do not end, and again every 4 s."""
    with contestants(OURS, "tmpfs", processes=2) as running:

        def measure(timeout: float, seconds: float) -> Row:
            return {it: running[it][0].ask("idle", waits=WAITS, timeout=timeout, seconds=seconds) for it in OURS}

        for kind in OURS:
            running[kind][1].ask("hold", count=WAITS)
        yield {"what": f"{WAITS} waits"} | {f"{kind} % of a core": part * 100 for kind, part in measure(50, 30).items()}
        costs = {f"{kind} ms of CPU": part * 4 / WAITS * 1000 for kind, part in measure(4, 16).items()}
        yield {"what": "a wait that ends"} | costs
