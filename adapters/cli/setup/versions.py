"""Which versions of a host holdlog knows how to guard, and which one is installed. Formats: docs/hosts.md."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.hooks.observed import Observed
from holdlog.adapters.stores.event_log.findings import Finding

VERSION_SECONDS: Final = 10.0
"""Hosts take up to a few seconds to print their version."""

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)+")


class Known(NamedTuple):
    """Versions whose hooks holdlog knows: from `first`, and below `end`."""

    first: str
    end: str

    def __str__(self) -> str:
        return f"{self.first} to below {self.end}"


KNOWN: Final[Mapping[str, tuple[Known, ...]]] = {
    "claude-code": (Known("1.0.85", "3"),),
    "codex": (Known("0.124", "1"),),
    "cursor": (Known("2.4", "4"), Known("2026.1", "2027")),
    "opencode": (Known("1.18.29", "2"), Known("2.0.7", "3")),
}
"""Older ones lack hooks that guard files. Newer ones may have others, which nobody has tried."""
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("claude",),
    "codex": ("codex",),
    "cursor": ("cursor-agent", "cursor"),
    "opencode": ("opencode", "opencode2"),
}


def is_known(name: str, version: str) -> bool:
    """Whether holdlog knows the hooks of this version of a host."""
    number = _parts(version)
    return any(_parts(it.first) <= number < _parts(it.end) for it in KNOWN.get(name, ()))


def unknown_versions(name: str, client: str, project: Project, seen: Mapping[str, Observed]) -> Iterator[Finding]:
    """Versions of a host that are installed, or were seen last, and that holdlog does not know. One that was seen to
    obey a denial is guarded, whether it is known or not. `client`: the name of the host in `seen`."""
    last = list(seen)[-1:]
    versions = [*installed_versions(name, project), *(it.partition(" ")[2] for it in last)]
    for version in dict.fromkeys(it for it in versions if _NUMBER.match(it)):
        state = seen.get(f"{client} {version}", Observed()).state
        if state != "guarded" and not is_known(name, version):
            known = ", ".join(map(str, KNOWN[name]))
            line = f"not guarded: holdlog does not know how to guard {HOSTS[name].title} {version}; it knows {known}"
            yield Finding("version", "bad", line)


def installed_versions(name: str, project: Project) -> list[str]:
    """The versions that the programs of a host on PATH report."""
    return list(filter(None, (_reported(it, project) for it in _PROGRAMS.get(name, ()))))


def _reported(program: str, project: Project) -> str:
    path = shutil.which(program, path=project.environ.get("PATH", os.defpath))
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, "--version"],
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = _NUMBER.search(done.stdout)
    return found[0] if found else ""


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(it) for it in re.findall(r"\d+", version)[:4])
