"""Two hosts on one machine: network namespaces with a cable each to where the servers are."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.commands import until

_numbers = itertools.count(os.getpid() % 16_000)


class Host:
    """`before`: what a command is started with to run there; `outside`: this machine's address, as seen from there."""

    def __init__(self, before: tuple[str, ...], outside: str, cable: str = "") -> None:
        self.before = before
        self.outside = outside
        tc = ("tc", "qdisc", "replace", "dev")
        self._ends = ((*tc, cable), (*before, *tc, "outside")) if cable else ()

    def cut(self) -> None:
        """Nothing gets through, and nobody is told: not even that the cable is cut."""
        for end in self._ends:
            _run(*end, "root", "blackhole")

    def mend(self) -> None:
        for end in self._ends:
            _run(*["del" if it == "replace" else it for it in end], "root")


def missing() -> str | None:
    """Why this machine cannot have hosts with networks of their own; None when it can."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    if absent := [name for name in ("ip", "nsenter", "tc", "unshare") if shutil.which(name) is None]:
        return f"{absent[0]} is not installed"
    try:
        with _namespace():
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespace can be made here: {error}"


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_namespace()) for _ in range(count)]


@contextmanager
def _namespace() -> Iterator[Host]:
    holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], stderr=subprocess.PIPE)
    number = next(_numbers) % 16_000
    cable, net = f"hl{number}", f"100.{64 + number // 256}.{number % 256}"  # RFC 6598: nobody's own
    try:
        here = os.readlink("/proc/self/ns/net")
        until(lambda: holder.poll() is not None or _namespace_of(holder.pid) != here)
        before = ("nsenter", "-t", str(holder.pid), "-n")
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "outside", "netns", str(holder.pid))
        _run("ip", "addr", "add", f"{net}.1/30", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        _run(*before, "ip", "addr", "add", f"{net}.2/30", "dev", "outside")
        _run(*before, "ip", "link", "set", "outside", "up")
        _run(*before, "ip", "link", "set", "lo", "up")
        yield Host(before, f"{net}.1", cable)
    finally:
        holder.kill()
        holder.communicate()
        subprocess.run(["ip", "link", "del", cable], check=False, capture_output=True)


def _namespace_of(pid: int) -> str:
    try:
        return os.readlink(Path(f"/proc/{pid}/ns/net"))
    except OSError:
        return ""


def _run(*command: Any) -> None:
    subprocess.run([str(it) for it in command], check=True, capture_output=True)
