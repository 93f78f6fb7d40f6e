"""What a hook costs its host: whole processes, without a server."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.contestants import PLACES, Row, alternate
from tests.support.hosts import Json, Session, repository
from tests.support.programs import HOLDLOG, environment

KINDS = ("Python alone", "edit of a new file", "edit of a held file", "ls", "denied edit")


def measure_hooks() -> Iterator[Row]:
    """Milliseconds more than Python alone."""
    numbers = count()
    env = {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory(prefix="holdlog-bench-", dir=PLACES["tmpfs"]) as folder:
        root = repository(Path(folder, "repo"))
        one = Session(root, "s-1")
        one.edit("src/a.py")

        def make_call(kind: str) -> Json:
            if kind == "ls":
                return {"session_id": "s-1", "tool_name": "Bash", "tool_input": {"command": "ls -la src"}}
            name = f"src/new-{next(numbers)}.py" if "new" in kind else "src/a.py"
            session = "s-2" if "denied" in kind else "s-1"
            return {"session_id": session, "tool_name": "Edit", "tool_input": {"file_path": str(root / name)}}

        def measure(kind: str) -> list[float]:
            command = [sys.executable, "-c", ""] if kind == KINDS[0] else [HOLDLOG, "hook"]
            text = json.dumps({"hook_event_name": "PreToolUse", "cwd": str(root), **make_call(kind)})
            began = time.perf_counter()
            done = subprocess.run(command, input=text, text=True, capture_output=True, env=env, check=True)
            elapsed = (time.perf_counter() - began) * 1000
            assert (done.stderr, "deny" in done.stdout) == ("", "denied" in kind), done
            return [elapsed]

        samples = alternate("hooks", KINDS, 60, 60, measure)
        alone = samples.median(KINDS[0])
        yield {"what": KINDS[0], "ms": alone}
        for kind in KINDS[1:]:
            yield {"what": kind, "ms more": samples.median(kind) - alone}
