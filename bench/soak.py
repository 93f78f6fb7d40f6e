"""Four agents with hooks and two servers over HTTP for an hour, on PostgreSQL and NATS, while processes are killed.

At the end, the log is compared with what the agents noted: a line of a journal for every write that was acknowledged.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import psutil
import requests

import holdlog
from bench.contestants import Row
from tests.support.hosts import Session, repository, run_hook
from tests.support.programs import HOLDLOG, Done, HttpServer, environment
from tests.support.servers import Nats, Postgres, create_user
from tests.support.soundness import require_sound_log
from tests.support.waiting import PATIENCE, until

AGENTS = ("ann", "bob", "cat", "dan")
FILES, KEYS, LANES = 24, 6, 3
TURNS = 4
"""Of one conversation."""
PAUSE = (3.0, 12.0)
"""Seconds from one kill to the next."""
SAMPLE_SECONDS = 5.0
WARM_UP = 60.0
"""Seconds before memory counts."""
Json = dict[str, Any]


# --- an agent, which may be killed at any moment


class Conversation(Session):
    """Its hooks are commands on the store of HOLDLOG_DB, or requests to one of the servers. `problems`: what commands
    printed; the host goes on, unguarded."""

    def __init__(self, folder: Path, name: str, urls: list[str]) -> None:
        super().__init__(folder, name)
        self._urls = urls
        self.problems: list[str] = []

    def run(self, event: str, **given: Any) -> Done:
        call = {**self.facts, "hook_event_name": event, **given}
        if self._urls:
            response = send("POST", self._urls, f"/hook?root={quote(str(self.folder))}", call, {})
            return Done(0, response.text, "")
        done = run_hook(call, cwd=self.folder, env={"HOLDLOG_DB": os.environ["HOLDLOG_DB"]})
        self.problems += done.err.splitlines()
        return done._replace(err="")


def send(method: str, urls: list[str], path: str, body: Json | None, headers: dict[str, str]) -> requests.Response:
    """The response of one of the servers; a request without one is sent again. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(requests.RequestException):
            return requests.request(method, random.choice(urls) + path, json=body, headers=headers, timeout=20)
        time.sleep(0.2)
    raise TimeoutError(f"{method} {path}")


class Agent:
    """Edits files behind hooks, changes values with a version check, and writes under a claim, for ever. A request
    without a response is sent again, with the same key, to the other server."""

    def __init__(self, name: str, folder: Path, urls: list[str]) -> None:
        self._name, self._folder, self._urls = f"{name}-{os.getpid()}", folder, urls
        self._journal = os.open(folder / "journal.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = count()
        self._headers = {"holdlog-session": self._name}

    def run(self) -> None:
        for number in count():
            urls = [] if self._name[:3] in AGENTS[:2] else self._urls
            session = Conversation(self._folder / "repo", f"{self._name}-{number}", urls)
            session.hook("SessionStart", source="startup")
            for _ in range(TURNS):
                session.hook("UserPromptSubmit", prompt="go on")
                self._edit(session)
                self._change_value()
                self._write_under_claim()
                session.hook("Stop")
            session.end()
            if session.problems:
                self._note(unguarded=session.problems)

    def _edit(self, session: Session) -> None:
        path = f"src/file-{random.randrange(FILES)}.py"
        denial = session.edit(path)
        if denial or session.problems:
            self._note(**({"denied": path} if denial else {"unguarded": session.problems}))
            session.problems.clear()
            return
        with self._alone(path):
            (self._folder / "repo" / path).write_text(f"{self._name} = {next(self._numbers)}\n")
        session.hook("PostToolUse", tool_name="Edit", tool_input={"file_path": str(self._folder / "repo" / path)})
        self._note(edited=path)

    def _change_value(self) -> None:
        path = f"/values/soak/key-{random.randrange(KEYS)}"
        while True:
            read = self._ask("GET", path)
            body = {"value": f"{self._name} {next(self._numbers)}", "updated_by": self._name}
            written = self._ask("PUT", path, body | {"expected_version": read.get("version", 0)})
            if written["status"] == "ok":
                self._note(stream=f"record:soak/{path.rpartition('/')[2]}", version=written["version"], **body)
                return
            self._note(conflict=path)

    def _write_under_claim(self) -> None:
        lane = f"lane-{random.randrange(LANES)}"
        claims = f"/claims/{quote(f'custom://{lane}', safe='')}"
        granted = self._ask("POST", claims, {"agent": self._name, "wait_seconds": 2})
        if granted["status"] not in ("claimed", "already_claimed"):
            self._note(busy=lane)
            return
        with self._alone(lane):
            body = {"value": f"{self._name} {next(self._numbers)}", "updated_by": self._name}
            guard = [{"resource": f"custom://{lane}", "version": granted["version"]}]
            written = self._ask("PUT", f"/values/soak/{lane}", body | {"force": True, "guard": guard})
        if written["status"] == "ok":
            self._note(stream=f"record:soak/{lane}", version=written["version"], **body)
        else:
            self._note(unexpected=written)
        released = self._ask("DELETE", claims, {"agent": self._name, "outcome": "modified"})
        self._note(**({"released": lane} if released["status"] == "released" else {"unexpected": released}))

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Note a violation if another living process is in such a block of the same name."""
        mark = self._folder / "marks" / name.replace("/", "-")
        try:
            mark.symlink_to(str(os.getpid()))
        except FileExistsError:
            with suppress(FileNotFoundError):
                other = int(os.readlink(mark))
                if psutil.pid_exists(other):
                    self._note(violation=name, other=other)
        yield
        mark.unlink(missing_ok=True)

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        headers = self._headers | (
            {} if method == "GET" else {"idempotency-key": f"{self._name}-{next(self._numbers)}"}
        )
        while True:
            result: Json = send(method, self._urls, f"/v1{path}", body, headers).json()
            if result["status"] != "unavailable":
                return result
            self._note(unavailable=result)
            time.sleep(result["retry_after"])

    def _note(self, **facts: Any) -> None:
        os.write(self._journal, (json.dumps(facts) + "\n").encode())


# --- the processes


class Soak:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        create_user()
        folder.chmod(0o755)
        self._folder = folder
        (folder / "marks").mkdir()
        repository(folder / "repo", has_store=False)
        self._postgres, self._nats = Postgres(folder / "postgres"), Nats(folder / "nats")
        for server in (self._postgres, self._nats):
            server.start()
            stack.callback(server.stop)
        self.db = self._postgres.url
        holdlog.StateStore(self.db).close()
        self._steady = HttpServer(self.db, "--nats", self._nats.url, cwd=folder / "repo")
        stack.callback(self._steady.close)
        self._mortal = HttpServer(self.db, cwd=folder / "repo")
        self._relay = self._start(HOLDLOG, "relay", "--db", self.db, "--nats", self._nats.url)
        self._urls = [self._steady.url, self._mortal.url]
        self._subscriber = self._start(
            HOLDLOG, "subscribe", "--db", self.db, "--nats", self._nats.url, "--after", "0", out="events.jsonl"
        )
        self._agents = {name: self._start_agent(name) for name in AGENTS}
        stack.callback(self._end)
        self.kills = Counter[str]()
        self.memory: dict[str, list[float]] = {"server": [], "subscriber": []}

    def _start(self, *command: str, out: str = "out.txt") -> subprocess.Popen[bytes]:
        with (self._folder / out).open("ab") as stdout, (self._folder / "errors.txt").open("ab") as stderr:
            env = environment({"HOLDLOG_DB": self.db})
            return subprocess.Popen(command, env=env, stdout=stdout, stderr=stderr)

    def _start_agent(self, name: str) -> subprocess.Popen[bytes]:
        return self._start(sys.executable, "-m", "bench.soak", name, str(self._folder), *self._urls)

    def run(self, seconds: float) -> Iterator[float]:
        """Kill and start processes for so long. Yields the seconds that have passed, at each sample of memory."""
        began = sampled = time.monotonic()
        next_kill = began + PAUSE[1]
        while (now := time.monotonic()) < began + seconds:
            for name, agent in self._agents.items():
                if agent.poll() is not None:
                    raise RuntimeError(f"{name} ended: {(self._folder / 'errors.txt').read_text()[-2000:]}")
            if now > next_kill:
                self._kill(random.choice(("server", "relay", "agent")))
                next_kill = time.monotonic() + random.uniform(*PAUSE)
            if now > max(sampled + SAMPLE_SECONDS, began + WARM_UP):
                sampled = now
                for name, process in (("server", self._steady.process), ("subscriber", self._subscriber)):
                    self.memory[name].append(psutil.Process(process.pid).memory_info().rss / 1e6)
                yield now - began
            time.sleep(0.2)

    def _kill(self, what: str) -> None:
        self.kills[what] += 1
        if what == "server":
            self._mortal.process.kill()
            self._mortal.process.wait()
            self._mortal = HttpServer(self.db, "--port", self._urls[1].rpartition(":")[2], cwd=self._folder / "repo")
        elif what == "relay":
            self._relay.kill()
            self._relay.wait()
            self._relay = self._start(HOLDLOG, "relay", "--db", self.db, "--nats", self._nats.url)
        else:
            name = random.choice(AGENTS)
            self._agents[name].kill()
            self._agents[name].wait()
            self._agents[name] = self._start_agent(name)

    def finish(self) -> list[Json]:
        """End the agents, wait for the subscriber. Returns what it has printed."""
        for agent in self._agents.values():
            agent.kill()
            agent.wait()
        time.sleep(1)  # requests of the killed agents
        with holdlog.StateStore(self.db) as store:
            last: Any = store.verify()
        printed = self._folder / "events.jsonl"
        with suppress(AssertionError):
            until(lambda: f'"position":{last.position},' in printed.read_text()[-5000:].replace(" ", ""))
        return [json.loads(line) for line in printed.read_text().splitlines()]

    def _end(self) -> None:
        for process in (*self._agents.values(), self._relay, self._subscriber):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)
        self._mortal.close()


# --- what must be true


def check(db: str, journal: list[Json], delivered: list[Json]) -> dict[str, Any]:
    """Each rule with what breaks it."""
    with holdlog.StateStore(db) as store:
        log = require_sound_log(store)
        verified: Any = store.verify()
    values = {(it.stream, it.version): it.fields.get("value") for it in log if it.kind == "ValueWritten"}
    acknowledged = [it for it in journal if "stream" in it]
    claimed = {it.stream for it in log if it.kind == "ClaimGranted"}
    positions = [it["position"] for it in delivered]
    return {
        "acknowledged writes that the log lacks": [
            it for it in acknowledged if values.get((it["stream"], it["version"])) != it["value"]
        ],
        "edits of files that nobody claimed": [
            it for it in journal if "edited" in it and not any(name.endswith(it["edited"]) for name in claimed)
        ],
        "grants while another agent held the resource": list(find_overlaps(log)),
        "two living agents in one block": [it for it in journal if "violation" in it],
        "unexpected responses": [it for it in journal if "unexpected" in it],
        "damage": [] if verified.status == "ok" else [verified],
        "positions that NATS lost or doubled": sorted((Counter(positions) - Counter(range(1, len(log) + 1))).elements())
        + sorted(set(range(1, len(log) + 1)) - set(positions)),
        "positions that NATS delivered out of order": [b for a, b in pairwise(positions) if b <= a],
        "another last digest": [] if delivered[-1]["digest"] == verified.digest else [delivered[-1]["position"]],
    }


def find_overlaps(log: list[Any]) -> Iterator[Any]:
    held = dict[str, int]()
    for event in log:
        if event.kind == "ClaimGranted":
            if event.stream in held and event.fields.get("instead_of") != held[event.stream]:
                yield event
            held[event.stream] = event.version
        elif event.kind in ("ClaimReleased", "ClaimExpired", "OfferExpired", "ClaimHandedOver"):
            held.pop(event.stream, None)


def measure_soak(minutes: float = 60) -> Iterator[Row]:
    """Exits with 1 if anything was lost."""
    with (
        TemporaryDirectory(prefix="holdlog-soak-", dir="/tmp", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        soak = Soak(folder, stack)
        every = max(60.0, minutes * 60 / 30)
        shown = 0.0
        for passed in soak.run(minutes * 60):
            if passed >= shown + every:
                shown = passed
                yield {"what": f"after {passed / 60:.0f} min"} | {
                    f"{it} MB": mb[-1] for it, mb in soak.memory.items() if mb
                }
        delivered = soak.finish()
        journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        broken = check(soak.db, journal, delivered)
        errors = Counter((folder / "errors.txt").read_text().splitlines())
    yield {"what": "kills"} | dict(soak.kills)
    yield (
        {"what": "what the agents noted"} | dict(Counter(next(iter(it)) for it in journal)) | {"events": len(delivered)}
    )
    for process, samples in soak.memory.items() if minutes >= 3 else ():
        third = max(1, len(samples) // 3)
        first, last = (statistics.median(part) for part in (samples[:third], samples[-third:]))
        yield {
            "what": f"memory of the {process}",
            "first third MB": first,
            "last third MB": last,
            "ratio": last / first,
        }
        broken[f"memory of the {process} that grew by more than a tenth"] = [last / first] if last > 1.1 * first else []
    errors.update(line for it in journal for line in it.get("unguarded", ()))
    for line, times in errors.most_common(10):
        yield {"what": f"printed: {line[:200]}", "times": times}
    for rule, found in broken.items():
        yield {"what": f"{'ok' if not found else 'BROKEN'}: {rule}", "number": len(found)}
        for it in found[:3]:
            print("   ", it)
    if any(broken.values()):
        sys.exit(1)


if __name__ == "__main__":
    Agent(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]).run()
