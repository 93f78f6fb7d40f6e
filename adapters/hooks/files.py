"""Whether git has committed a file."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.location import LocationError, find_git

GIT_SECONDS: Final = 2.0


def uncommitted(paths: Sequence[str]) -> set[str]:
    """The files whose content now is not committed in git, or for which git cannot be asked."""
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
