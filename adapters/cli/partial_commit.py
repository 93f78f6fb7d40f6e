"""Commits some files of a worktree with git, and leaves what others have staged as it is."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.hooks.dirty import DirtyWorktree

LOCK_SECONDS: Final = 10.0
"""How long another git process of the worktree is waited for: it keeps the index locked while its hooks run."""
_IN_PROGRESS: Final = {
    "MERGE_HEAD": ("a merge", "git merge"),
    "rebase-merge": ("a rebase", "git rebase"),
    "rebase-apply/applying": ("git am", "git am"),
    "rebase-apply": ("a rebase", "git rebase"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick"),
    "REVERT_HEAD": ("a revert", "git revert"),
}
"""Files of git during an operation in which it cannot commit single files, and the command that ends it."""
_FROM_INPUT: Final = ("--pathspec-from-file=-", "--pathspec-file-nul")


class CommitFailedError(Exception):
    """Nothing was committed. The message is one line; `output`: of git and its hooks."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class GitCommit(NamedTuple):
    """A commit. `id`: its hash; `branch`: empty if HEAD is detached; `output`: of git and its hooks."""

    id: str
    branch: str
    output: str


def require_no_operation(worktree: DirtyWorktree) -> None:
    """Raise CommitFailedError during a merge or a rebase: git then commits all or nothing."""
    for name, (operation, command) in _IN_PROGRESS.items():
        if os.path.lexists(os.path.join(worktree.git_folder, name)):
            raise CommitFailedError(
                f"{operation} is in progress, in which git cannot commit single files; first finish it ({command}"
                f" --continue) or end it ({command} --abort)"
            )


def commit_only(worktree: DirtyWorktree, paths: Sequence[str], messages: Sequence[str]) -> GitCommit:
    """Commit these absolute paths as they are in the worktree. What is staged of other paths stays staged, also if it
    fails. Raises CommitFailedError.

    Git itself builds the commit in a separate index, in which its hooks run. It must know new files for that: they
    are added without their content, and removed again if nothing is committed."""
    before, untracked = _head(worktree), {it.path for it in worktree.files if it.status == "??"}
    new = [path for path in paths if path in untracked]
    if new:
        _require(_git(worktree, "add", "--intent-to-add", *_FROM_INPUT, paths=new))
    is_done = False
    try:
        message = [word for text in messages for word in ("-m", text)]
        done = _git(worktree, "commit", "--quiet", "--only", *message, *_FROM_INPUT, paths=paths)
        is_done = done.returncode == 0 or _head(worktree) != before
        if not is_done:
            _require(done)
        return GitCommit(_head(worktree), _branch(worktree), _output(done))
    finally:
        if new and not is_done:
            _forget(worktree, new)


def _run_unlocked(worktree: DirtyWorktree, words: Sequence[str], given: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Run a git command that writes the index, when no other git process does. Raises CommitFailedError."""
    deadline = time.monotonic() + LOCK_SECONDS
    lock = Path(worktree.git_folder, "index.lock")
    while True:
        if not lock.exists():
            done = _run(worktree, words, given)
            if done.returncode == 0 or b"index.lock" not in done.stderr:
                return done
        if time.monotonic() > deadline:
            raise CommitFailedError(f"another git process uses the index; if none runs, remove {lock}")
        time.sleep(0.05)


def _forget(worktree: DirtyWorktree, paths: Sequence[str]) -> None:
    """Remove entries from the index that were not there before."""
    names = b"\0".join(os.fsencode(os.path.relpath(path, worktree.root)) for path in paths)
    with suppress(CommitFailedError):
        _run_unlocked(worktree, ["update-index", "--force-remove", "-z", "--stdin"], names)


def _git(worktree: DirtyWorktree, *words: str, paths: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run a git command for literal paths. The option --literal-pathspecs would apply to the commands of hooks, too."""
    specs = (b":(top,literal)" + os.fsencode(os.path.relpath(path, worktree.root)) for path in paths)
    return _run_unlocked(worktree, words, b"\0".join(specs))


def _run(worktree: DirtyWorktree, words: Sequence[str], given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["git", *words], cwd=worktree.root, input=given, capture_output=True, check=False)
    except OSError as error:
        raise CommitFailedError(f"git cannot be run ({error.strerror})") from None


def _require(done: "subprocess.CompletedProcess[bytes]") -> None:
    """Raise CommitFailedError if git failed."""
    if done.returncode != 0:
        lines = [line for line in _output(done).splitlines() if line.strip()]
        problem = next((line for line in lines if line.startswith(("fatal: ", "error: "))), "").partition(": ")[2]
        raise CommitFailedError(
            problem or f"git ended with exit code {done.returncode}; a hook may have refused it", _output(done)
        )


def _output(done: "subprocess.CompletedProcess[bytes]") -> str:
    return (done.stdout + done.stderr).decode(errors="backslashreplace")


def _head(worktree: DirtyWorktree) -> str:
    return _output(_run(worktree, ["rev-parse", "--verify", "--quiet", "HEAD"])).strip()


def _branch(worktree: DirtyWorktree) -> str:
    return _output(_run(worktree, ["symbolic-ref", "--quiet", "--short", "HEAD"])).strip()
