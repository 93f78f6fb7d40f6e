"""What hooks know of files: what a call names, what an agent has seen, and what git has. Quick to import."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import file_digest
from typing import Final, NamedTuple

LARGEST: Final = 64 * 1024 * 1024
"""Bytes; of a larger file, size and time stand for its content."""
MISSING: Final = "missing"


class File(NamedTuple):
    """A file that the call names. `mode`: as of a rule of the policy; `source`: where that is written; `below`:
    the path below a folder that has this rule."""

    path: str
    resource: str
    mode: str = "block"
    source: str = ""
    below: str = ""


class Known(NamedTuple):
    """A row of the table `files`."""

    resource: str
    path: str
    digest: str
    at: int
    made: int


def digest_of(path: str) -> str:
    """A text that changes with the content of a file: its SHA-256 in hexadecimal, or another text if it is missing, too
    large, or not a regular file, as opening a pipe would block."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "folder" if stat.S_ISDIR(status.st_mode) else "special"
        if status.st_size > LARGEST:
            return f"{status.st_size} {status.st_mtime_ns}"
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return MISSING


def list_uncommitted(root: str, paths: Sequence[str]) -> set[str]:
    """Those of these files that git has not committed as they are; all where that is not known."""
    if not paths:
        return set()
    from holdlog.adapters.hooks.dirty import GitFailedError, list_dirty  # slow to import

    with suppress(GitFailedError):
        return {os.path.realpath(it.path) for it in list_dirty(root, root, ["--literal-pathspecs"], paths)}
    return set(paths)
