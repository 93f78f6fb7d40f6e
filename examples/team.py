"""A team on one machine: four agents, two servers over HTTP, PostgreSQL as the log, NATS to broadcast. `make team`.

The agents take tasks from one list and write into the same three files; each thinks for a while between reading a file
and writing it. All servers come from wheels. What is printed meanwhile arrives over NATS.
"""

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fastmcp import Client

import holdlog
from tests.support.programs import HOLDLOG, HttpServer, environment
from tests.support.servers import Nats, Postgres, create_user
from tests.support.soundness import log_of

AGENTS = ("ann", "bob", "cat", "dan")
FILES = ("pages/start.md", "pages/guide.md", "pages/index.md")
TASKS = [f"{FILES[number % len(FILES)]}#{number}" for number in range(24)]
THINKING = 1.5
"""Seconds between reading and writing a file."""
Json = dict[str, Any]


# --- an agent, which knows the URL of a server and nothing else of holdlog


class Agent:
    def __init__(self, name: str, client: Client[Any], folder: Path) -> None:
        self._name, self._client, self._folder = name, client, folder

    async def work(self) -> None:
        while (task := await self._take_task()) is not None:
            await self._do(task)

    async def _take_task(self) -> str | None:
        while True:
            backlog = await self._call("get", namespace="team", key="backlog")
            if not backlog["value"]:
                return None
            task, *rest = backlog["value"]
            arguments = {"namespace": "team", "key": "backlog", "value": rest, "updated_by": self._name}
            written = await self._call("set", **arguments, expected_version=backlog["version"])
            if written["status"] == "ok":
                return str(task)
            print("conflict", flush=True)  # another agent took the task: read again

    async def _do(self, task: str) -> None:
        file = task.partition("#")[0]
        holder = {"resource": file, "agent": self._name}
        claim = await self._call("claim", **holder)
        while claim["status"] == "busy":
            print("waited", flush=True)
            claim = await self._call("claim", **holder, wait_seconds=30)
        text = (self._folder / file).read_text()
        await asyncio.sleep(THINKING)
        (self._folder / file).write_text(f"{text}{task} by {self._name}\n")
        guard = [{"resource": file, "version": claim["version"]}]
        key = {"namespace": "done", "key": task, "value": self._name, "updated_by": self._name}
        await self._call("set", **key, expected_version=0, guard=guard)
        await self._call("release", **holder, receipt=claim.get("receipt"), outcome="modified", note=task)
        print("done", flush=True)

    async def _call(self, tool: str, **arguments: Any) -> Json:
        given = {name: value for name, value in arguments.items() if value is not None}
        result: Json = (await self._client.call_tool(f"holdlog_{tool}", given)).structured_content or {}
        return result


async def run_agent(name: str, url: str, folder: str) -> int:
    async with Client(f"{url}/mcp") as client:
        await Agent(name, client, Path(folder)).work()
    return 0


# --- the servers


class Team(NamedTuple):
    """`db`, `nats`: URLs; `servers`: of holdlog over HTTP."""

    db: str
    nats: str
    servers: tuple[HttpServer, ...]


@contextmanager
def start_team(folder: Path) -> Iterator[Team]:
    """Start everything, and stop it at the end. `folder`: of the two databases."""
    create_user()
    folder.chmod(0o755)  # PostgreSQL runs as another user
    postgres, nats = Postgres(folder / "postgres"), Nats(folder / "nats")
    processes: list[HttpServer] = []
    relay = None
    try:
        postgres.start()
        nats.start()
        holdlog.StateStore(postgres.url).close()  # creates the tables
        processes += [HttpServer(postgres.url, "--tools", "claims,state", cwd=folder) for _ in range(2)]
        command = [HOLDLOG, "relay", "--db", postgres.url, "--nats", nats.url]
        relay = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
        yield Team(postgres.url, nats.url, tuple(processes))
    finally:
        for process in processes:
            process.close()
        if relay is not None:
            relay.terminate()
            relay.wait()
        nats.stop()
        postgres.stop()


# --- what happens, and whether it is right


async def follow(team: Team, events: list[Json]) -> None:
    """Collect the events that NATS broadcasts, and print those that say who works on what."""
    async with holdlog.subscribe(team.nats, team.db, after=0) as subscription:
        async for event in subscription:
            events.append(event)
            data, kind = event["data"], event["type"].removeprefix("holdlog.")
            if kind == "ClaimGranted":
                print(f"  {data['agent']}  claims    {data['resource']}", flush=True)
            elif kind == "ValueWritten" and data["namespace"] == "done":
                print(f"  {data['by']}  finishes  {data['key']}", flush=True)


async def run_agents(team: Team, folder: Path) -> dict[str, Counter[str]]:
    """Run all agents to their end: what each of them counted. Raises RuntimeError if one fails."""

    async def run(number: int, name: str) -> Counter[str]:
        url = team.servers[number % len(team.servers)].url
        command = (sys.executable, "-m", "examples.team", name, url, str(folder))
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment())
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{name} ended with exit code {process.returncode}")
        return Counter(output.decode().split())

    return dict(zip(AGENTS, await asyncio.gather(*map(run, range(len(AGENTS)), AGENTS)), strict=True))


def check(store: holdlog.StateStore, folder: Path, events: list[Json], verified: Any) -> dict[str, bool]:
    """What must be true at the end."""
    done = {record.key: record.value for record in store.list_keys("done")}
    lines = [line for file in FILES for line in (folder / file).read_text().splitlines()]
    log = log_of(store)
    return {
        "every task is done once": sorted(done) == sorted(TASKS),
        "nobody overwrote another's lines": sorted(lines) == sorted(f"{task} by {done.get(task)}" for task in TASKS),
        "the log is as it was written": verified.status == "ok",
        "NATS delivered each event once, in order": [it["position"] for it in events] == [it.position for it in log],
        "and the same events": bool(events) and events[-1]["digest"] == verified.digest,
    }


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="holdlog-team-", dir="/tmp") as name:
        folder = Path(name)
        print("starting PostgreSQL, NATS, two servers and a relay …", flush=True)
        with start_team(folder) as team, holdlog.StateStore(team.db) as store:
            for file in FILES:
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).touch()
            store.set("team", "backlog", TASKS, updated_by="lead", expected_version=0)
            events: list[Json] = []
            follower = asyncio.create_task(follow(team, events))
            counts = await run_agents(team, folder)
            verified: Any = store.verify()
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    while len(events) < verified.position and not follower.done():  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            follower.cancel()
            results = check(store, folder, events, verified)
    print(f"\n{'agent':<7}{'tasks':>7}{'waits':>7}{'conflicts':>11}")
    for agent, count in counts.items():
        print(f"{agent:<7}{count['done']:>7}{count['waited']:>7}{count['conflict']:>11}")
    print(f"\n{len(events)} events")
    for what, is_true in results.items():
        print(f"{'ok  ' if is_true else 'FAILED'}  {what}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    os.umask(0o022)
    logging.getLogger("holdlog").setLevel(logging.ERROR)  # NATS has nothing to read before the relay's first event
    sys.exit(asyncio.run(run_agent(*sys.argv[1:]) if sys.argv[1:] else main()))
