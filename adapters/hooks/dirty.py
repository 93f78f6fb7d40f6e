"""What git reports about a worktree: its dirty files, and whether a file is committed."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdlog.adapters.hooks.digests import MISSING, digest_of
from holdlog.adapters.operating_system.location import LocationError, find_git

GIT_SECONDS: Final = 2.0
HUNG_SECONDS: Final = 4.0
"""How long git is not asked again in a folder in which it took too long: a hook has no time for a second try."""
_TOP: Final = "--show-toplevel"
_FOLDERS: Final = ("rev-parse", "--path-format=absolute", _TOP, "--git-dir", "--git-common-dir")
MAX_ARGUMENTS: Final = 250
"""Paths of one call of git: the arguments of a process have at most 2 MB (execve(2))."""
_REFUSED: Final = (0, 128)
"""Exit codes of git: it was able to answer, or it refuses, as outside of a repository."""
_hung: dict[str, float] = {}
"""Folders in which git took too long, and until when it is not asked there."""


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


def repository_at(folder: str, options: Sequence[str] = ()) -> DirtyWorktree | None:
    """The repository in which git runs outside of every worktree: a bare one, or the folder `.git`. Raises
    GitFailedError."""
    folders = ask_git(folder, options, *(it for it in _FOLDERS if it != _TOP))
    lines = [os.path.realpath(os.fsdecode(it)) for it in (folders or b"").splitlines()]
    if len(lines) != len(_FOLDERS) - 3:
        return None
    git_folder, common = lines
    root = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return DirtyWorktree(root, git_folder, common, ())


def dirty_worktree(
    folder: str,
    options: Sequence[str] = (),
    pathspecs: Sequence[str] = (),
    ignored: bool = False,
    untracked: str = "normal",
    worktree: DirtyWorktree | None = None,
) -> DirtyWorktree | None:
    """The worktree as in `worktree_at`, which may be known, and its dirty files below `pathspecs`. `ignored`: also the
    files that git ignores. `untracked`: `no`, `normal` for folders in place of the files in them, or `all`. Raises
    GitFailedError."""
    worktree = worktree or worktree_at(folder, options)
    if worktree is None:
        return None
    words = ["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty"]
    words += [f"--untracked-files={untracked}", *(["--ignored=traditional"] if ignored else [])]
    listed = ask_git(folder, options, *words, "--", *pathspecs) or b""
    return worktree._replace(files=tuple(_parse_status(listed, worktree.root)))


def _parse_status(listed: bytes, root: str) -> Iterator[DirtyFile]:
    """The output of `git status --porcelain -z --no-renames`: two letters, a space and a name below `root`."""
    for entry in filter(None, listed.split(b"\0")):
        yield DirtyFile(os.path.join(root, os.fsdecode(entry[3:])), os.fsdecode(entry[:2]))


def committed(
    root: str,
    changes: Mapping[str, tuple[float, str | None]],
    revision: str = "HEAD",
    digest: Callable[[str], str] = digest_of,
) -> set[str]:
    """The files below `root` that were committed after their last change, whatever changed them since. `changes`: of
    dirty files, when, in seconds UTC, and the SHA-256 of the content then, None for a removed file. `revision`,
    `digest`: HEAD and the content of a file, as they are or were. Raises GitFailedError."""
    if not changes:
        return set()
    since = f"--since=@{int(min(at for at, _ in changes.values()))}"
    words = ["log", since, "-z", "--format=%x01%ct", "--name-only", "--no-renames", "--diff-merges=first-parent"]
    limits = [] if len(changes) > MAX_ARGUMENTS else [*changes]
    listed = ask_git(root, ["--literal-pathspecs"], *words, revision, "--", *limits)
    at, latest = 0, dict[str, int]()
    for token in (listed or b"").split(b"\0"):
        if token.startswith(b"\1"):
            at = int(token[1:])
        elif token:
            latest.setdefault(os.path.join(root, os.fsdecode(token.removeprefix(b"\n"))), at)
    found = set[str]()
    for path, (changed, sha256) in changes.items():
        is_later = latest.get(path, 0) > changed and digest(path) != (sha256 or MISSING)
        # Git knows seconds, and may have committed an earlier content that was staged: then the content decides.
        if is_later or (latest.get(path, 0) >= int(changed) and sha256_in(root, revision, path) == sha256):
            found.add(path)
    return found


def commits_since(root: str, at: int, paths: Sequence[str], former: str) -> dict[str, list[str]]:
    """The commits made since a time (microseconds UTC) that HEAD contains, with those of these files that each one
    changes: of a merge, only what differs from both sides. `former`: the commit HEAD before, empty if there was none.
    Raises GitFailedError."""
    words = ["log", f"--since=@{at // 1_000_000}", "-z", "--format=%x01%H %ct", "--name-only", "--no-renames"]
    words += ["--diff-merges=combined", "HEAD", *([f"^{former}"] if former else [])]
    found = dict[str, list[str]]()
    names = list[str]()
    for token in (ask_git(root, ["--literal-pathspecs"], *words, "--", *paths) or b"").split(b"\0"):
        if token.startswith(b"\1"):
            commit, _, made = token[1:].decode().partition(" ")
            names = list[str]()
            if int(made) >= at // 1_000_000:
                found[commit] = names
        elif token:
            names.append(os.path.join(root, os.fsdecode(token.removeprefix(b"\n"))))
    return found


def sha256_in(root: str, revision: str, path: str) -> str | None:
    """The SHA-256 of a file's content in a commit; None if it is not there. Raises GitFailedError."""
    import hashlib

    content = ask_git(root, (), "cat-file", "blob", f"{revision}:{os.path.relpath(path, root)}") if revision else None
    return None if content is None else hashlib.sha256(content).hexdigest()


def ask_git(folder: str, options: Sequence[str], *words: str, index: str = "") -> bytes | None:
    """The output of git in a folder, with global options; None if it refuses, as outside of a repository. `index`: in
    place of the worktree's. Raises GitFailedError."""
    environment = {**os.environ, "GIT_INDEX_FILE": index} if index else None
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *options, *words]
    if time.monotonic() < _hung.get(folder, 0):
        raise GitFailedError(f"git takes longer than {GIT_SECONDS:.0f} s")
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        _hung.clear()
        _hung[folder] = time.monotonic() + HUNG_SECONDS
        raise GitFailedError(f"git {words[0]} took longer than {GIT_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        if not os.path.isdir(folder):
            return None
        raise GitFailedError(f"git {words[0]} cannot be run ({type(error).__name__})") from None
    if done.returncode not in _REFUSED:
        raise GitFailedError(f"git {words[0]} failed (exit code {done.returncode})")
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
    known, found = set(paths), set[str]()
    for file in _parse_status(listed, os.path.realpath(root)):
        name = Path(file.path)
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
