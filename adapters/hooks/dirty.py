"""What git reports about a worktree: its dirty files, and whether a file is committed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.location import LocationError, find_git

GIT_SECONDS: Final = 2.0
_FOLDERS: Final = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
MAX_ARGUMENTS: Final = 250
"""Paths of one call of git: the arguments of a process have at most 2 MB (execve(2))."""


class GitFailedError(OSError):
    """Git could not be asked. The message is one line."""


class DirtyFile(NamedTuple):
    """A file that differs from the commit HEAD or from the index, or that git does not know. `path`: absolute; it ends
    with a slash for a folder without any tracked file. `status`: two letters of `git status --porcelain`."""

    path: str
    status: str


class DirtyWorktree(NamedTuple):
    """A worktree and its dirty files. `root`, `git_folder`, `common`: as in GitFolders, resolved."""

    root: str
    git_folder: str
    common: str
    files: tuple[DirtyFile, ...]


def worktree_at(folder: str, options: Sequence[str] = ()) -> DirtyWorktree | None:
    """The worktree in which git runs in `folder` with these global options, without its dirty files; None outside of
    every worktree. Raises GitFailedError."""
    folders = ask_git(folder, options, *_FOLDERS)
    if folders is None:
        return None
    lines = [os.path.realpath(os.fsdecode(it)) for it in folders.splitlines()]
    if len(lines) != len(_FOLDERS) - 2:
        raise GitFailedError("git is older than 2.31, or a folder has a line break in its name")
    root, git_folder, common = lines
    return DirtyWorktree(root, git_folder, common, ())


def dirty_worktree(
    folder: str,
    options: Sequence[str] = (),
    pathspecs: Sequence[str] = (),
    ignored: bool = False,
    untracked: str = "normal",
) -> DirtyWorktree | None:
    """The worktree as in `worktree_at`, and its dirty files below `pathspecs`. `ignored`: also the files that git
    ignores. `untracked`: `no`, `normal` for folders in place of the files in them, or `all`. Raises GitFailedError."""
    worktree = worktree_at(folder, options)
    if worktree is None:
        return None
    words = ["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty"]
    words += [f"--untracked-files={untracked}", *(["--ignored=traditional"] if ignored else [])]
    entries = filter(None, (ask_git(folder, options, *words, "--", *pathspecs) or b"").split(b"\0"))
    files = (DirtyFile(os.path.join(worktree.root, os.fsdecode(it[3:])), os.fsdecode(it[:2])) for it in entries)
    return worktree._replace(files=tuple(files))


def committed(root: str, changes: Mapping[str, tuple[float, str | None]]) -> set[str]:
    """The files below `root` that were committed after their last change, whatever changed them since. `changes`: when,
    in seconds UTC, and the SHA-256 of the content then, None for a removed file. Raises GitFailedError."""
    if not changes:
        return set()
    since = f"--since=@{int(min(at for at, _ in changes.values()))}"
    words = ["log", since, "-z", "--format=%x01%ct", "--name-only", "--no-renames", "--diff-merges=first-parent"]
    listed = ask_git(root, ["--literal-pathspecs"], *words, "--", *changes)
    at, latest = 0, dict[str, int]()
    for token in (listed or b"").split(b"\0"):
        if token.startswith(b"\1"):
            at = int(token[1:])
        elif token:
            latest.setdefault(os.path.join(root, os.fsdecode(token.removeprefix(b"\n"))), at)
    # Git knows seconds: in the second of the change, its content decides.
    return {
        path
        for path, (changed, sha256) in changes.items()
        if latest.get(path, 0) > changed or (latest.get(path) == int(changed) and _is_in_head(root, path, sha256))
    }


def _is_in_head(root: str, path: str, sha256: str | None) -> bool:
    import hashlib

    content = ask_git(root, (), "cat-file", "blob", f"HEAD:{os.path.relpath(path, root)}")
    return (None if content is None else hashlib.sha256(content).hexdigest()) == sha256


def ask_git(folder: str, options: Sequence[str], *words: str) -> bytes | None:
    """The output of git in a folder, with global options; None if it refuses, as outside of a repository. Raises
    GitFailedError."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *options, *words]
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise GitFailedError(f"git {words[0]} took longer than {GIT_SECONDS:.0f} s") from None
    except (FileNotFoundError, NotADirectoryError):
        return None  # there is no such folder, or no git
    except (OSError, ValueError) as error:
        raise GitFailedError(f"git {words[0]} cannot be run ({type(error).__name__})") from None
    return done.stdout if done.returncode == 0 else None


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
    words = ("status", "--porcelain", "-z", "--no-renames", "--ignored", "-uall", "--", *paths)
    try:
        listed = ask_git(str(root), ("--literal-pathspecs",), *words)
    except GitFailedError:
        listed = None
    if listed is None:
        return set(paths)
    top, known, found = os.path.realpath(root), set(paths), set[str]()
    for line in filter(None, listed.split(b"\0")):
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
