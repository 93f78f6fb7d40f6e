"""Whether git has committed a file."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.location import LocationError, find_git

GIT_SECONDS: Final = 2.0
MAX_ARGUMENTS: Final = 250
"""Paths of one call of git: the arguments of a process have at most 2 MB (execve(2))."""


def uncommitted(paths: Sequence[str]) -> set[str]:
    """The files whose content now is not committed in git, or for which git cannot be asked."""
    by_root: dict[Path | None, list[str]] = {}
    for path in paths:
        by_root.setdefault(_root_of(path), []).append(path)
    found = set(by_root.pop(None, []))
    for root, inside in by_root.items():
        for start in range(0, len(inside), MAX_ARGUMENTS):
            part = inside[start : start + MAX_ARGUMENTS]
            found |= _dirty(root, part) if root is not None else set()
    return found


def _dirty(root: Path, paths: Sequence[str]) -> set[str]:
    """Those for which git reports a change; all of them if it cannot say, or spells a name in another way."""
    command = ["git", "--no-optional-locks", "--literal-pathspecs", "-C", str(root), "status", "--porcelain", "-z"]
    command += ["--no-renames", "--ignored", "-uall", "--", *paths]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return set(paths)
    top, known, found = os.path.realpath(root), set(paths), set[str]()
    for line in filter(None, done.stdout.split(b"\0")):
        name = Path(top, os.fsdecode(line[3:]))  # after two letters and a space
        changed = known.intersection(map(str, (name, *name.parents)))
        if not changed:
            return known
        found |= changed
    return found


def _root_of(path: str) -> Path | None:
    try:
        git = find_git(Path(path).parent, set())
    except LocationError:
        return None
    return git.folder if git else None
