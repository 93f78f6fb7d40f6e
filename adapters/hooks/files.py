"""Files as hooks see them: those that a call names, what an agent last read or wrote, what git has committed, and which
files guard the agents of a worktree. Quick to import."""

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import file_digest
from typing import Final, NamedTuple

from holdlog.adapters.hooks.describe import shorten

MAX_HASHED_BYTES: Final = 64 * 1024 * 1024
"""A larger file is compared by its size and time instead of its content."""
MISSING: Final = "missing"
_HOMES: Final = ("CLAUDE_CONFIG_DIR", "CODEX_HOME")
"""Variables that name folders of settings."""
_SETTINGS: Final = (
    r"/(?:\.claude(?:/settings[^/]*\.json)?|\.cursor(?:/hooks\.json)?|\.codex(?:/(?:hooks\.json|config\.toml))?"
    r"|(?:\.opencode|\.config/opencode)(?:/plugins?(?:/holdlog\.js)?)?"
    r"|\.git(?:/modules/.+)?/hooks(?:/[^/]+)?)$"
)
"""The files that run hooks, and the folders that contain them."""
_GIT: Final = r"/\.git(?:/(?:modules|worktrees|refs|logs|objects|holdlog)(?:/.+)?|/(?:HEAD|index|config|packed-refs))?$"
"""The data of git, and the store."""
_ORDINARY: Final = r"\.lock$|/\.git/(?:modules|worktrees)/.+(?:_MSG|_EDITMSG|_HEAD|/info/.+|/rebase-.+)$"
"""Files there that programs leave behind, or that people edit."""


class File(NamedTuple):
    """A file that the call names. `mode`: from the rule of the policy for it; `below`: for a folder, the path below it
    to which this rule applies."""

    path: str
    resource: str
    mode: str = "block"
    below: str = ""


class Known(NamedTuple):
    """A row of the table `files`: a file as an agent last read or wrote it. `digest`: `hash_content`. `at`: then, in
    microseconds since 1970. `grant`: version of the claim that a hook acquired for it, 0 if none."""

    resource: str
    path: str
    digest: str
    at: int
    grant: int


def hash_content(path: str) -> str:
    """A text that changes with the content of a file: its SHA-256 in hexadecimal. If the file is missing, too large, or
    not a regular file (opening a pipe would block): a text of another length."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "folder" if stat.S_ISDIR(status.st_mode) else "special"
        if status.st_size > MAX_HASHED_BYTES:
            return f"{status.st_size} {status.st_mtime_ns}"
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return MISSING


def list_uncommitted(root: str, paths: Sequence[str]) -> set[str]:
    """Which of these files differ from what git has committed; all if that cannot be found out."""
    if not paths:
        return set()
    from holdlog.adapters.hooks.dirty import GitFailedError, list_dirty  # slow to import

    with suppress(GitFailedError):
        return {os.path.realpath(it.path) for it in list_dirty(root, root, ["--literal-pathspecs"], paths)}
    return set(paths)


def find_settings(paths: Sequence[str]) -> str | None:
    """The first of these absolute paths that is a file that guards agents, or a folder that contains one; else None."""
    named = {os.path.realpath(os.environ[it]) for it in _HOMES if os.environ.get(it)}
    home = os.path.realpath(os.path.expanduser("~"))
    for path in paths:
        for real in dict.fromkeys((path.rstrip("/"), os.path.realpath(path))):
            match = re.search(_SETTINGS, real) or (None if re.search(_ORDINARY, real) else re.search(_GIT, real))
            if match is not None and _is_project(real[: match.start()], home):
                return path
            if os.path.dirname(real) in named and real.endswith((".json", "config.toml")):
                return path
    return None


def describe_settings(path: str, folder: str) -> str:
    """A text that asks a person to agree to a change of such a file. `folder`: where the agent works."""
    real = os.path.realpath(path)
    runs = re.search(_SETTINGS, real) is not None or real.endswith((".json", "config.toml"))
    what = "runs the hooks that guard files" if runs else "belongs to the data of git and holdlog"
    return f"holdlog: {shorten(os.path.relpath(path, folder))} {what}, so a person must agree to this change."


def _is_project(folder: str, home: str) -> bool:
    return os.path.realpath(folder) == home or os.path.lexists(os.path.join(folder, ".git"))
