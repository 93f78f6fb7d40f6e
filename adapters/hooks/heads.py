"""What a shell command took into git's index or into a commit, as HEAD and the index show it before and after.

Standard library only and quick to import: the hook's fast path uses it. Before the command, no process of git is
started: HEAD is read from its file, and the index is copied.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.hooks.digests import MISSING, stamp_of
from holdlog.adapters.hooks.dirty import ask_git, commits_since, sha256_in
from holdlog.adapters.hooks.notes import BeforeCommand, HookFiles, WatchedFile, WorktreeHead
from holdlog.adapters.operating_system.location import GitFolders, LocationError, find_git

MAX_INDEX: Final = 64 * 1024 * 1024
"""Bytes of an index that is copied."""
MAX_LINKS: Final = 5
"""Symbolic refs that lead to each other, as in git."""
_ID: Final = (40, 64)
"""Digits of the id of a commit."""


def worktrees_of(folders: Collection[str]) -> dict[str, GitFolders]:
    """The worktrees around these folders, by their roots, without asking git."""
    found = dict[str, GitFolders]()
    for folder in folders:
        with suppress(LocationError, OSError):
            if (git := find_git(Path(folder), set())) is not None:
                found[os.path.realpath(git.folder)] = git
    return found


def head_of(git: GitFolders) -> WorktreeHead:
    """HEAD and index as they are, without a copy."""
    return WorktreeHead(_commit_of(git), stamp_of(os.path.join(git.git_folder, "index")))


def with_copy(head: WorktreeHead, git: GitFolders, files: HookFiles, name: str) -> WorktreeHead:
    """The head with a copy of the index under a name; without one if it is too large. Raises OSError."""
    try:
        with open(os.path.join(git.git_folder, "index"), "rb") as file:
            content = file.read(MAX_INDEX + 1)
    except OSError:
        return head
    if len(content) > MAX_INDEX:
        return head
    files.replace_bytes(name, content)
    return head._replace(copy=name)


def _commit_of(git: GitFolders) -> str:
    """The commit HEAD (gitrepository-layout(5)); empty if there is none, or if only git can read it (reftable)."""
    text = _text(git.git_folder / "HEAD")
    for _ in range(MAX_LINKS):
        if not text.startswith("ref: "):
            break
        name = text.removeprefix("ref: ")
        text = _text(git.git_folder / name) or _text(git.common / name) or _packed(git.common, name)
    return text if len(text) in _ID else ""


def _packed(common: Path, name: str) -> str:
    lines = (line.split(" ") for line in _text(common / "packed-refs").splitlines() if line.endswith(f" {name}"))
    return next((it[0] for it in lines if it[1:] == [name]), "")


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""


def taken_in(before: BeforeCommand, files: HookFiles, session: str) -> dict[str, str]:
    """The watched files whose uncommitted content got into git since then, by path: `committed`, or `staged` into the
    index. `session`: of the agent; commits that other sessions made do not count. Raises GitFailedError."""
    found = dict[str, str]()
    for root, git in worktrees_of(before.heads).items():
        head, now = before.heads[root], head_of(git)
        if (now.commit, now.stamp) == (head.commit, head.stamp):
            continue
        watched = {path: file for path, file in before.files.items() if path.startswith(f"{root}/")}
        if now.stamp != head.stamp and head.copy:
            # Who stages something itself meanwhile may have staged these.
            staging = {it for it in {file.session for file in watched.values()} if files.read(it).staged > before.at}
            paths = [path for path, file in watched.items() if file.session not in staging]
            taken = _staged(root, files, head.copy, paths) if paths else set()
            found |= {path: "staged" for path in sorted(taken) if _was_dirty(root, head, path, watched)}
        if now.commit != head.commit and now.commit and watched:
            foreign = {it for other in files.all_sessions() if other != session for it in files.read(other).commits}
            commits = commits_since(root, before.at, list(watched), head.commit)
            taken = {path for commit, paths in commits.items() if commit not in foreign for path in paths}
            changed = [
                it for it in sorted(taken) if sha256_in(root, now.commit, it) != sha256_in(root, head.commit, it)
            ]
            found |= {path: "committed" for path in changed if _was_dirty(root, head, path, watched)}
    return found


def _was_dirty(root: str, head: WorktreeHead, path: str, watched: Mapping[str, WatchedFile]) -> bool:
    """Whether a file differed from the commit HEAD before the command."""
    return path in watched and (sha256_in(root, head.commit, path) or MISSING) != watched[path].digest


def _staged(root: str, files: HookFiles, copy: str, paths: Sequence[str]) -> set[str]:
    """Those of the files whose entry in the index is another one than in its copy, and differs from HEAD."""
    words = ("ls-files", "--stage", "-z", "--full-name", "--", *paths)
    former = ask_git(root, ("--literal-pathspecs",), *words, index=str(files.folder / copy))
    entries = {*(ask_git(root, ("--literal-pathspecs",), *words) or b"").split(b"\0")}
    names = {it.partition(b"\t")[2] for it in entries - {*(former or b"").split(b"\0")}}
    names |= {it.partition(b"\t")[2] for it in {*(former or b"").split(b"\0")} - entries}
    if not names:
        return set()
    words = ("diff", "--cached", "--name-only", "-z", "--no-renames", "--", *paths)
    listed = (ask_git(root, ("--literal-pathspecs",), *words) or b"").split(b"\0")
    return {os.path.join(root, os.fsdecode(it)) for it in listed if it in names}
