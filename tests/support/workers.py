"""Processes that use the library, for tests of what happens when they are killed, stopped or many.

`Worker("count", path)` starts one that runs the function of this name in work.py; both sides speak in JSON lines."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.programs import environment
from tests.support.waiting import PATIENCE, until

Line = dict[str, Any]


class Worker:
    def __init__(
        self, name: str, *arguments: Any, env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*before, sys.executable, Path(__file__).with_name("work.py"), name, *map(str, arguments)],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment(env),
        )  # fmt: skip
        self.heard: list[Line] = []
        self.errors = ""
        self._lines: queue.Queue[Line | None] = queue.Queue()
        self._threads = [threading.Thread(target=it, daemon=True) for it in (self._listen, self._read_errors)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> Line:
        """The next line. Fails where there is none."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"the worker is silent; {self.errors}") from None
        assert line is not None, f"the worker ended with {self.process.wait()}; {self.errors}"
        self.heard.append(line)
        return line

    def rest(self) -> list[Line]:
        """The lines up to the end of the process, which must come."""
        lines = list[Line]()
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            lines.append(line)
        self.process.wait(PATIENCE)
        self._threads[1].join(PATIENCE)
        self._lines.put(None)
        self.heard += lines
        return lines

    def tell(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def call(self, method: str, *arguments: Any, **options: Any) -> Line:
        """Of a `serve`: make a call of the library; its result or refusal."""
        self.tell(json.dumps([method, arguments, options, False]))
        return self.hear()

    def begin(self, method: str, *arguments: Any, **options: Any) -> None:
        """Of a `serve`: make a call that may block. `hear` its result."""
        self.tell(json.dumps([method, arguments, options, True]))
        assert self.hear() == {"begun": True}

    def kill(self) -> list[Line]:
        """-9; the lines that came before."""
        self.process.kill()
        return self.rest()

    def stop(self) -> None:
        stop(self.process.pid)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Whatever state it is in."""
        self.process.kill()
        self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def story(self, name: str) -> tuple[list[Line], int]:
        """Of a `forks`: what a child said, and its wait status."""
        self.start_story(name)
        return self.end_of_story()

    def start_story(self, name: str) -> int:
        """The pid of the child."""
        self.tell(name)
        return int(self.hear()["child"])

    def end_of_story(self) -> tuple[list[Line], int]:
        lines = list[Line]()
        while "exit" not in (line := self.hear()):
            lines.append(line)
        return lines, int(line["exit"])

    def start_together(self, number: int) -> list[int]:
        """Of `several`: let the children begin at once, when all are ready; their pids."""
        pids = [int(self.hear()["pid"]) for _ in range(number)]
        self.tell("g" * (number - 1))
        return pids

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):  # half a line of a killed process
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line


def stop(pid: int) -> None:
    """SIGSTOP, and wait until it stands."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
