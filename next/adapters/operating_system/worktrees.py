"""The worktrees of a git repository, by reading files only (gitrepository-layout(5), git-worktree(1))."""

import os
import re
from contextlib import suppress
from typing import Final

from holdlog.adapters.operating_system.location import Repository, read_pointer, read_repository
from holdlog.domain.refusals import StoreError

MAX_CONFIG: Final = 1024 * 1024
_SETTING: Final = r'\s*(?:\[([^]]*)\])?\s*(?:([A-Za-z][\w-]*)\s*(?:=\s*("[^"]*"|[^#;]*))?)?'
"""A line of a configuration: section, name, value, each of which may be missing (git-config(1), Syntax)."""


def find_main(repository: Repository) -> str | None:
    """The root of the repository's main worktree; None for a bare one. As git: `core.worktree`, none if `core.bare`,
    else the folder that contains `.git`."""
    if repository.git_folder == repository.common:
        return repository.folder
    core = _read_core(repository.common)
    if core.get("worktree") and os.path.isdir(named := os.path.realpath(f"{repository.common}/{core['worktree']}")):
        return named
    if core.get("bare", "false").lower() in ("", "true", "yes", "on", "1"):
        return None
    return os.path.dirname(repository.common) if os.path.basename(repository.common) == ".git" else None


def list_linked(repository: Repository) -> dict[str, str]:
    """The roots of the linked worktrees, by the names of their folders in the common one. The given one counts where
    it is, even if git has recorded another place."""
    roots, below = {}, f"{repository.common}/worktrees"
    with suppress(OSError):
        for name in sorted(os.listdir(below)):
            entry = f"{below}/{name}"
            if entry == repository.git_folder:
                roots[name] = repository.folder
                continue
            with suppress(StoreError):  # removed, or git is creating it
                root = os.path.realpath(os.path.dirname(os.path.join(entry, read_pointer(f"{entry}/gitdir"))))
                found = read_repository(root)
                if found is not None and found.git_folder == entry:
                    roots[name] = root
    return roots


def _read_core(common: str) -> dict[str, str]:
    """The settings of section `core`; the later file overrides the earlier; `include` is not followed."""
    settings, section = dict[str, str](), ""
    for name in ("config", "config.worktree"):
        try:
            with open(f"{common}/{name}", "rb") as file:
                lines = os.fsdecode(file.read(MAX_CONFIG)).split("\n")
        except OSError:
            continue
        for match in filter(None, (re.match(_SETTING, line) for line in lines)):
            if match[1] is not None:
                section = match[1].strip().lower()
            if match[2] and section == "core":
                settings[match[2].lower()] = (match[3] or "").strip().strip('"').replace("\\\\", "\\")
    return settings
