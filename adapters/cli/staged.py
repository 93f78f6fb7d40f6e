"""What `holdlog check` asks of git. Names are bytes: git allows all but NUL."""

import os
import subprocess
from collections.abc import Sequence
from typing import Final

from holdlog.domain.refusals import InvalidError

TRAILER: Final = "Holdlog-Claim"

_STAGED: Final = (
    *("diff", "--cached", "--name-only", "-z", "--no-renames"),  # without renames: both names of each
    *("--no-relative", "--no-ext-diff", "--ignore-submodules=dirty"),  # whatever the configuration says
)


def paths() -> list[tuple[str, str]]:
    """The files that the next commit changes, as the path to show and the absolute path. Raises InvalidError."""
    try:
        top = _git("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except InvalidError as error:
        raise InvalidError(f"{error}; run this in a git repository, or name the files: holdlog check PATH") from None
    names = _git(*_STAGED).split(b"\0")
    return [(readable(name), os.fsdecode(top + b"/" + name)) for name in dict.fromkeys(names) if name]


def readable(name: bytes) -> str:
    """A file name as text; bytes that are not UTF-8 are escaped."""
    return name.decode(errors="backslashreplace")


def add_trailers(message: str, positions: Sequence[int]) -> None:
    """Add a trailer for each position of the log to a file with a commit message, once. Raises InvalidError."""
    if positions:
        trailers = [f"--trailer={TRAILER}: {position}" for position in positions]
        _git("interpret-trailers", "--in-place", "--if-exists=addIfDifferent", *trailers, os.path.abspath(message))


def _git(*words: str) -> bytes:
    """The output of a git command. Raises InvalidError."""
    try:
        # The index that is about to be committed may be a temporary one, which git names in the environment.
        found = subprocess.run(
            ["git", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except OSError as error:
        raise InvalidError(f"git: cannot be run ({error.strerror})") from None
    if found.returncode != 0:
        lines = readable(found.stderr).splitlines() or [f"exit code {found.returncode}"]
        raise InvalidError(f"git {words[0]}: {lines[0]}")
    return found.stdout
