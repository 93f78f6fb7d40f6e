"""How long a host waits for `holdlog hook` before an edit: whole processes, from their start to their end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from subprocess import PIPE

from bench.bench import Bench
from bench.figures import Figure, number
from holdlog.adapters.compose import open_holdlog

GROUP = "hooks"
HELD_MS = 60.0
WRITE_MS = 150.0
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDLOG_", "CLAUDE_"))}


def run(bench: Bench) -> Iterator[Figure]:
    rounds = bench.pick(40, 10)
    with bench.folder(bench.disk) as folder:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # else the store is that of our own repository
        store = folder / ".git" / "holdlog" / "state.db"
        open_holdlog(store).close()
        _hook(folder, "held.py")
        python, held, alone, served = list[float](), list[float](), list[float](), list[float]()
        for turn in range(rounds):
            bench.progress(f"{turn} of {rounds}")
            python.append(_ran([sys.executable, "-c", "pass"], folder, b""))
            held.append(_hook(folder, "held.py"))
            alone.append(_hook(folder, f"alone-{turn}.py"))
        with _server(folder, store):
            for turn in range(rounds):
                bench.progress(f"{turn} of {rounds}, with a server")
                served.append(_hook(folder, f"served-{turn}.py"))
        _require_claims(store, 2 * rounds + 1)
    beside = f"Python alone {number(median(python))} ms"
    yield Figure(GROUP, "before an edit, claim already held", median(held), " ms", HELD_MS, beside=beside)
    yield Figure(
        GROUP, "…, claim written, with the host's stdio server", median(served), " ms", WRITE_MS, beside=beside
    )
    yield Figure(GROUP, "…, claim written, without a server", median(alone), " ms", beside=beside)


@contextmanager
def _server(folder: Path, store: Path) -> Iterator[None]:
    """A stdio server of this process, which is then the host of server and hooks."""
    sessions = store.with_name("state.db.sessions")
    with subprocess.Popen(
        [sys.executable, "-m", "holdlog"], stdin=PIPE, stdout=PIPE, cwd=folder, env=_ENVIRONMENT
    ) as it:
        while not list(sessions.glob("*.sock")):
            assert it.poll() is None
            time.sleep(0.01)
        yield
        assert it.stdin is not None
        it.stdin.close()


def _require_claims(store: Path, count: int) -> None:
    """Fail if the hooks did not claim: one that finds no store does nothing, fast."""
    engine = open_holdlog(store)
    try:
        found = len(engine.read(engine.requests.claims.board()).claims)
    finally:
        engine.close()
    assert found == count, f"{found} of {count} claims were made"


def _hook(folder: Path, path: str) -> float:
    edit = {"session_id": "s-1", "cwd": str(folder), "hook_event_name": "PreToolUse", "tool_name": "Edit"}
    given = json.dumps({**edit, "tool_input": {"file_path": str(folder / path)}}).encode()
    return _ran([sys.executable, "-m", "holdlog", "hook"], folder, given)


def _ran(command: list[str], folder: Path, given: bytes) -> float:
    """Milliseconds that the command ran."""
    started = time.perf_counter()
    done = subprocess.run(command, input=given, capture_output=True, cwd=folder, env=_ENVIRONMENT, check=True)
    assert done.stdout == b""
    assert done.stderr == b""
    return (time.perf_counter() - started) * 1000
