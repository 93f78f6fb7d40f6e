"""Processes of this machine, as texts that name one for ever: machine, process id and start."""

import os
from functools import cache
from typing import Final

SHELLS: Final = frozenset(["sh", "bash", "dash", "zsh", "fish", "ksh", "busybox", "tcsh", "csh", "nu", "pwsh"])
_WRAPPERS: Final = ("env", "sudo", "nohup", "timeout", "nice", "time", "xargs", "script")
STARTERS: Final = frozenset(
    (*_WRAPPERS, "uv", "uvx", "git", "npx", "npm", "node-gyp", "poetry", "pipx", "make", "lefthook")
)
"""Programs between an agent's host and what it starts, besides shells."""

NAMED: Final = ("CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID")
"""Variables in which hosts pass the id of the conversation to a shell."""


@cache
def identify_machine() -> str | None:
    """Boot and pid namespace: where a process id means one process. None if the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def identify_boot() -> str:
    """The run of the kernel, whose steady clock leases use; empty if the system does not say."""
    return (identify_machine() or "").partition("/")[0]


def identify_process(pid: int) -> str | None:
    """The text of a live process. None if the system does not say."""
    machine, start = identify_machine(), _read_status(pid)
    return None if machine is None or start is None else f"{machine}/{pid}/{start[2]}"


def name_handle() -> str:
    """A text that names an open store of this process for ever."""
    return f"{identify_process(os.getpid()) or f'unknown/{os.getpid()}/'}#{os.urandom(3).hex()}"


def identify_host() -> str | None:
    """The program that runs the agent: the nearest ancestor that is neither a shell nor a starter, nor what git starts:
    Linux names a process after its script, such as `pre-commit`."""
    pid = os.getppid()
    while pid > 1 and (status := _read_status(pid)) is not None:
        parent = _read_status(status[1])
        if status[0] not in SHELLS | STARTERS and (parent is None or parent[0] != "git"):
            break
        pid = status[1]
    return identify_process(pid) if pid > 1 else None


def is_alive(process: str | None) -> bool | None:
    """Whether a process lives, or that of a handle; None if that cannot be known here."""
    if process is None:
        return None
    machine, _, rest = process.partition("#")[0].rpartition("/")
    machine, _, pid = machine.rpartition("/")
    if machine != identify_machine():
        return None
    status = _read_status(int(pid))
    return status is not None and status[2] == rest


def _read_status(pid: int) -> tuple[str, int, str] | None:
    """Name, parent and start of a process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":  # dead, but its parent has not noticed
        return None
    return text.partition("(")[2].rpartition(")")[0], int(fields[1]), fields[19]
