"""Clients that vanish in the middle of something: what stays of them in the server."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.bench import Bench
from bench.clients import ERAS, Server, call, crowd, fresh, holdlog, received, request, session
from bench.figures import Figure, number

GROUP = "http"
GONE = 200
WARM = 2
"""Times that they vanish before anything is counted: threads and caches are there then."""
MORE_MEMORY = 1.0
"""MiB: a page here and there."""
MORE_DESCRIPTORS = 2
"""Of sockets that the server opens and closes by itself."""
SETTLED_WITHIN = 90.0
"""Seconds; a session lasts 60 after its stream."""


def run(bench: Bench) -> Iterator[Figure]:
    rounds = bench.pick(4, 3)
    with bench.folder(bench.disk) as folder:
        counts = folder / "counts.json"
        with holdlog(folder / "state.db", [sys.executable, "-m", "bench.counted", str(counts)]) as server:
            for turn in range(WARM):
                bench.progress(f"{GONE} abandoned clients, {turn}")
                _vanish(server, with_sessions=False)
            first = _settled(server, counts)
            for turn in range(rounds):
                bench.progress(f"{GONE} abandoned clients, {WARM + turn}")
                _vanish(server, with_sessions=not bench.quick)
            last = _settled(server, counts)
    for what, target in (
        ("descriptors", MORE_DESCRIPTORS),
        ("tasks", 0),
        ("sessions", 0),
        ("MiB in memory", MORE_MEMORY),
    ):
        name = f"{rounds} times {GONE} abandoned clients: more {what}"
        beside = f"{number(first[what])}, then {number(last[what])}"
        yield Figure(GROUP, name, max(0.0, last[what] - first[what]), "", target, beside=beside)


def _vanish(server: Server, with_sessions: bool) -> None:
    """A third each in a call that waits, in a stream, in a body; all at once."""
    watch = {"namespace": "n", "key": "k", "since_version": 0, "timeout_seconds": 50}
    calls = [call(era, "holdlog_watch", watch, session(server, era)) for era in ERAS]
    streams = [request("GET", "/events", headers={"Accept": "text/event-stream"})] * GONE
    if with_sessions:
        accept = {"Accept": "text/event-stream"}
        streams[::2] = [request("GET", "/mcp", headers=accept | session(server, ERAS[0])) for _ in streams[::2]]
    with crowd(server.port, GONE) as clients:
        for at, client in enumerate(clients):
            if at % 3 == 0:
                client.sendall(fresh(calls[at % 2]))
            elif at % 3 == 1:
                client.sendall(streams[at])
                received(client)
            else:
                client.sendall(calls[at % 2][:-50])
        while server.metric("holdlog_waiters") < len(clients[::3]):
            time.sleep(0.05)


def _settled(server: Server, counts: Path) -> dict[str, float]:
    """What is there when nothing runs and nothing changes any more."""
    end = time.monotonic() + SETTLED_WITHIN
    last: dict[str, float] = {}
    while True:
        time.sleep(1.0)
        now = _counted(server, counts)
        if (now == last and not (now["tasks"] or now["sessions"])) or time.monotonic() > end:
            return now | {"MiB in memory": server.memory()}
        last = now


def _counted(server: Server, counts: Path) -> dict[str, float]:
    os.kill(server.pid, signal.SIGUSR1)
    while not counts.exists():
        time.sleep(0.01)
    found: dict[str, float] = json.loads(counts.read_text()) | {"descriptors": server.descriptors()}
    counts.unlink()
    return found
