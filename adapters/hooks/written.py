"""What commands such as `git apply` and `patch` wrote: nobody can name it beforehand, but it is the work of the agent
that ran them.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
from collections.abc import Iterator
from typing import Final

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.dirty import dirty_worktree
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.guarding import actions_of

MAX_WRITTEN: Final = 100
"""Files of one call that are recorded."""
_TICK: Final = 0.02
"""Seconds by which the time of a file may lag behind the clock."""
_WRITING: Final = {
    "apply": (),
    "cherry-pick": ("-n", "--no-commit"),
    "merge": ("--squash", "--no-commit"),
    "revert": ("-n", "--no-commit"),
    "stash": ("apply", "branch", "pop"),
}
"""Commands of git that change files without a commit, if one of these words follows."""
_VALUED: Final = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
"""Global options of git with a value in the next word."""


def writes_files(call: HookCall) -> bool:
    """Whether the call runs such a command."""
    return call.patches or any(map(_writes, call.git))


def _writes(command: GitCommand) -> bool:
    words = [it or "" for it in command.words]
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in _VALUED else 1]
    verb, *rest = words or [""]
    return verb in _WRITING and (not _WRITING[verb] or not set(_WRITING[verb]).isdisjoint(rest))


def written_since(call: HookCall, at: int) -> Iterator[str]:
    """The dirty files of the worktrees in which the call runs that were modified, or removed, since a time
    (microseconds UTC): absolute paths. Raises GitFailedError."""
    roots = set[str]()
    for folder in dict.fromkeys([call.folder, *(it.folder for it in actions_of(call.git))]):
        worktree = dirty_worktree(folder, untracked="all")
        if worktree is None or worktree.root in roots:
            continue
        roots.add(worktree.root)
        yield from (it.path for it in worktree.files if _modified(it.path) >= at / 1_000_000 - _TICK)


def _modified(path: str) -> float:
    """When a file was modified or removed, in seconds UTC."""
    for each in (path, os.path.dirname(path)):
        try:
            return os.lstat(each).st_mtime
        except OSError:
            continue
    return 0.0
