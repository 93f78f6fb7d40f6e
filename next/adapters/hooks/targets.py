"""What a tool call or a shell command does to files, as far as its text shows. Quick to import."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_MARKED: Final = r"\*\*\* (Add File|Update File|Delete File|Move to):(.*)"
_DIFFED: Final = r"(?m)^--- (.+)\n\+\+\+ (.+)$|^rename (?:from|to) (.+)$"


class GitCommand(NamedTuple):
    """A git command. `words`: after `git`; None: one that only a shell knows. `folder`: where it runs, absolute."""

    words: tuple[str | None, ...]
    folder: str


class Targets(NamedTuple):
    """`paths`: what certainly changes, in order, absolute; a folder that the command makes ends with a slash. `git`:
    its git commands, but for those that only read. `reports`: it may change files that nobody can name beforehand, so
    they are compared afterwards. `problem`: why it could not be read, in one line."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


def list_patched(patch: str, has_padded_context: bool = False) -> list[str]:
    """The files that a patch adds, updates, deletes or moves: one in the form of `apply_patch`, or a unified diff.
    `has_padded_context`: OpenCode takes padded marker lines of a file that is open as context; Codex takes each marker
    line."""
    marked, is_open = list[str](), False
    for line in patch.split("\n"):
        marker = re.match(_MARKED, line.strip())
        if marker and not (has_padded_context and is_open and line[:1].isspace()):
            marked.append(marker[2].strip())
            is_open = marker[1] != "Delete File"
    if not marked:
        headers = re.finditer(_DIFFED, patch.replace("\r", ""))
        marked = [path for header in headers for path in _list_of_diff(header.groups())]
    return list(dict.fromkeys(filter(None, marked)))


def _list_of_diff(headers: Sequence[str | None]) -> list[str]:
    """The paths in the headers of one file of a unified diff, or of one line of a rename, without git's prefixes."""
    paths = [header.partition("\t")[0].rstrip() for header in headers if header is not None]
    is_prefixed = len(paths) == 2 and all(path == "/dev/null" or path[:2] in ("a/", "b/") for path in paths)
    return [path[2:] if is_prefixed else path for path in paths if path != "/dev/null"]
