"""Real processes for the tests: each runs one function of `behaviours.py` and answers in JSON lines."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

PATIENCE = 30.0
"""Seconds after which a test gives up: never reached when all is well."""
PROMISED = 6.0
"""Seconds in which a write that cannot be taken must be answered."""
BEHAVIOURS = str(Path(__file__).with_name("behaviours.py"))
ROOT = str(Path(__file__).parents[3])

Found = TypeVar("Found")


def until(look: Callable[[], Found], seconds: float = PATIENCE) -> Found:
    """What `look` finds once it is true. Fails after some time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
    return found


class Worker:
    """A process that runs `behaviours.<name>(*arguments)`. `before`: a command that starts it (strace …)."""

    def __init__(self, name: str, *arguments: Any, before: tuple[str, ...] = (), env: dict[str, str] | None = None):
        command = [*before, sys.executable, BEHAVIOURS, name, *map(str, arguments)]
        paths = [ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | (env or {})
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )
        self.said: list[dict[str, Any]] = []
        self.complaints = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._complainer = threading.Thread(target=self._read_complaints, daemon=True)
        self._listener.start()
        self._complainer.start()

    @property
    def pid(self) -> int:
        """Of the worker itself when nothing was put before it."""
        return self.process.pid

    def hear(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """The next line. Fails when there is none."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"the worker says nothing; {self.complaints}") from None
        assert line is not None, f"the worker ended with {self.process.wait()}; {self.complaints}"
        said: dict[str, Any] = json.loads(line)
        self.said.append(said)
        return said

    def rest(self) -> list[dict[str, Any]]:
        """All lines to the end of the process; half a line of a killed one is none."""
        self._listener.join(PATIENCE)
        assert not self._listener.is_alive(), "the worker does not end"
        self.process.wait(PATIENCE)
        self._complainer.join(PATIENCE)
        lines = []
        while (line := self._lines.get()) is not None:
            with suppress(ValueError):
                lines.append(json.loads(line))
        self._lines.put(None)
        self.said += lines
        return lines

    def tell(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        if stat.exists():
            until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def _listen(self) -> None:
        for line in self._read(self.process.stdout):
            if line.endswith("\n"):
                self._lines.put(line)
        self._lines.put(None)

    def _read_complaints(self) -> None:
        for line in self._read(self.process.stderr):
            self.complaints += line

    @staticmethod
    def _read(stream: Any) -> Iterator[str]:
        with suppress(ValueError, OSError):
            yield from stream
