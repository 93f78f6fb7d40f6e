"""How long a host waits for `holdlog hook` before an edit: whole processes, from their start to their end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.figures import Figure, number
from holdlog.adapters.compose import open_holdlog

GROUP = "hooks"
HELD_MS = 60.0
WRITE_MS = 150.0


def run(bench: Bench) -> Iterator[Figure]:
    rounds = bench.pick(40, 10)
    with bench.folder(bench.disk) as folder:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # else the store is that of our own repository
        store = folder / ".git" / "holdlog" / "state.db"
        open_holdlog(store).close()
        _hook(folder, "held.py")
        python, held, written = list[float](), list[float](), list[float]()
        for turn in range(rounds):
            bench.progress(f"{turn} of {rounds}")
            python.append(_ran([sys.executable, "-c", "pass"], folder, b""))
            held.append(_hook(folder, "held.py"))
            written.append(_hook(folder, f"{turn}.py"))
        _require_claims(store, rounds + 1)
    beside = f"Python alone {number(median(python))} ms"
    yield Figure(GROUP, "before an edit, claim already held", median(held), " ms", HELD_MS, beside=beside)
    yield Figure(GROUP, "before an edit, claim written", median(written), " ms", WRITE_MS, beside=beside)


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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDLOG_", "CLAUDE_"))}
    started = time.perf_counter()
    done = subprocess.run(command, input=given, capture_output=True, cwd=folder, env=kept, check=True)
    assert done.stdout == b""
    assert done.stderr == b""
    return (time.perf_counter() - started) * 1000
