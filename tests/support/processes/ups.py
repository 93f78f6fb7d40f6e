"""`holdlog up` as the tests start it."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.processes.workers import PATIENCE


class Up:
    """A `holdlog up --json`."""

    def __init__(self, base: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdlog", "up", "--json", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(base)},
            cwd=base,
        )
        self.told: dict[str, Any] = {}

    def ready(self) -> "Up":
        """Once both servers answer."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0]
        self.told = json.loads(self.process.stdout.readline() or self.complaint())
        return self

    def complaint(self) -> str:
        """What it ended with."""
        return self.process.communicate(timeout=PATIENCE)[1]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    @property
    def postgres(self) -> str:
        url: str = self.told["postgres"]
        return url

    @property
    def nats(self) -> str:
        url: str = self.told["nats"]
        return url


def is_open(url: str) -> bool:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


def processes_of(folder: Path) -> list[int]:
    """Who runs with the folder's name among its words (the servers, and who keeps them)."""
    found = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 1) for line in found.splitlines()]
    return [int(pid) for pid, words in rows if str(folder) in words and "holdlog up" not in words]


def holdlog(up: Up, *words: str) -> str:
    env = os.environ | {"HOLDLOG_DB": up.postgres, "HOLDLOG_NATS": up.nats}
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", *words], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
