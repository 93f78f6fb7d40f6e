"""Faults at the n-th system call of a process, by `strace -e inject`."""

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.workers import Worker

WHEN = 400
"""The disturbed call's number in the life of a worker's child, which first makes as many idle calls as it takes."""
MOST = 350
"""More calls of one kind than a migration takes, or opening, writing three values and a thread, and closing."""


@functools.cache
def missing() -> str | None:
    """Why strace cannot inject faults here, None when it can."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qq", "-f", "--seccomp-bpf", "-e", "trace=getppid", "-e", "inject=getppid:retval=77",
         sys.executable, "-S", "-c", "import os; raise SystemExit(os.getppid() != 77)"],
        capture_output=True,
        check=False,
    )  # fmt: skip
    return None if tried.returncode == 0 else "strace may not inject faults here"


STRACE = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class Strace:
    """A worker whose children each suffer one fault at their n-th `call`."""

    def __init__(self, start: Callable[..., Worker], path: Path, call: str, fault: str) -> None:
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={WHEN}")
        strace = ("strace", "-qq", "-f", "-o", "/dev/null", *inject)
        self._worker = start("forks", path, call, WHEN, before=strace)
        self._worker.hear()

    def numbers(self) -> Iterator[int]:
        return iter(range(1, MOST))

    def strike(self, number: int) -> tuple[list[dict[str, Any]], int]:
        """What a child said whose `number`-th call was struck, and its wait status."""
        self._worker.tell(str(number))
        said = []
        while "status" not in (line := self._worker.hear()):
            said.append(line)
        return said, line["status"]
