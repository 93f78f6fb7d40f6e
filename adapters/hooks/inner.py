"""Repositories inside others: what a command does to submodules and nested clones.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import re
import shlex
from collections.abc import Iterator
from typing import Final

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.dirty import DirtyWorktree, ask_git, dirty_worktree
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.git import GitAction, read_git

MAX_SUBMODULES: Final = 100
MAX_FOLDERS: Final = 2_000
"""Folders in which nested repositories are looked for."""
MAX_BYTES: Final = 64 * 1024
"""Of the list of submodules."""
_PATH: Final = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


def submodules_of(root: str) -> list[str]:
    """The roots of the submodules that are checked out in a worktree, those of submodules included."""
    found, due = list[str](), [root]
    while due and len(found) < MAX_SUBMODULES:
        for path in _listed(due.pop()):
            if path not in found and os.path.lexists(os.path.join(path, ".git")):
                found.append(path)
                due.append(path)
    return found[:MAX_SUBMODULES]


def worktree_around(folder: str) -> str:
    """The innermost worktree that contains a folder, as the file system shows it; empty if there is none."""
    folder = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    return folder


def with_foreach(call: HookCall) -> HookCall:
    """The call with what `git submodule foreach` runs in each submodule."""
    paths, git, reports = [*call.paths], [*call.git], call.reports
    for command in call.git:
        words = _words_of_foreach(command)
        if words and None not in words:
            from holdlog.adapters.hooks.shell import read_shell

            text = str(words[0]) if len(words) == 1 else shlex.join(filter(None, words))
            for folder in submodules_of(worktree_around(_folder_of(command))):
                reading = read_shell(text, folder)
                paths += reading.paths
                git += reading.git
                reports = reports or reading.reports
    return call._replace(paths=tuple(paths), git=tuple(git), reports=reports)


def inner_actions(action: GitAction, worktree: DirtyWorktree) -> list[GitAction]:
    """What an action does in each repository inside the worktree in which git runs it. Raises GitFailedError."""
    if not action.inner:
        return []
    roots = _nested(action, worktree) if "untracked" in action.kinds else _submodules(action, worktree.root)
    inside = action._replace(options=(), pathspecs=(), names=(), tree="", narrower="", kinds=frozenset(), inner="")
    if action.inner == "removed":
        return [inside._replace(folder=it, worktree=it) for it in roots]
    return [inside._replace(folder=it, kinds=frozenset({"staged", "changed"})) for it in roots]


def _listed(root: str) -> Iterator[str]:
    """The submodules that a worktree lists, as absolute paths."""
    try:
        with open(os.path.join(root, ".gitmodules"), "rb") as file:
            text = os.fsdecode(file.read(MAX_BYTES))
    except OSError:
        return
    for path in _PATH.findall(text):
        yield os.path.normpath(os.path.join(root, path.strip('"')))


def _words_of_foreach(command: GitCommand) -> list[str | None]:
    words = list(command.words)
    if "submodule" not in words or "foreach" not in words[words.index("submodule") :]:
        return []
    rest = words[words.index("foreach", words.index("submodule")) + 1 :]
    while rest and rest[0] in ("--recursive", "-q", "--quiet", "--"):
        rest.pop(0)
    return rest


def _folder_of(command: GitCommand) -> str:
    return next((action.folder for action in read_git(command, {})), command.folder)


def _submodules(action: GitAction, root: str) -> list[str]:
    """The submodules in the limits of an action."""
    roots = submodules_of(root)
    if not (roots and action.pathspecs):
        return roots
    listed = ask_git(action.folder, action.options, "ls-files", "-z", "--full-name", "--", *action.pathspecs)
    names = tuple(os.path.join(root, os.fsdecode(it)) + "/" for it in (listed or b"").split(b"\0") if it)
    return [it for it in roots if f"{it}/".startswith(names)]


def _nested(action: GitAction, worktree: DirtyWorktree) -> list[str]:
    """The repositories in untracked folders in the limits of an action."""
    is_ignored = "ignored" in action.kinds
    found = dirty_worktree(action.folder, action.options, action.pathspecs, is_ignored, "normal", worktree)
    folders = [it.path for it in (found.files if found is not None else ()) if it.path.endswith("/")]
    return [] if action.shallow else list(dict.fromkeys(path for folder in folders for path in _inside(folder)))


def _inside(folder: str) -> Iterator[str]:
    for examined, (path, folders, files) in enumerate(os.walk(folder)):
        if examined >= MAX_FOLDERS:
            return
        if ".git" in folders or ".git" in files:
            yield path.rstrip("/")
        folders[:] = [it for it in folders if it != ".git"]
