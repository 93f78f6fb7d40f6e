"""One contestant in a process of its own, in its own environment: requests and responses are JSON lines.

python bench/worker.py KIND PLACE    kind: raw, peer or holdlog
"""

import asyncio
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

NAMESPACE = "bench"
AGENT = "agent-1"
VALUE = {"title": "a value of 76 bytes as JSON", "state": "open", "tags": ["alpha", "beta"], "n": 12345}


class Raw:
    """One INSERT and one upsert in a durable transaction, as one would write them by hand. It knows its versions."""

    def __init__(self, path: str) -> None:
        self._execute = sqlite3.connect(path, isolation_level=None, timeout=30).execute
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        self._execute(
            "CREATE TABLE IF NOT EXISTS events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL,"
            " version INTEGER NOT NULL, topic TEXT NOT NULL, value TEXT, by TEXT NOT NULL,"
            " at INTEGER NOT NULL, UNIQUE (stream, version))"
        )
        self._execute(
            "CREATE TABLE IF NOT EXISTS current (namespace TEXT, key TEXT, version INTEGER, value TEXT,"
            " updated_by TEXT, updated_at INTEGER, PRIMARY KEY (namespace, key)) WITHOUT ROWID"
        )
        self._execute("CREATE TABLE IF NOT EXISTS claims (resource TEXT PRIMARY KEY, holder TEXT, at INTEGER)")
        self._versions: dict[str, int] = {}

    def set(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        version, at = self._append(f"record:{NAMESPACE}/{key}", "ValueWritten", text)
        self._execute(
            "INSERT INTO current VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, key) DO UPDATE SET"
            " version = excluded.version, value = excluded.value, updated_by = excluded.updated_by,"
            " updated_at = excluded.updated_at",
            (NAMESPACE, key, version, text, AGENT, at),
        )
        self._execute("COMMIT")

    def claim(self, resource: str, agent: str) -> str:
        return self._hold("claimed", resource, agent)

    def release(self, resource: str, agent: str) -> str:
        return self._hold("released", resource, None)

    def _hold(self, topic: str, resource: str, holder: str | None) -> str:
        _, at = self._append(f"claim:{resource}", topic, None)
        self._execute(
            "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (resource) DO UPDATE SET holder = excluded.holder,"
            " at = excluded.at",
            (resource, holder, at),
        )
        self._execute("COMMIT")
        return topic

    def _append(self, stream: str, topic: str, text: str | None) -> tuple[int, int]:
        """Begin with an event. Returns its version and time."""
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        at = time.time_ns() // 1000
        self._execute("BEGIN IMMEDIATE")
        self._execute(
            "INSERT INTO events (stream, version, topic, value, by, at) VALUES (?, ?, ?, ?, ?, ?)",
            (stream, version, topic, text, AGENT, at),
        )
        return version, at

    def get(self, key: str) -> Any:
        query = "SELECT version, value FROM current WHERE namespace = ? AND key = ?"
        row = self._execute(query, (NAMESPACE, key)).fetchone()
        return row and (row[0], json.loads(row[1]))

    def history(self, key: str, limit: int) -> Any:
        query = "SELECT version, value, by, at FROM events WHERE stream = ? ORDER BY version DESC LIMIT ?"
        rows = self._execute(query, (f"record:{NAMESPACE}/{key}", limit)).fetchall()
        return [(version, json.loads(value), by, at) for version, value, by, at in rows]


class Library:
    """holdlog, or agenthold: their libraries have the same methods for values."""

    def __init__(self, module: str, place: str) -> None:
        if module == "agenthold":
            from agenthold.exceptions import ConflictError, NotFoundError
            from agenthold.store import StateStore
        else:
            from holdlog import ConflictError, NotFoundError, StateStore
        self._store = StateStore(place)
        self._refusals = ConflictError, NotFoundError

    def set(self, key: str, value: Any) -> None:
        self._store.set(NAMESPACE, key, value, updated_by=AGENT)

    def get(self, key: str) -> Any:
        return self._store.get(NAMESPACE, key)

    def history(self, key: str, limit: int) -> Any:
        return self._store.history(NAMESPACE, key, limit=limit)

    def increment(self, key: str) -> bool:
        """One attempt to read, add 1 and write if nobody wrote meanwhile."""
        conflict, missing = self._refusals
        try:
            record = self._store.get(NAMESPACE, key)
            value, version = record.value, record.version
        except missing:
            value, version = 0, 0
        try:
            self._store.set(NAMESPACE, key, value + 1, updated_by=AGENT, expected_version=version)
        except conflict:
            return False
        return True

    def claim(self, resource: str, agent: str, **options: Any) -> str:
        return str(self._store.claim(resource, agent=agent, **options).status)

    def release(self, resource: str, agent: str) -> str:
        return str(self._store.release(resource, agent=agent).status)

    def count_waiters(self, resource: str) -> int:
        return int(self._store.status(resource).queue_length)


class Peer(Library):
    """Its claims are behind a coordinator. Its server announces the agent before each of these calls."""

    def __init__(self, place: str) -> None:
        from agenthold.coordinator import Coordinator
        from agenthold.resources import Workspace, WorkspaceRegistry

        super().__init__("agenthold", place)
        self._coordinator = Coordinator(self._store, WorkspaceRegistry([Workspace(name="default", root="/tmp")]))
        self._agent = self._coordinator.register("bench")["agent_id"]

    def claim(self, resource: str, agent: str, **options: Any) -> str:
        self._coordinator.refresh_agent(self._agent)
        return str(self._coordinator.claim(resource, self._agent)["status"])

    def release(self, resource: str, agent: str) -> str:
        self._coordinator.refresh_agent(self._agent)
        return str(self._coordinator.release(resource, self._agent)["status"])


class Requests:
    """Each method is a request, and returns its response."""

    def __init__(self, kind: str, place: str) -> None:
        self._place = place
        classes: dict[str, Callable[[str], Any]] = {"raw": Raw, "peer": Peer}
        self._open = classes.get(kind, partial(Library, "holdlog"))
        self._contestant = self._open(place)
        self._others: list[Any] = []
        self._count = 0
        self._granted: Future[float] = Future()

    def set(self, calls: int) -> list[float]:
        return _time(calls, lambda: self._contestant.set("key", VALUE))

    def set_new(self, calls: int) -> list[float]:
        return _time(calls, lambda: self._contestant.set(f"new-{self._next():09}", VALUE))

    def get(self, calls: int) -> list[float]:
        return _time(calls, lambda: self._contestant.get("key"))

    def history(self, calls: int) -> list[float]:
        return _time(calls, lambda: self._contestant.history("key", 10))

    def claim_release(self, calls: int) -> list[float]:
        def call() -> None:
            assert self._contestant.claim("src/a.py", AGENT) == "claimed"
            assert self._contestant.release("src/a.py", AGENT) == "released"

        return _time(calls, call)

    def claim_busy(self, calls: int) -> list[float]:
        """Claim what another process holds."""

        def call() -> None:
            assert self._contestant.claim("held/0.py", AGENT) == "busy"

        return _time(calls, call)

    def hold(self, count: int) -> None:
        """Claims of other agents and sessions, 50 each."""
        for number in range(count):
            if number // 50 == len(self._others):
                self._others.append(self._open(self._place))
            assert self._others[number // 50].claim(f"held/{number}.py", f"other-{number // 50}") == "claimed"

    def release(self) -> float:
        """Release the first of these. Returns when the call began, by the clock that processes share."""
        began = time.monotonic()
        assert self._others[0].release("held/0.py", "other-0") == "released"
        return began

    def queue(self) -> None:
        """Begin to wait for it."""

        def wait() -> None:
            assert self._contestant.claim("held/0.py", "waiter", wait_seconds=3600) == "claimed"
            self._granted.set_result(time.monotonic())

        self._granted = Future()
        threading.Thread(target=wait, daemon=True).start()
        while not self._contestant.count_waiters("held/0.py"):
            time.sleep(0.001)
        time.sleep(0.002)  # until it sleeps

    def granted(self) -> float:
        """When the wait ended. Releases what was granted."""
        at = self._granted.result(30)
        self._contestant.release("held/0.py", "waiter")
        return at

    def idle(self, waits: int, timeout: float, seconds: float) -> float:
        """What so many callers of `wait` use while nothing happens: a part of a core."""
        return asyncio.run(self._run_idle(waits, timeout, seconds))

    async def _run_idle(self, waits: int, timeout: float, seconds: float) -> float:
        from holdlog import AsyncStateStore

        async with AsyncStateStore(self._place) as store:

            async def wait(resource: str) -> None:
                while not await store.wait(resource, timeout):
                    pass

            tasks = [asyncio.create_task(wait(f"held/{number}.py")) for number in range(waits)]
            await asyncio.sleep(3)  # until all sleep
            began = time.process_time()
            await asyncio.sleep(seconds)
            used = time.process_time() - began
            for task in tasks:
                assert task.cancel()
        return used / seconds

    def own_keys(self, start: float, seconds: float, name: str) -> dict[str, float]:
        return self._repeat(start, seconds, lambda: self._contestant.set(f"{name}-{self._next() % 64}", VALUE))

    def one_key(self, start: float, seconds: float, name: str) -> dict[str, float]:
        return self._repeat(start, seconds, lambda: self._contestant.increment("contended"))

    def threads(self, callers: int, seconds: float) -> float:
        """Writes per second of so many threads, each with its own key."""
        counts: list[int] = []
        start = time.monotonic()

        def call(name: str) -> None:
            count = 0
            while time.monotonic() < start + seconds:
                self._contestant.set(name, VALUE)
                count += 1
            counts.append(count)

        threads = [threading.Thread(target=call, args=(f"thread-{number}",)) for number in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - start)

    def coroutines(self, callers: int, seconds: float) -> float:
        """Writes per second of so many coroutines, each with its own key."""
        return asyncio.run(self._run_coroutines(callers, seconds))

    async def _run_coroutines(self, callers: int, seconds: float) -> float:
        from holdlog import AsyncStateStore

        async with AsyncStateStore(self._place) as store:

            async def call(name: str) -> int:
                count = 0
                while time.monotonic() < start + seconds:
                    await store.set(NAMESPACE, name, VALUE, updated_by=AGENT)
                    count += 1
                return count

            start = time.monotonic()
            counts = await asyncio.gather(*(call(f"coroutine-{number}") for number in range(callers)))
            return sum(counts) / (time.monotonic() - start)

    def _repeat(self, start: float, seconds: float, call: Callable[[], bool | None]) -> dict[str, float]:
        """Successful calls from `start` on (seconds of the steady clock, which processes share), and the slowest."""
        count, slowest = 0, 0.0
        time.sleep(max(0.0, start - time.monotonic()))
        now = time.monotonic()
        while now < start + seconds:
            began = now
            count += call() is not False
            now = time.monotonic()
            slowest = max(slowest, now - began)
        return {"count": count, "slowest": slowest * 1000}

    def _next(self) -> int:
        self._count += 1
        return self._count


def _time(calls: int, call: Callable[[], Any]) -> list[float]:
    """Microseconds of each call but the first, which warms up."""
    call()
    times = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - began) / 1000)
    return times


if __name__ == "__main__":
    requests = Requests(sys.argv[1], sys.argv[2])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(requests, request.pop("do"))(**request)), flush=True)
