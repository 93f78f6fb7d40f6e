"""Git repositories and their worktrees, by reading files only: gitrepository-layout(5), git-worktree(1)."""

import os
from typing import Final, NamedTuple

MAX_POINTER: Final = 64 * 1024
"""Bytes of a file in which git stores a path or a reference."""


class Worktree(NamedTuple):
    """`root`: of the worktree; `git_folder`: its own git folder; `common`: the one that all worktrees of the repository
    share. All are absolute, without links."""

    root: str
    git_folder: str
    common: str


def find_top(folder: str) -> str | None:
    """The nearest folder upwards that has a `.git`, as the file system shows it."""
    while not os.path.lexists(f"{folder}/.git"):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def find_worktree(folder: str) -> Worktree | None:
    """The innermost worktree around a folder. A `.git` that leads nowhere is passed over, as by git."""
    folder = os.path.realpath(folder)
    while (top := find_top(folder)) is not None:
        if (worktree := read_worktree(top)) is not None:
            return worktree
        folder = os.path.dirname(top)
        if folder == top:
            break
    return None


def read_worktree(root: str) -> Worktree | None:
    """The worktree whose `.git` is in a folder; None if there is none, or it is broken."""
    entry = f"{root}/.git"
    git_folder = entry
    if not os.path.isdir(entry):
        pointer = read_pointer(entry)
        if not pointer.startswith("gitdir: "):
            return None
        git_folder = os.path.join(root, pointer.removeprefix("gitdir: "))
    common = os.path.realpath(os.path.join(git_folder, read_pointer(f"{git_folder}/commondir")))
    if not (os.path.lexists(f"{git_folder}/HEAD") and os.path.isdir(f"{common}/objects")):
        return None
    return Worktree(os.path.realpath(root), os.path.realpath(git_folder), common)


def list_worktrees(common: str) -> list[Worktree]:
    """All worktrees of a repository that exist, the main one first."""
    roots = [os.path.dirname(common)] if os.path.basename(common) == ".git" else []
    try:
        names = sorted(os.listdir(f"{common}/worktrees"))
    except OSError:
        names = []
    for name in names:
        folder = f"{common}/worktrees/{name}"
        roots.append(os.path.dirname(os.path.join(folder, read_pointer(f"{folder}/gitdir"))))
    worktrees = (read_worktree(root) for root in roots if root)
    return [worktree for worktree in worktrees if worktree is not None and worktree.common == common]


def read_pointer(path: str) -> str:
    """The line of a file in which git stores a path or a reference; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(MAX_POINTER)).rstrip("\r\n")
    except OSError:
        return ""
