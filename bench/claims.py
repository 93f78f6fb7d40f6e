"""Claims: one agent alone, next to others, against a holder, after a holder; and calls that wait."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.contestants import KINDS, Row, Running, alternate, contestants, time_block, time_calls

OURS = ("holdlog",)
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
    """Three stores in one run: nobody else, 1,000 claims of others, somebody who waits for another."""
    conditions = {"alone": 0, "next to 1,000 claims": 1_000, "next to a waiter": 1}
    running: Running = {}
    with ExitStack() as stack:
        for condition, claims in conditions.items():
            (processes,) = stack.enter_context(contestants(OURS, "tmpfs", processes=3)).values()
            processes[1].ask("hold", count=claims)
            if claims == 1:
                processes[2].ask("queue")
            running[condition] = processes
        samples = alternate("others", tuple(running), 200, 40, lambda it: time_block(running[it], "claim_release"))
        _, holder, waiter = running["next to a waiter"]
        holder.ask("release")
        waiter.ask("granted")
        for condition in conditions:
            row = {"holdlog µs": samples.median(condition), "holdlog / alone": samples.ratio(condition, "alone")}
            yield {"what": f"claim_release, {condition}"} | row


def _measure_hand_over(place: str) -> Row:
    """From the call of release to the return of a claim that waits in another process."""
    with contestants(OURS, place, processes=2) as running:
        holder, waiter = running["holdlog"]

        def hand_over(_: str) -> list[float]:
            holder.ask("hold", count=1)
            waiter.ask("queue")
            began = holder.ask("release")
            return [(waiter.ask("granted") - began) * 1000]

        samples = alternate(f"hand-over, {place}", OURS, 300, 20, hand_over)
    milliseconds = {"holdlog ms": samples.median("holdlog"), "holdlog p99": samples.worst("holdlog")}
    return {"what": f"hand-over, {place}"} | milliseconds


def _measure_idle() -> Iterator[Row]:
    """Coroutines that wait for claims of another process: in calls that do not end, and again every 4 s."""
    with contestants(OURS, "tmpfs", processes=2) as running:
        waiter, holder = running["holdlog"]
        holder.ask("hold", count=WAITS)
        part = waiter.ask("idle", waits=WAITS, timeout=50, seconds=30)
        yield {"what": f"{WAITS} waits", "holdlog % of a core": part * 100}
        part = waiter.ask("idle", waits=WAITS, timeout=4, seconds=16)
        yield {"what": "a wait that ends", "holdlog ms of CPU": part * 4 / WAITS * 1000}
