"""Globs of `holdlog.toml`: like those of .gitignore, for paths with `/` between their parts."""

import fnmatch
import re
import unicodedata
from functools import lru_cache
from typing import Final

MAX_GLOB: Final = 1_000
"""Characters."""
_ANY_FOLDERS: Final = re.compile("any number of parts")
_REST: Final = re.compile("one part or none")


def is_match(glob: str, path: str, folds: bool = False) -> bool:
    """Whether a glob matches a path from the root of its worktree; a path with `/` at its end means everything below a
    folder. `folds`: the file system ignores case. The time grows with the product of both lengths at most."""
    patterns, parts = _compiled(glob, folds), unicodedata.normalize("NFC", path).split("/")
    at = part = 0
    resume: tuple[int, int] | None = None
    while part < len(parts):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern is _ANY_FOLDERS:
            at, resume = at + 1, (at, part)
        elif pattern is not None and _is_part(pattern, parts[part]):
            at, part = at + 1, part + 1
        elif resume is not None:  # the last `**` takes one part more
            resume = (resume[0], resume[1] + 1)
            at, part = resume[0] + 1, resume[1]
        else:
            return False
    return at == len(patterns)


def _is_part(pattern: re.Pattern[str], part: str) -> bool:
    return pattern is _REST or (part != "" and pattern.match(part) is not None)


@lru_cache(maxsize=4096)
def _compiled(glob: str, folds: bool) -> list[re.Pattern[str]]:
    """A pattern for each part. A glob without `/`, but at its end, matches in every folder."""
    parts = unicodedata.normalize("NFC", glob).split("/")
    is_anchored = len(parts) > 2 or (len(parts) == 2 and parts[1] != "")
    if parts[0] == "":  # a glob that begins with `/`
        parts = parts[1:] or [""]
    folders = [_ANY_FOLDERS if part == "**" else _translated(part, folds) for part in parts[:-1]]
    # At the end, `**` and nothing both mean everything below.
    last = [_ANY_FOLDERS, _REST] if parts[-1] in ("", "**") else [_translated(parts[-1], folds)]
    return [*([] if is_anchored else [_ANY_FOLDERS]), *folders, *last]


def _translated(part: str, folds: bool) -> re.Pattern[str]:
    """Only `*` and `?` are special: brackets occur in the names of routes."""
    return re.compile(fnmatch.translate(part.replace("[", "[[]")), re.IGNORECASE if folds else 0)
