"""The files that guard the agents of a worktree: those that run the hooks of their hosts, and git's own data. A person
decides about their change. Quick to import."""

import os
import re
from collections.abc import Sequence
from typing import Final

from holdlog.adapters.hooks.describe import shorten

_HOMES: Final = ("CLAUDE_CONFIG_DIR", "CODEX_HOME")
"""Variables that name folders of settings."""
_SETTINGS: Final = (
    r"/(?:\.claude(?:/settings[^/]*\.json)?|\.cursor(?:/hooks\.json)?|\.codex(?:/(?:hooks\.json|config\.toml))?"
    r"|\.gemini(?:/settings\.json)?|(?:\.opencode|\.config/opencode)(?:/plugins?(?:/holdlog\.js)?)?"
    r"|\.git(?:/modules/.+)?/hooks(?:/[^/]+)?)$"
)
"""The files that run hooks, and the folders that contain them."""
_GIT: Final = r"/\.git(?:/(?:modules|worktrees|refs|logs|objects|holdlog)(?:/.+)?|/(?:HEAD|index|config|packed-refs))?$"
"""The data of git, and the store."""
_ORDINARY: Final = r"\.lock$|/\.git/(?:modules|worktrees)/.+(?:_MSG|_EDITMSG|_HEAD|/info/.+|/rebase-.+)$"
"""Files there that programs leave behind, or that people edit."""


def find_settings(paths: Sequence[str]) -> str | None:
    """The first of these absolute paths that is such a file, or a folder that contains one."""
    named = {os.path.realpath(os.environ[it]) for it in _HOMES if os.environ.get(it)}
    home = os.path.realpath(os.path.expanduser("~"))
    for path in paths:
        for real in dict.fromkeys((path.rstrip("/"), os.path.realpath(path))):
            match = re.search(_SETTINGS, real) or (None if re.search(_ORDINARY, real) else re.search(_GIT, real))
            if match is not None and _is_project(real[: match.start()], home):
                return path
            if os.path.dirname(real) in named and real.endswith((".json", "config.toml")):
                return path
    return None


def describe_settings(path: str, folder: str) -> str:
    """That a person must agree to a change of such a file. `folder`: where the agent works."""
    real = os.path.realpath(path)
    runs = re.search(_SETTINGS, real) is not None or real.endswith((".json", "config.toml"))
    what = "runs the hooks that guard files" if runs else "belongs to the data of git and holdlog"
    return f"holdlog: {shorten(os.path.relpath(path, folder))} {what}, so a person must agree to this change."


def _is_project(folder: str, home: str) -> bool:
    return os.path.realpath(folder) == home or os.path.lexists(os.path.join(folder, ".git"))
