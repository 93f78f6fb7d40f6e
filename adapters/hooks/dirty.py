"""What git says about a worktree: its dirty files, its stash, and whether a file is committed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from holdlog.adapters.hooks.files import MISSING, hash_content
from holdlog.adapters.operating_system.location import Repository

GIT_SECONDS: Final = 2.0
"""For one command of git: a host ends a hook after 5 s."""
MAX_ARGUMENTS: Final = 250
"""Paths of one call of git: the arguments of a process have at most 2 MB (execve(2))."""
_NORMAL_CODES: Final = (0, 128)
"""Exit codes of git: success, and a refusal, as outside of a repository."""
_slow_folders: set[str] = set()
"""Folders in which git took longer than GIT_SECONDS: this process does not run it there again."""


class GitFailedError(OSError):
    """Git failed or did not end in time. The message is one line."""


class DirtyFile(NamedTuple):
    """A file that differs from the commit HEAD or from the index, or that git does not know. `path`: absolute; it ends
    with a slash for an ignored folder. `status`: two letters of `git status --porcelain`."""

    path: str
    status: str


def run_git(folder: str, options: Sequence[str], *words: str) -> bytes | None:
    """Run git in a folder with global options. Returns its output, None if it refuses. Raises GitFailedError."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *options, *words]
    if folder in _slow_folders:
        raise GitFailedError(f"git takes longer than {GIT_SECONDS:.0f} s")
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        _slow_folders.add(folder)
        raise GitFailedError(f"git {words[0]} took longer than {GIT_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        if not os.path.isdir(folder):
            return None
        raise GitFailedError(f"git {words[0]} cannot be run ({type(error).__name__})") from None
    if done.returncode not in _NORMAL_CODES:
        raise GitFailedError(f"git {words[0]} failed (exit code {done.returncode})")
    return done.stdout if done.returncode == 0 else None


def locate(folder: str, options: Sequence[str] = ()) -> Repository | None:
    """The worktree in which git would run with these global options. Outside of every worktree: the repository; its
    `folder` is then that of its main worktree, or that of a bare repository. Raises GitFailedError."""
    words = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    for more in (("--show-toplevel",), ()):
        output = run_git(folder, options, *words, *more)
        if output is not None:
            lines = [os.path.realpath(os.fsdecode(line)) for line in output.splitlines()]
            if len(lines) != 2 + len(more):
                raise GitFailedError("git is older than 2.31, or a folder has a line break in its name")
            common = lines[1]
            is_inside = os.path.basename(common) == ".git"
            return Repository(lines[2] if more else os.path.dirname(common) if is_inside else common, lines[0], common)
    return None


def list_dirty(
    folder: str, root: str, options: Sequence[str] = (), pathspecs: Sequence[str] = (), untracked: str = "all"
) -> list[DirtyFile]:
    """The dirty files in the worktree with this root, below `pathspecs`. `untracked`: `no`; `normal`, which lists new
    folders instead of their files; `all`; or `ignored`, which adds those that git ignores. Raises GitFailedError."""
    words = ["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty"]
    words.append(f"--untracked-files={'all' if untracked == 'ignored' else untracked}")
    words += ["--ignored=matching"] * (untracked == "ignored")
    listed = run_git(folder, options, *words, "--", *pathspecs) or b""
    entries = (entry for entry in listed.split(b"\0") if entry)  # two letters, a space and a name
    return [DirtyFile(os.path.join(root, os.fsdecode(it[3:])), os.fsdecode(it[:2])) for it in entries]


def list_committed(root: str, changes: Mapping[str, tuple[float, str | None]]) -> set[str]:
    """The files below `root` that were committed after their last change. `changes`: for each path, the time of its
    last change, in seconds since 1970, and the SHA-256 of the content then, None for a removed file. Raises
    GitFailedError."""
    if not changes:
        return set()
    since = f"--since=@{int(min(at for at, _ in changes.values()))}"
    words = ["log", since, "-z", "--format=%x01%ct", "--name-only", "--no-renames", "--diff-merges=first-parent"]
    limits = [] if len(changes) > MAX_ARGUMENTS else [*changes]
    at, latest = 0, dict[str, int]()
    for token in (run_git(root, ["--literal-pathspecs"], *words, "HEAD", "--", *limits) or b"").split(b"\0"):
        if token.startswith(b"\1"):
            at = int(token[1:])
        elif token:
            latest.setdefault(os.path.join(root, os.fsdecode(token.removeprefix(b"\n"))), at)
    committed = set[str]()
    for path, (changed, digest) in changes.items():
        is_later = latest.get(path, 0) > changed and hash_content(path) != (digest or MISSING)
        # Git stores whole seconds, and may have committed earlier content that was staged: then the content decides.
        if is_later or (latest.get(path, 0) >= int(changed) and _digest_committed(root, path) == digest):
            committed.add(path)
    return committed


def _digest_committed(root: str, path: str) -> str | None:
    content = run_git(root, (), "cat-file", "blob", f"HEAD:{os.path.relpath(path, root)}")
    return None if content is None else sha256(content).hexdigest()


def read_head(root: str) -> str:
    """The commit HEAD; empty if there is none. Raises GitFailedError."""
    return (run_git(root, (), "rev-parse", "--verify", "--quiet", "HEAD") or b"").decode().strip()


def read_stash(common: str) -> list[tuple[str, float]]:
    """The stash entries of a repository, the newest first: commit, and its time in seconds since 1970. `common`: the
    folder that all worktrees share."""
    try:
        with open(os.path.join(common, "logs", "refs", "stash"), "rb") as file:
            log = os.fsdecode(file.read())
    except OSError:
        return []
    return list_stash(log)


def list_stash(log: str) -> list[tuple[str, float]]:
    """Commit and time of `stash@{0}`, `stash@{1}` …, from the text of `logs/refs/stash` in git's common folder."""
    lines = [line for line in reversed(log.split("\n")) if line.count(" ") > 1]
    times = [["", *line.partition("\t")[0].split(" ")][-2] for line in lines]
    commits = (line.split(" ", 2)[1] for line in lines)
    return [(commit, float(time) if time.isdecimal() else 0.0) for commit, time in zip(commits, times, strict=True)]


def parse_config(output: bytes) -> dict[str, str]:
    """The settings in the output of `git config --list -z`, by lower-case name. The last value of a name counts."""
    entries = (entry.partition("\n") for entry in os.fsdecode(output).split("\0") if entry)
    return {name.lower(): value if equals else "true" for name, equals, value in entries}
