"""The files that guard the agents of a worktree: those that run the hooks of their hosts, and git's own data.

Standard library only and quick to import: the hook's fast path uses it.
"""

import os
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdlog.adapters.hooks.dirty import DirtyFile, DirtyWorktree  # which only git commands need
    from holdlog.adapters.hooks.git import GitAction, OthersWork

MAX_BYTES: Final = 1024 * 1024
"""Of a file of a host."""
_OURS: Final = b"holdlog"
"""What a file contains that runs hooks or the server."""
_SERVERS: Final = (".mcp.json", ".cursor/mcp.json", ".codex/config.toml", ".vscode/mcp.json", "opencode.json")
_SETTINGS: Final = re.compile(
    r"/(?:\.claude(?:/settings[^/]*\.json)?|\.cursor(?:/hooks\.json)?|\.codex(?:/(?:hooks\.json|config\.toml))?"
    r"|(?:\.opencode|\.config/opencode)(?:/plugins?(?:/holdlog\.js)?)?|\.git(?:/modules/.+)?/hooks(?:/[^/]+)?)$"
)
"""The files that run hooks, and the folders that contain them."""
_GIT: Final = re.compile(
    r"/\.git(?:/(?:modules|worktrees|refs|logs|objects|holdlog)(?:/.+)?|/(?:HEAD|index|config|packed-refs))?$"
)
"""The data of git, and the store."""
_ORDINARY: Final = re.compile(r"\.lock$|/\.git/(?:modules|worktrees)/.+(?:_MSG|_EDITMSG|_HEAD|/info/.+|/rebase-.+)$")
"""Files there that programs leave behind, or that people edit."""


def find_settings(paths: Sequence[str]) -> str | None:
    """The first of these absolute paths that is a file which runs the hooks of a host or of git, or is git's data, or
    contains one."""
    homes = {os.path.realpath(os.path.expanduser("~"))}
    named = {os.path.realpath(os.environ[it]) for it in ("CLAUDE_CONFIG_DIR", "CODEX_HOME") if os.environ.get(it)}
    for path in paths:
        for real in dict.fromkeys((path.rstrip("/"), os.path.realpath(path))):
            found = _SETTINGS.search(real) or (None if _ORDINARY.search(real) else _GIT.search(real))
            if found is not None and _is_project(real[: found.start()], homes):
                return path
            if os.path.dirname(real) in named and real.endswith((".json", "config.toml")):
                return path
    return None


def describe_settings(path: str, folder: str) -> str:
    """That a person must agree to a change of such a file. `folder`: where the agent works."""
    from holdlog.adapters.hooks.git import shorten

    real = os.path.realpath(path)
    runs = _SETTINGS.search(real) is not None or real.endswith((".json", "config.toml"))
    what = "runs the hooks that guard files" if runs else "belongs to the data of git and holdlog"
    return f"holdlog: {shorten(os.path.relpath(path, folder))} {what}, so a person must agree to this change."


def _is_project(folder: str, homes: Collection[str]) -> bool:
    return os.path.realpath(folder) in homes or os.path.lexists(os.path.join(folder, ".git"))


def guard_files(worktree: "DirtyWorktree", dirty: "Sequence[DirtyFile]") -> "list[DirtyFile]":
    """The files among these, or in these folders, that run hooks of holdlog, unless HEAD has them, too. Raises
    GitFailedError."""
    from holdlog.adapters.hooks.dirty import ask_git
    from holdlog.adapters.hooks.worktrees import GUARD_FILES

    found = list["DirtyFile"]()
    for name in (*(it for files in GUARD_FILES.values() for it in files if it[0] != "~"), *_SERVERS):
        path = os.path.join(worktree.root, name)
        file = next(
            (it for it in dirty if path == it.path or (it.path.endswith("/") and path.startswith(it.path))), None
        )
        if file is not None and _OURS in _content(path):
            is_new = file.status in ("??", "!!")
            committed = None if is_new else ask_git(worktree.root, (), "cat-file", "blob", f"HEAD:{name}")
            if _OURS not in (committed or b""):
                found.append(file._replace(path=path))
    return found


def without_guards(action: "GitAction", guards: "Sequence[OthersWork]", root: str) -> "GitAction":
    """The action with a narrower command that spares these files, if `git clean` has a short one."""
    is_clean = action.name.startswith("git clean") and "ignored" in action.kinds and "untracked" in action.kinds
    if not is_clean or action.pathspecs not in ((), (".",)):
        return action
    tops = dict.fromkeys(os.path.relpath(it.path, root).split(os.sep)[0] for it in guards)
    flags = f"{'' if action.shallow else 'd'}{''.join(f' -e {it}' for it in tops)}"
    return action._replace(narrower=action.narrower.replace(" -- {own}", flags))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""
