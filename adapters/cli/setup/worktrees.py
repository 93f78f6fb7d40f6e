"""The worktrees of the repository in which init runs, and whether the hooks of a host guard them."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdlog.adapters.cli.setup.changes import Skipped, git_output, read_text
from holdlog.adapters.cli.setup.json_tree import parse
from holdlog.adapters.hooks.worktrees import GUARD_FILES, Guard, guard, parse_worktrees
from holdlog.adapters.operating_system.location import GitFolders, LocationError, find_git, git_folders
from holdlog.adapters.operating_system.worktrees import find_repository


def worktrees_of(root: Path) -> tuple[list[Path], list[Skipped]]:
    """The worktrees that can be set up, `root` first and the main one before others, and a line about each other one.
    Outside of git: `root` alone."""
    try:
        here = find_git(root, set())
    except LocationError:
        here = None
    if here is None:
        return [root], []
    found, others = [root], []
    for number, (path, problem) in enumerate(parse_worktrees(_listing(root))):
        folder = Path(path)
        if number == 0 and not problem and not _is_of(here, folder):  # of a submodule, git names another folder
            repository = find_repository(root, set())
            folder = (repository and repository.main) or root
        problem = problem or _problem(here, folder)
        if problem:
            others.append(Skipped(folder, problem))
        elif os.path.realpath(folder) != os.path.realpath(root):
            found.append(folder)
    return found, [*others, *_submodules(root)]


def guard_in(host: str, root: Path, home: Path) -> Guard:
    """What the hooks of a host guard in a worktree."""
    names = GUARD_FILES.get(host, ())
    return guard(host, [_content(home / it[2:] if it.startswith("~/") else root / it) for it in names])


def why_unguarded(host: str, root: Path, home: Path, environ: Mapping[str, str]) -> str:
    """Why agents of a host are not guarded in a worktree; empty if they are."""
    found = guard_in(host, root, home)
    if found.missing:
        covered = f"no hook runs before {' and '.join(found.missing)}" if found.programs else "there are no hooks"
        return f"{covered} ({GUARD_FILES[host][0]})"
    for program in found.programs:
        if shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
            return f"its hooks start {program}, which is missing"
    return ""


def why_not_in(folder: Path, root: Path, home: Path) -> str:
    """Why Claude Code is not guarded if it starts in a folder below the root of its worktree: it looks for settings
    nowhere else, and runs no hooks without a word. Empty if it is guarded there."""
    if os.path.realpath(folder) == os.path.realpath(root) or not guard_in("claude-code", folder, home).missing:
        return ""
    wide = GUARD_FILES["claude-code"][-1]
    return f"runs hooks only from the folder in which it starts: start it in {root}, or put the hooks into {wide}"


def hosts_of(roots: Sequence[Path], home: Path) -> dict[str, Guard]:
    """The hosts that run hooks of ours in one of the worktrees, or user-wide, in the order of GUARD_FILES."""
    guards = ((host, guard_in(host, root, home)) for host in GUARD_FILES for root in roots)
    return {host: found for host, found in guards if found.missing != guard(host, ()).missing}


def _listing(root: Path) -> str:
    """What git lists; before 2.36 it has no -z."""
    command = ("worktree", "list", "--porcelain")
    return git_output(root, *command, "-z") or git_output(root, *command) or ""


def _is_of(here: GitFolders, folder: Path) -> bool:
    try:
        folders = git_folders(folder)
    except LocationError:
        return False
    return folders is not None and folders.common == here.common


def _problem(here: GitFolders, folder: Path) -> str:
    if not os.path.isdir(folder):
        return "is missing or cannot be read, so it is not set up; once it is there, run in it: holdlog init"
    return "" if _is_of(here, folder) else "is not a worktree of this repository any more; see: git worktree repair"


def _submodules(root: Path) -> Iterator[Skipped]:
    """A line for each submodule that is checked out: agents may start in it."""
    listed = git_output(root, "config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    for entry in (listed or "").split("\0"):
        folder = root / entry.partition("\n")[2]
        if entry and folder != root and os.path.lexists(folder / ".git"):
            why = "is a submodule, which is a separate repository: for agents that start in it, run holdlog init there"
            yield Skipped(folder, why)


def _content(path: Path) -> Any:
    """The content of a host's file: a value of JSON, or the text of other files; None if it cannot be read."""
    try:
        text = read_text(path)
        return parse(text).plain() if text and path.suffix == ".json" else text
    except (OSError, ValueError):
        return None
