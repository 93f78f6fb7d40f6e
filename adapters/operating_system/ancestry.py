"""The host of a process: the nearest ancestor that is neither a shell nor a program that only starts others.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import sys
from functools import cache
from typing import Final, NamedTuple

from holdlog.adapters.operating_system import platform

MAX_DEPTH: Final = 16
"""Ancestors that are looked at."""
PS_SECONDS: Final = 2.0

_STARTERS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox", "env", "uv", "uvx", "timeout", "nice", "setsid", "npx"}
)


class HostProcess(NamedTuple):
    """A process. `started`: as the system counts it, which distinguishes it from later ones with its pid; `boot`: of
    the kernel; `visible`: the namespace of its pid."""

    pid: int
    started: str
    boot: str
    visible: str


def host_process(pid: int) -> HostProcess | None:
    """The host that started a process; None if unknown."""
    host = host_of(pid)
    return None if host is None else HostProcess(host, _started(host), platform.boot_id(), _visible())


def is_running(process: HostProcess) -> bool | None:
    """Whether a process still runs; None if only another container knows."""
    if process.boot != platform.boot_id():
        return False
    if process.visible != _visible():
        return None
    found = _process(process.pid)
    return found is not None and _started(process.pid) == process.started


def host_of(pid: int) -> int | None:
    """The pid of the host that started a process, directly or through shells; None if unknown."""
    for _ in range(MAX_DEPTH):
        found = _process(pid)
        if found is None or found[0] <= 1:
            return None
        pid = found[0]
        parent = _process(pid)
        if parent is None or parent[1] not in _STARTERS:
            return pid
    return None


def version_of_host(pid: int, name: str) -> str:
    """The version in the path of the program `name` that started a process; empty if unknown."""
    import re

    try:
        path = os.readlink(f"/proc/{host_of(pid)}/exe")
    except OSError:
        return ""
    found = re.search(rf"{re.escape(name)}.*/v?(\d+\.\d+\.\d+)(?=/|$)", path)
    return found[1] if found else ""


def ancestors(pid: int) -> list[int]:
    """The pids of the processes that a process comes from, nearest first."""
    found: list[int] = []
    while len(found) < MAX_DEPTH and (process := _process(pid)) is not None and process[0] > 1:
        pid = process[0]
        found.append(pid)
    return found


def _process(pid: int) -> tuple[int, str] | None:
    """Parent and name of a process."""
    if sys.platform != "linux":
        return _listed().get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().decode(errors="replace").rpartition(")")
        return int(after.split()[1]), before.partition("(")[2]  # proc(5): ppid, comm
    except (OSError, ValueError, IndexError):
        return None


def _started(pid: int) -> str:
    """When a process started; empty if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after = file.read().decode(errors="replace").rpartition(")")[2].split()
        return "" if after[0] in ("Z", "X") else after[19]  # proc(5): a dead one is not running; starttime
    except (OSError, IndexError):
        return ""


def _visible() -> str:
    """Which processes this one can see: those of its namespace."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@cache
def _listed() -> dict[int, tuple[int, str]]:
    """All processes, where there is no /proc (macOS: untested)."""
    import subprocess

    command = ["ps", "-A", "-o", "pid=,ppid=,comm="]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=PS_SECONDS, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.split(None, 2) for line in text.splitlines()]
    return {int(row[0]): (int(row[1]), row[2].rpartition("/")[2].lstrip("-")) for row in rows if len(row) == 3}
