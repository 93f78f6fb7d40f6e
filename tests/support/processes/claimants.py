"""Agents that claim, in processes of their own: `python -m tests.support.processes.claimants … NAME …`; and servers.

Behaviours are started as those of behaviours.py, and answer in JSON lines.
"""

import asyncio
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdlog import AsyncStateStore, StateStore
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.store import PostgresStore
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.claim import ClaimEvent, ClaimExpired, ClaimGranted, ClaimReleased
from holdlog.domain.envelope import Recorded
from tests.support.processes.behaviours import hear, say
from tests.support.processes.soundness import Place
from tests.support.processes.workers import until
from tests.support.wire import Wire

CLAIMANTS = (sys.executable, "-m", "tests.support.processes.claimants")
"""What stands before the command of a worker, to run a behaviour of this file instead."""

# --- what the log says


def open_store(place: Place) -> SqliteStore | PostgresStore:
    return open_postgres(place) if isinstance(place, str) else open_sqlite(place)


def told_of(place: Place, resource: str | None = None) -> list[Recorded[ClaimEvent]]:
    """The events of claims in order; of one resource where it is given."""
    store = open_store(place)
    try:
        with store.reader() as reader:
            log = reader.log(0, -1)
    finally:
        store.close()
    stream = None if resource is None else f"claim:{resource}"
    return [it for it in log if isinstance(it.event, ClaimEvent) and stream in (None, it.envelope.stream)]  # type: ignore[misc]


def granted(path: Place, resource: str) -> list[tuple[str, int]]:
    """Agent and version of each grant of a resource, in order."""
    return [
        (it.event.agent, it.envelope.version) for it in told_of(path, resource) if isinstance(it.event, ClaimGranted)
    ]


def ended(path: Place, resource: str) -> dict[int, ClaimReleased | ClaimExpired]:
    """How each grant of a resource ended."""
    ends = [it.event for it in told_of(path, resource) if isinstance(it.event, ClaimReleased | ClaimExpired)]
    found = {end.grant: end for end in ends if end.grant is not None}
    assert len(found) == len(ends), "a grant ended twice"
    return found


def require_one_holder_at_a_time(path: Place) -> None:
    """Replayed, the log never has two live grants of a resource (all of them exclusive here)."""
    live: dict[str, int] = {}
    for recorded in told_of(path):
        stream, version = recorded.envelope.stream, recorded.envelope.version
        match recorded.event:
            case ClaimGranted(mode=mode):
                assert mode == "exclusive"
                assert stream not in live, f"{stream}: granted at {live[stream]} and at {version}"
                live[stream] = version
            case ClaimReleased(grant=grant) | ClaimExpired(grant=grant):
                assert live.pop(stream) == grant


# --- what stands in the table of leases


def waiting(place: Place, seconds: float = 0.0) -> int:
    """How many tickets have waiters that stay in their calls for longer than this."""
    return len(leases(place, "kind = 'waits' AND present_until > ?", steady(place) + round(seconds * 1_000_000)))


def steady(place: Place) -> int:
    """The clock of leases, in microseconds."""
    if not isinstance(place, str):
        return platform.steady()
    store = open_store(place)
    store.close()
    return store.steady()


def leases(place: Place, where: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Resource, agent, deadline (steady microseconds), server and version of the leases there are."""
    select = f"SELECT resource, agent, deadline, server, version FROM leases WHERE {where}"
    store = open_store(place)
    try:
        with store.reader() as reader:
            if isinstance(reader, PostgresReader):
                return reader.connection.execute(select.replace("?", "%s"), parameters).fetchall()  # type: ignore[call-overload]
            return list(reader.connection.execute(select, parameters))
    finally:
        store.close()


def change(place: Place, statement: str, *parameters: Any) -> None:
    """One statement behind the store's back, inside its gate."""
    store = open_store(place)
    mark = "%s" if isinstance(place, str) else "?"
    try:
        with store.transaction(time.monotonic() + 30) as transaction:
            transaction.connection.execute(statement.replace("?", mark), parameters)
            transaction.wrote = True
    finally:
        store.close()


# --- servers


class Server:
    """A `holdlog serve` and its client, which opens with the first call: servers made together start together."""

    def __init__(
        self, path: Place, *options: str, session: str = "", before: tuple[str, ...] = (), env: dict[str, str]
    ) -> None:
        environ = {"CLAUDE_CODE_SESSION_ID": session, **env}
        self.wire = Wire("-m", "holdlog", "--db", path, "--tools", "all", *options, before=before, env=environ)
        self._open = False
        self._asked = 0

    def __call__(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
        """The answer."""
        return self.answer(self.ask(tool, meta, **arguments))

    def open(self) -> "Server":
        """Now; its process lives and has joined the store when this returns."""
        if not self._open:
            self.wire.open()
            self._open = True
        return self

    def ask(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> int:
        """Send a call; it is answered under this number."""
        self.open()
        self._asked += 1
        params: dict[str, Any] = {"name": f"holdlog_{tool}", "arguments": arguments}
        self.wire.send(self.wire.message("tools/call", params | ({"_meta": meta} if meta else {}), self._asked))
        return self._asked

    def answer(self, number: int) -> dict[str, Any]:
        told = self.wire.answer()
        assert told["id"] == number
        assert not told["result"].get("isError"), told
        answer: dict[str, Any] = told["result"]["structuredContent"]
        return answer

    def end(self) -> None:
        """As a host ends it: its input ends. It said goodbye when this returns."""
        self.open()
        assert self.wire.process.stdin is not None
        self.wire.process.stdin.close()
        code, said, _ = self.wire.ended()
        assert (code, said) == (0, [])

    def stop(self) -> None:
        """SIGSTOP. It stands when this returns."""
        self.wire.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.wire.process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        self.wire.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9. It is gone when this returns."""
        self.wire.process.kill()
        self.wire.process.wait()


# --- behaviours


def race(path: str, name: str, count: str, how: str) -> None:
    """For each resource on stdin: let go of what was won, then all agents claim it at once; say who got it."""
    agents = [f"{name}-{number}" for number in range(int(count))]
    (_race_in_threads if how == "threads" else _race_in_coroutines)(path, agents)


def _race_in_threads(path: str, agents: list[str]) -> None:
    won: list[tuple[str, str]] = []
    with StateStore(path) as store, ThreadPoolExecutor(len(agents)) as threads:
        say(ready=True)
        while True:
            resource = hear()
            for agent, held in won:
                store.release(held, agent=agent)

            def claim(agent: str, wanted: str = resource) -> Any:
                return store.claim(wanted, agent=agent)

            won = _said(resource, agents, list(threads.map(claim, agents)))


def _race_in_coroutines(path: str, agents: list[str]) -> None:
    async def run() -> None:
        won: list[tuple[str, str]] = []
        async with AsyncStateStore(path) as store:
            say(ready=True)
            while True:
                resource = hear()
                for agent, held in won:
                    await store.release(held, agent=agent)
                answers = await asyncio.gather(*(store.claim(resource, agent=agent) for agent in agents))
                won = _said(resource, agents, list(answers))

    asyncio.run(run())


def _said(resource: str, agents: list[str], answers: list[Any]) -> list[tuple[str, str]]:
    """Agents that hold the resource now."""
    won = [agent for agent, answer in zip(agents, answers, strict=True) if answer.status == "claimed"]
    versions = [answer.version for answer in answers if answer.status == "claimed"]
    say(won=won, versions=versions, busy=sum(1 for answer in answers if answer.status == "busy"))
    return [(agent, resource) for agent in won]


def stand_in_line(path: str, resource: str, name: str, count: str, *waits: str) -> None:
    """Each agent claims with each of the waits in turn until it gets the resource, says so, and lets go."""

    async def one(store: AsyncStateStore, agent: str) -> None:
        for wait in waits:
            answer: Any = await store.claim(resource, agent=agent, wait_seconds=float(wait))
            say(agent=agent, status=answer.status, version=answer.version, ticket=getattr(answer, "ticket", None))
            if answer.status == "claimed":
                released = await store.release(resource, agent=agent)
                assert released.status == "released", released
                return

    async def run() -> None:
        async with AsyncStateStore(path) as store:
            await asyncio.gather(*(one(store, f"{name}-{number}") for number in range(int(count))))

    asyncio.run(run())


def hurry(path: str, resource: str, name: str, count: str, times: str) -> None:
    """Each agent claims again and again, with waits about as long as the others hold; say what it got."""
    dice = random.Random(name)

    async def one(store: AsyncStateStore, agent: str) -> None:
        for _ in range(int(times)):
            answer: Any = await store.claim(resource, agent=agent, wait_seconds=dice.uniform(0, 0.03))
            if answer.status == "claimed":
                released: Any = await store.release(resource, agent=agent)
                say(agent=agent, version=answer.version, released=released.status)
        await store.release(agent=agent)  # leaves the line

    async def run() -> None:
        async with AsyncStateStore(path) as store:
            await asyncio.gather(*(one(store, f"{name}-{number}") for number in range(int(count))))

    asyncio.run(run())


def hand_over(path: str, resource: str, agent: str, times: str) -> None:
    """Take the resource in turn with another process; say when it was let go and when it came (monotonic seconds)."""
    with StateStore(path) as store:
        for turn in range(int(times)):
            answer: Any = store.claim(resource, agent=agent, wait_seconds=20)
            came = time.monotonic()
            assert answer.status == "claimed", answer
            while turn < int(times) - 1 and not store.status(resource).queue_length:  # type: ignore[union-attr]
                time.sleep(0.0005)
            let_go = time.monotonic()
            released: Any = store.release(resource, agent=agent)
            say(version=answer.version, came=came, let_go=let_go, granted_to=released.granted_to)


def forks(path: str, call: str, when: str) -> None:
    """As that of behaviours.py, but a child waits in line for `a.md`, gets it, writes guarded and lets go."""
    from tests.support.processes import behaviours

    def stand(place: str) -> None:
        store = StateStore(place, settings=Settings(grace=0.1))
        claimed: Any = store.claim("a.md", agent="struck", wait_seconds=20)
        say(claimed=claimed.body())
        guard = [{"resource": "a.md", "version": claimed.version}]
        store.set("n", "k", 1, updated_by="struck", guard=guard)
        say(released=store.release("a.md", agent="struck").body())
        store.close()

    behaviours._write_three = stand
    behaviours.forks(path, call, when)


if __name__ == "__main__":
    _, behaviour, *rest = sys.argv[2:]  # behind the interpreter and the script that a worker would have run
    globals()[behaviour](*rest)
    os._exit(0)
