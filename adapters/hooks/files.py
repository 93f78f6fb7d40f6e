"""What became of a file: its digest, and whether git has committed it."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.location import LocationError, find_git

GIT_SECONDS: Final = 2.0
LARGEST: Final = 64 * 1024 * 1024
"""Bytes; of a larger file, size and time are compared."""


def digest_of(path: str) -> str:
    """A text that changes with the content of a file."""
    try:
        if os.path.isdir(path):
            return "folder"
        status = os.stat(path)
        if status.st_size > LARGEST:
            return f"{status.st_size} {status.st_mtime_ns}"
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"


def uncommitted(paths: Sequence[str]) -> set[str]:
    """Those of the files that are not in git as they are now, as far as known."""
    return {path for path in paths if (root := _root_of(path)) is None or _is_dirty(root, path)}


def _is_dirty(root: Path, path: str) -> bool:
    """Whether git reports a change of the file, or cannot say."""
    command = [
        "git",
        "--no-optional-locks",
        "--literal-pathspecs",
        "-C",
        str(root),
        "status",
        "--porcelain",
        "--ignored",
        "-uall",
        "--",
    ]
    try:
        done = subprocess.run([*command, path], capture_output=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return True
    return done.returncode != 0 or done.stdout != b""


def _root_of(path: str) -> Path | None:
    try:
        git = find_git(Path(path).parent, set())
    except LocationError:
        return None
    return git.folder if git else None
