"""What every group of figures is given: folders, contestants in their own processes, how thorough to be, progress."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Choice = TypeVar("Choice", int, float)

ROOT = Path(__file__).resolve().parent.parent


class Process:
    """A contestant (see bench/worker.py) to send requests to."""

    def __init__(self, python: str, kind: str, path: Path) -> None:
        command = [python, "-m", "bench.worker", kind, str(path)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def ask(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"do": do} | arguments), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} died")  # type: ignore[arg-type]
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Bench:
    """`places`: a folder by the name of its kind, disk first. `peer`: bin folder of agenthold's environment."""

    places: dict[str, Path]
    quick: bool
    peer: Path | None
    _group: str = field(default="")

    @property
    def contestants(self) -> tuple[str, ...]:
        return ("raw", "holdlog", "agenthold") if self.peer else ("raw", "holdlog")

    @property
    def shared_stores(self) -> tuple[str, ...]:
        return tuple(name for name in self.contestants if name != "raw")

    @property
    def disk(self) -> Path:
        return next(iter(self.places.values()))

    @property
    def memory(self) -> Path:
        """The folder without a disk below it, if there is one."""
        return list(self.places.values())[-1]

    def pick(self, full: Choice, quick: Choice) -> Choice:
        return quick if self.quick else full

    def begin(self, group: str) -> None:
        self._group = group
        self.progress("")

    def progress(self, text: str) -> None:
        """One line on a terminal, overwritten by the next."""
        if sys.stderr.isatty():
            print(
                f"\r\x1b[2K{self._group}: {text}" if self._group else "\r\x1b[2K", end="", file=sys.stderr, flush=True
            )

    def python(self, contestant: str) -> str:
        return str(self.peer / "python") if contestant == "agenthold" and self.peer else sys.executable

    @contextmanager
    def folder(self, place: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=place, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    @contextmanager
    def processes(self, contestants: tuple[str, ...], folder: Path) -> Iterator[dict[str, Process]]:
        """One process of each contestant, each with its own file."""
        started: dict[str, Process] = {}
        try:
            for name in contestants:
                started[name] = self.start(name, folder / f"{name}.db")
            yield started
        finally:
            for process in started.values():
                process.close()

    def start(self, contestant: str, path: Path) -> Process:
        return Process(self.python(contestant), contestant, path)
