"""Globs of `holdlog.toml`. Quick to import."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

_ANY_FOLDERS: Final = "(?:.*/)?"


def is_match(glob: str, path: str) -> bool:
    """Whether a glob matches a path from the root of its worktree; a path with `/` at its end means everything below a
    folder."""
    return _compile(glob).fullmatch(unicodedata.normalize("NFC", path)) is not None


@lru_cache(4096)
def _compile(glob: str) -> re.Pattern[str]:
    """A glob without `/`, but at its end, matches in every folder. Only `*` and `?` are special: brackets occur in the
    names of routes."""
    *folders, last = unicodedata.normalize("NFC", glob.removeprefix("/")).split("/")
    is_anchored = glob.startswith("/") or any(folders[last == "" :])
    pattern = "" if is_anchored else _ANY_FOLDERS
    for folder in folders:
        pattern += _ANY_FOLDERS if folder == "**" else f"{_translate(folder)}/"
    return re.compile(pattern + (".*" if last in ("", "**") else _translate(last)), re.DOTALL)


def _translate(part: str) -> str:
    """A part is never empty."""
    stars = re.escape(re.sub(r"\*+", "*", part))
    return "(?=[^/])" + stars.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
