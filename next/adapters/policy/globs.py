"""Globs of `holdlog.toml`: like those of .gitignore, for paths with `/` between their parts. The library pathspec takes
70 ms to import, more than a hook has."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

MAX_GLOB: Final = 1_000
"""Characters."""
_ANY_FOLDERS: Final = "**"
_REST: Final = ""
"""Matches one part or none."""


def is_match(glob: str, path: str) -> bool:
    """Whether a glob matches a path from the root of its worktree; a path with `/` at its end means everything below a
    folder. The time grows with the product of both lengths at most."""
    patterns, parts = _compile(glob), unicodedata.normalize("NFC", path).split("/")
    at = part = 0
    resume: tuple[int, int] | None = None
    while part < len(parts):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern == _ANY_FOLDERS:
            at, resume = at + 1, (at, part)
        elif pattern is not None and _is_part(pattern, parts[part]):
            at, part = at + 1, part + 1
        elif resume is not None:  # the last `**` takes one part more
            resume = (resume[0], resume[1] + 1)
            at, part = resume[0] + 1, resume[1]
        else:
            return False
    return at == len(patterns)


def _is_part(pattern: "str | re.Pattern[str]", part: str) -> bool:
    return isinstance(pattern, str) or (part != "" and pattern.fullmatch(part) is not None)


@lru_cache(4096)
def _compile(glob: str) -> "list[str | re.Pattern[str]]":
    """A pattern for each part. A glob without `/`, but at its end, matches in every folder."""
    parts = unicodedata.normalize("NFC", glob).split("/")
    is_anchored = len(parts) > 2 or (len(parts) == 2 and parts[1] != "")
    if parts[0] == "":  # a glob that begins with `/`
        parts = parts[1:] or [""]
    patterns = [_ANY_FOLDERS if part == "**" else _translate(part) for part in parts]
    if parts[-1] in ("", "**"):  # at the end, both mean everything below
        patterns[-1:] = [_ANY_FOLDERS, _REST]
    return [*([] if is_anchored else [_ANY_FOLDERS]), *patterns]


def _translate(part: str) -> "str | re.Pattern[str]":
    """Only `*` and `?` are special: brackets occur in the names of routes."""
    stars = re.sub(r"\*+", "*", part)
    return re.compile(re.escape(stars).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
