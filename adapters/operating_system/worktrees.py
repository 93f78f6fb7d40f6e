"""The worktrees of a git repository, by reading files only (gitrepository-layout(5), git-worktree(1))."""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from holdlog.adapters.operating_system.location import (
    GitFolders,
    LocationError,
    find_git,
    git_folders,
    pointer_in,
    resolved,
)

MAX_CONFIG_BYTES = 1024 * 1024
"""How much of a repository's `config` is read to determine whether it is bare."""

_SETTING = re.compile(r'\s*(?:\[([^]]*)\])?\s*(?:([A-Za-z][\w-]*)\s*(?:=\s*("[^"]*"|[^#;]*))?)?')
"""A line of a git configuration: section, name and value, each of which may be missing (git-config(1), Syntax)."""

Stamp = tuple[int, int, int] | None
"""A value that changes when a folder gains or loses an entry; None if there is no folder."""


class Linked(NamedTuple):
    """The linked worktrees: name -> root. Valid as long as every folder in `seen` has its stamp."""

    roots: dict[str, Path]
    seen: dict[str, Stamp]


class Repository(NamedTuple):
    """A git repository as seen from one of its worktrees (`here`). `main`: root of the main worktree, None if bare."""

    here: GitFolders
    main: Path | None

    def linked(self) -> Linked:
        """Every linked worktree, by the name of its folder in `<common>/worktrees/`, without broken ones.

        The current worktree counts at its actual location, even if git recorded another one.
        """
        below = self.here.common / "worktrees"
        seen = {str(below): stamp(below)}
        roots = {}
        for entry in _entries(below):
            before = stamp(entry)
            root = self.here.folder if entry == self.here.git_folder else _root_of(entry)
            if root is None:
                seen[str(entry)] = before  # git may still be creating it
            else:
                roots[entry.name] = root
        return Linked(roots, seen)


def find_repository(start: Path, avoided: set[Path]) -> Repository | None:
    """The repository that contains `start`; None if there is none or it is broken."""
    try:
        here = find_git(start, avoided)
    except LocationError:
        return None
    return Repository(here, _main(here)) if here else None


def stamp(folder: Path | str) -> Stamp:
    """The stamp of a folder: three facts, because file system clocks are coarse and some file systems keep no link
    count."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_nlink


def _entries(below: Path) -> list[Path]:
    try:
        return sorted(below.iterdir())
    except OSError:
        return []


def _root_of(entry: Path) -> Path | None:
    """Root of the worktree that git records in `entry`, if the worktree points back to it."""
    try:
        root = resolved((entry / pointer_in(entry / "gitdir")).parent)
        folders = git_folders(root)
    except LocationError:
        return None
    return root if folders and folders.git_folder == entry else None


def _main(here: GitFolders) -> Path | None:
    """Find the main worktree as git does: `core.worktree`, none if `core.bare`, else the folder that contains `.git`.

    A git folder located elsewhere without `core.worktree` is known to its main worktree only.
    """
    core = _core(here.common)
    try:
        named = resolved(here.common / core["worktree"]) if core.get("worktree") else None
    except LocationError:
        named = None
    if named is not None and named.is_dir():
        return named
    if core.get("bare", "false").lower() in ("", "true", "yes", "on", "1"):
        return None
    if here.common.name == ".git":
        return here.common.parent
    return here.folder if here.git_folder == here.common else None


def _core(common: Path) -> dict[str, str]:
    """The settings of section `core`; the later file overrides the earlier; `include` is not followed."""
    settings: dict[str, str] = {}
    section = ""
    for line in "\n".join(_read(common / file) for file in ("config", "config.worktree")).split("\n"):
        match = _SETTING.match(line)
        if match and match[1] is not None:
            section = match[1].strip().lower()
        if match and match[2] and section == "core":
            settings[match[2].lower()] = (match[3] or "").strip().strip('"').replace("\\\\", "\\")
    return settings


def _read(file: Path) -> str:
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return ""
        with file.open("rb") as opened:
            return os.fsdecode(opened.read(MAX_CONFIG_BYTES))
    except OSError:
        return ""
