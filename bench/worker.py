"""One contestant in a process of its own: reads requests as JSON lines, answers with measurements as JSON lines.

    python -m bench.worker CONTESTANT PATH

Times are seconds of `time.monotonic`, which all processes of a machine share.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.contestants import AGENT, CONTESTANTS, VALUE

clock = time.monotonic
Answers = Iterator[Any]


class Worker:
    """Each public method is a request; what it yields are the answers."""

    def __init__(self, kind: str, path: str) -> None:
        self._contestant: Any = CONTESTANTS[kind](path)
        self._path = path
        self._count = 0

    # --- one call after the other

    def set(self, n: int, keys: int) -> Answers:
        yield _timed(n, lambda: self._contestant.set(f"key-{self._next() % keys}", VALUE))

    def set_new(self, n: int) -> Answers:
        yield _timed(n, lambda: self._contestant.set(f"new-{self._next():09}", VALUE))

    def transact(self, n: int, keys: int) -> Answers:
        """Transactions that write so many keys each."""
        names = [f"key-{number}" for number in range(keys)]
        yield _timed(n, lambda: self._contestant.transact(names, VALUE))

    def increment_all(self, n: int, keys: int) -> Answers:
        names = [f"counter-{number}" for number in range(keys)]
        yield _timed(n, lambda: self._contestant.increment_all(names))

    def get(self, n: int, keys: int) -> Answers:
        yield _timed(n, lambda: self._contestant.get(f"key-{self._next() % keys}"))

    def versions(self, n: int) -> Answers:
        """Write one key many times, for `history`."""
        for _ in range(n):
            self._contestant.set("long", VALUE)
        yield None

    def history(self, n: int) -> Answers:
        yield _timed(n, lambda: self._contestant.history("long", 10))

    def claim_release(self, n: int, resources: int) -> Answers:
        def cycle() -> None:
            resource = f"src/module-{self._next() % resources:06}.py"
            self._contestant.claim(resource)
            self._contestant.release(resource)

        yield _timed(n, cycle)

    def subtree(self, n: int, resources: int) -> Answers:
        def cycle() -> None:
            folder = f"lib/module-{self._next() % resources:06}/"
            self._contestant.claim(folder)
            self._contestant.release(folder)

        yield _timed(n, cycle)

    def set_guarded(self, n: int, keys: int) -> Answers:
        store = self._contestant.store
        guard = [{"resource": "guarded", "version": store.status("guarded").version}]

        def write() -> None:
            store.set("bench", f"key-{self._next() % keys}", VALUE, updated_by=AGENT, guard=guard)

        yield _timed(n, write)

    # --- claims of several agents

    def hold(self, n: int) -> Answers:
        """Fifty claims for each agent."""
        yield asyncio.run(_hold(self._path, n))

    def take(self, resource: str, agent: str) -> Answers:
        yield self._contestant.store.claim(resource, agent=agent).status

    def stand(self, resource: str, agent: str) -> Answers:
        """Answers "ready", then when the resource was granted."""
        yield "ready"
        assert self._contestant.store.claim(resource, agent=agent, wait_seconds=30).status == "claimed"
        yield clock()

    def in_line(self, resource: str) -> Answers:
        yield self._contestant.store.status(resource).queue_length

    def let(self, resource: str, agent: str) -> Answers:
        called = clock()
        self._contestant.store.release(resource, agent=agent)
        yield {"called": called, "done": clock()}

    # --- many at once

    def compete(self, start: float, end: float) -> Answers:
        """Add 1 to one number until `end`, against everybody else."""
        done = conflicts = 0
        slowest_call = slowest_increment = 0.0
        time.sleep(max(0.0, start - clock()))
        begun = clock()
        while begun < end:
            called = clock()
            succeeded = self._contestant.increment("contended")
            now = clock()
            slowest_call = max(slowest_call, now - called)
            if succeeded:
                slowest_increment = max(slowest_increment, now - begun)
                done += 1
                begun = now
            else:
                conflicts += 1
            if now >= end:
                break
        slowest_increment = max(slowest_increment, clock() - begun)  # one that was not to be counts, too
        yield {
            "done": done,
            "conflicts": conflicts,
            "slowest_call": slowest_call,
            "slowest_increment": slowest_increment,
        }

    def sets_until(self, start: float, end: float, prefix: str) -> Answers:
        """How many values were written between two times, to keys that begin with this prefix."""
        done = 0
        time.sleep(max(0.0, start - clock()))
        while clock() < end:
            self._contestant.set(f"{prefix}-{done % 64}", VALUE)
            done += 1
        yield done

    def value(self, key: str) -> Answers:
        found = self._contestant.get(key)
        yield found[1] if isinstance(found, tuple) else found.value

    def coroutines(self, clients: int, seconds: float, max_batch: int | None) -> Answers:
        yield asyncio.run(_clients(self._path, clients, seconds, max_batch))

    def threads(self, clients: int, seconds: float, max_batch: int | None) -> Answers:
        with _batches_of(max_batch):
            done: list[int] = []
            slowest: list[float] = []

            def client(number: int) -> None:
                count, worst = 0, 0.0
                end = clock() + seconds
                while (called := clock()) < end:
                    self._contestant.set(f"client-{number}", VALUE)
                    worst = max(worst, clock() - called)
                    count += 1
                done.append(count)
                slowest.append(worst)

            started = clock()
            running = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            yield {"per_second": sum(done) / (clock() - started), "slowest": max(slowest)}

    # --- waiting

    def change(self, key: str) -> Answers:
        called = clock()
        self._contestant.set(key, VALUE)
        yield {"called": called, "done": clock()}

    def watch(self, key: str, waiters: int) -> Answers:
        """Answers "ready" when all wait, then when each was woken."""
        yield from _run(self._watch(key, waiters))

    def watch_here(self, key: str, waiters: int) -> Answers:
        """Waiters and the writer in one loop."""
        yield from _run(self._watch(key, waiters, change_here=True))

    def idle(self, waiters: int, seconds: float) -> Answers:
        """The share of a core that waiting takes."""
        yield asyncio.run(self._idle(waiters, seconds))

    def close(self) -> Answers:
        self._contestant.close()
        yield None

    def _next(self) -> int:
        self._count += 1
        return self._count

    async def _watch(self, key: str, waiters: int, change_here: bool = False) -> Any:
        waiting = await self._contestant.waiting()
        since = self._contestant.version(key)

        async def waiter() -> float:
            await waiting.watch(key, since)
            return clock()

        tasks = [asyncio.create_task(waiter()) for _ in range(waiters)]
        await asyncio.sleep(0.05 + waiters / 2000)
        if change_here:
            called = clock()
            await waiting.change(key)
            done = clock()
            yield {"called": called, "done": done, "woken": await asyncio.gather(*tasks)}
        else:
            yield "ready"
            yield await asyncio.gather(*tasks)
        await waiting.close()

    async def _idle(self, waiters: int, seconds: float) -> float:
        waiting = await self._contestant.waiting()
        tasks = [asyncio.create_task(waiting.watch("never", 0)) for _ in range(waiters)]
        await asyncio.sleep(0.5)
        spent, started = time.process_time(), clock()
        await asyncio.sleep(seconds)
        share = (time.process_time() - spent) / (clock() - started)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await waiting.close()
        return share


def _run(answers: Any) -> Answers:
    """The answers of an asynchronous generator, one at a time."""
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(answers.__anext__())
            except StopAsyncIteration:
                return


def _timed(n: int, call: Callable[[], Any]) -> list[float]:
    """Microseconds of each call but the first, which warms up."""
    call()
    times = []
    for _ in range(n):
        started = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - started) / 1000)
    return times


async def _clients(path: str, clients: int, seconds: float, max_batch: int | None) -> dict[str, float]:
    from holdlog import AsyncStateStore

    async def client(number: int) -> tuple[int, float]:
        count, worst = 0, 0.0
        while (called := clock()) < end:
            await store.set("bench", f"client-{number}", VALUE, updated_by="agent-1")
            worst = max(worst, clock() - called)
            count += 1
        return count, worst

    with _batches_of(max_batch):
        async with AsyncStateStore(path) as store:
            await asyncio.gather(*(store.set("bench", f"client-{it}", VALUE, updated_by="a") for it in range(clients)))
            started = clock()
            end = started + seconds
            ran = await asyncio.gather(*(client(number) for number in range(clients)))
            return {"per_second": sum(it[0] for it in ran) / (clock() - started), "slowest": max(it[1] for it in ran)}


async def _hold(path: str, n: int) -> None:
    from holdlog import AsyncStateStore

    # Not closed as a library would be: these agents stay connected while this process lives.
    store = AsyncStateStore(path)
    _kept.append(store)
    for start in range(0, n, 200):
        numbers = range(start, min(start + 200, n))
        await asyncio.gather(*(store.claim(f"held/{it % 97}/{it:06}.py", agent=f"a-{it // 50}") for it in numbers))


_kept: list[Any] = []


class _batches_of:
    """The same writer, but with this many commands in a transaction."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def __enter__(self) -> None:
        from holdlog.adapters.runtime import group_commit as writer

        self._writer, self._before = writer, writer.MAX_BATCH
        if self._size is not None:
            writer.MAX_BATCH = self._size  # type: ignore[misc]

    def __exit__(self, *_: object) -> None:
        self._writer.MAX_BATCH = self._before  # type: ignore[misc]


def main() -> None:
    worker = Worker(sys.argv[1], sys.argv[2])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        for answer in getattr(worker, request.pop("do"))(**request):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
